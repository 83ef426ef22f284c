#!/usr/bin/env python3
"""Published measurements beside trireme plan and aiconfigurator, asked the same questions.

    python3 -m venv v && v/bin/pip install aiconfigurator
    AICONFIGURATOR=v/bin/aiconfigurator TRIREME=build/release/trireme bench/peer/plan_aiconfigurator.py

Questions come from data/measured.json: those whose model, card and engine aiconfigurator knows.
Its batch size is our requests at once. What it cannot answer is printed with its own words.
"""
import json
import os
import re
import statistics
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
PEER = os.environ.get("AICONFIGURATOR", "aiconfigurator")
OURS = os.environ.get("TRIREME", os.path.join(ROOT, "build/release/trireme"))
MODELS = {"kimi-k3": "moonshotai/Kimi-K3", "kimi-k2.5": "moonshotai/Kimi-K2.5", "kimi-k2.6": "moonshotai/Kimi-K2.5"}
SYSTEMS = {"B300": "b300_sxm", "B200": "b200_sxm", "H200": "h200_sxm", "GB200": "gb200", "GB300": "gb300"}


def degrees(layout):
    found = dict((k, int(v)) for k, v in re.findall(r"([a-z]+)(\d+)", layout))
    tp = found.get("tp", 1)
    ep = found.get("ep", 1)
    return tp, (1 if ep > 1 else tp), ep


def ask_peer(point):
    tp, moe_tp, moe_ep = degrees(point["layout"])
    command = [PEER, "cli", "estimate", "--no-color", "--log-level", "ERROR", "--model-path", MODELS[point["model"]],
               "--system", SYSTEMS[point["device"]], "--backend", point["engine"], "--isl", str(point["input"]),
               "--osl", str(point["output"]), "--batch-size", str(point["concurrency"]), "--tp-size", str(tp),
               "--moe-tp-size", str(moe_tp), "--moe-ep-size", str(moe_ep)]
    if point["model"] == "kimi-k3":
        command += ["--kvcache-quant-mode", "fp8"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    except subprocess.TimeoutExpired:
        return None, "no answer in 300 s"
    text = done.stdout + done.stderr
    find = lambda name: next((float(m.replace(",", "")) for m in re.findall(name + r":\s+([\d.,]+)", text)), None)
    if find("TPOT") is None:
        lines = [line for line in text.strip().splitlines() if line.strip()]
        return None, lines[-1][-90:] if lines else "no answer"
    return {"ttft_ms": find("TTFT"), "tpot_ms": find("TPOT"), "tokens_per_s": find("tokens/s")}, None


def ask_us(point):
    command = [OURS, "plan", "--json"]
    for key in ("model", "hw", "engine", "layout", "experts", "spec", "acceptance", "input", "output", "concurrency"):
        if key in point:
            command += [f"--{key}", str(point[key])]
    p = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    return {k: p[k]["value"] for k in ("ttft_ms", "tpot_ms", "tokens_per_s")}


def main():
    with open(os.path.join(ROOT, "data/measured.json")) as f:
        points = json.load(f)["points"]
    ours, theirs = [], []
    print(f"{'point':22} {'figure':13} {'measured':>9} {'trireme':>9} {'':>6} {'aiconf.':>9}")
    only = sys.argv[1] if len(sys.argv) > 1 else ""  # e.g. k2.5-b200
    for point in points:
        if not point["id"].startswith(only):
            continue
        if ("skip" in point or "spec" in point or "role" in point or "cause" in point or "experts" in point
                or point["model"] not in MODELS or point["device"] not in SYSTEMS
                or point["engine"] not in ("vllm", "sglang")):
            continue
        peer, why = ask_peer(point)
        us = ask_us(point)
        for figure, measured in point["measured"].items():
            if figure not in us:
                continue
            ours.append(abs(us[figure] / measured - 1))
            line = f"{point['id']:22} {figure:13} {measured:9.4g} {us[figure]:9.4g} {us[figure] / measured - 1:+6.0%}"
            if peer:
                theirs.append(abs(peer[figure] / measured - 1))
                line += f" {peer[figure]:9.4g} {peer[figure] / measured - 1:+6.0%}"
            else:
                line += f"  {why}"
            print(line, flush=True)
    print(f"median miss: trireme {statistics.median(ours):.0%} of {len(ours)}, "
          f"aiconfigurator {statistics.median(theirs):.0%} of {len(theirs)} it answers" if theirs else "no answers")


if __name__ == "__main__":
    sys.exit(main())
