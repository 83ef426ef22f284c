#!/usr/bin/env python3
"""Load on a running `trireme serve` (or one that is started here): many streams at once, some of
which leave, half-close or read slowly, beside idle connections. Every stream that was read whole
must equal its solo run, every accepted request must end exactly once, memory must not grow.

    bench/serve/load.py --minutes 10            64 streams against a server of its own
    bench/serve/load.py --minutes 1 --idle 2000 --server build/tsan/trireme -- --threads 1

Arguments after -- go to `trireme serve`. Prints one line of JSON; exit 1 when a promise broke.
"""
import argparse
import asyncio
import json
import os
import random
import re
import resource
import signal
import statistics
import sys
import time

ASKS = ["Tell me a story about a fox.", "Hi", "What is 2 + 3?", "Tell me about a cat.",
        "Write a list of three animals.", "Tell me a story about a horse called Max.",
        "The fox and the crow went down to the river and sat there. " * 12,
        "A long question about birds and what they eat in winter. " * 30]
TOKENS = [24, 24, 24, 24, 24, 24, 16, 8]
ENDS = ("stop", "length", "abort", "error")


class Target:
    def __init__(self, port):
        self.port = port

    async def connect(self):
        return await asyncio.open_connection("127.0.0.1", self.port, limit=1 << 20)

    async def get(self, path):
        r, w = await self.connect()
        w.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        data = await r.read()
        while not r.at_eof():
            data += await r.read()
        w.close()
        return data.split(b"\r\n\r\n", 1)[1].decode()

    async def metrics(self):
        out = {}
        for line in (await self.get("/metrics")).split("\n"):
            if line and line[0] != "#":
                name, value = line.rsplit(" ", 1)
                out[name] = float(value)
        return out

    async def send(self, ask, n):
        r, w = await self.connect()
        body = json.dumps({"messages": [{"role": "user", "content": ask}], "stream": True,
                           "temperature": 0, "max_tokens": n}).encode()
        w.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
                b"Content-Length: %d\r\n\r\n" % len(body) + body)
        await w.drain()
        return r, w


def text_of(data):
    """Reasoning and content of a whole stream; None if it is not whole."""
    if b"data: [DONE]" not in data:
        return None
    deltas = [json.loads(p)["choices"][0]["delta"]
              for p in re.findall(rb"data: (\{.*?\})\r?\n\n", data)]
    return "".join(d.get("reasoning", "") + d.get("content", "") for d in deltas)


async def whole(target, ask, n, slow=0):
    r, w = await target.send(ask, n)
    data = b""
    while True:
        piece = await r.read(300 if slow else 65536)
        if not piece:
            break
        data += piece
        if slow:
            await asyncio.sleep(slow)
    w.close()
    return data


async def client(target, solo, rng, end, seen):
    while time.monotonic() < end:
        i = rng.randrange(len(ASKS))
        kind = rng.choice(["whole"] * 5 + ["slow", "leave", "half"])
        seen["sent"] += 1
        begin = time.monotonic()
        try:
            if kind in ("whole", "slow"):
                data = await whole(target, ASKS[i], TOKENS[i], 0.01 if kind == "slow" else 0)
                if data.startswith(b"HTTP/1.1 429"):
                    seen["refused"] += 1
                elif text_of(data) != solo[i]:
                    seen["wrong"].append((i, data[-300:].decode(errors="replace")))
                else:
                    seen["whole"] += 1
                    seen["seconds"].append(time.monotonic() - begin)
                continue
            r, w = await target.send(ASKS[i], TOKENS[i])
            if rng.random() < 0.7:
                await asyncio.wait_for(r.read(rng.randrange(1, 2000)), 60)
            if kind == "half":
                w.write_eof()
                await asyncio.sleep(0.01)
            w.transport.abort()
            seen["left"] += 1
        except (OSError, asyncio.TimeoutError) as e:
            seen["errors"].append(f"{kind}: {e!r}")


def ended(m):
    return sum(v for k, v in m.items() if k.startswith("vllm:request_success_total"))


def one(m, name):
    return next(v for k, v in m.items() if k.split("{")[0] == name)


def slope(points):
    """Least squares, bytes a minute."""
    if len(points) < 3:
        return 0.0
    t = statistics.mean(p[0] for p in points)
    y = statistics.mean(p[1] for p in points)
    under = sum((p[0] - t) ** 2 for p in points)
    return 60 * sum((p[0] - t) * (p[1] - y) for p in points) / under


async def watch(target, end, points):
    begin = time.monotonic()
    while time.monotonic() < end:
        m = await target.metrics()
        points.append((time.monotonic() - begin, one(m, "process_resident_memory_bytes")))
        await asyncio.sleep(max(0.2, (end - begin) / 120))


async def run(target, o):
    solo = [text_of(await whole(target, a, n)) for a, n in zip(ASKS, TOKENS)]
    if None in solo:
        raise SystemExit("a solo run did not end")
    idle = [await target.connect() for _ in range(o.idle)]
    before = await target.metrics()
    end = time.monotonic() + 60 * o.minutes
    points, seen = [], []
    for i in range(o.streams):
        seen.append({"sent": 0, "whole": 0, "left": 0, "refused": 0, "wrong": [], "errors": [],
                     "seconds": []})
    await asyncio.gather(watch(target, end, points),
                         *(client(target, solo, random.Random(o.seed * 1000 + i), end, s)
                           for i, s in enumerate(seen)))
    for _ in range(200):
        after = await target.metrics()
        if one(after, "vllm:num_requests_running") + one(after, "vllm:num_requests_waiting") == 0:
            break
        await asyncio.sleep(0.1)
    alive = 0
    for r, w in idle:
        alive += not r.at_eof()
        w.close()
    total = {k: sum(s[k] for s in seen) for k in ("sent", "whole", "left", "refused")}
    wrong = [x for s in seen for x in s["wrong"]]
    errors = [x for s in seen for x in s["errors"]]
    seconds = sorted(x for s in seen for x in s["seconds"])
    settled = [p for p in points if p[0] > points[-1][0] / 3]
    ends = ended(after) - ended(before)
    out = dict(total, wrong=len(wrong), errors=len(errors), idle_open=alive,
               accepted_and_ended=int(ends),
               ends={e: int(sum(v for k, v in after.items()
                                if k.startswith("vllm:request_success_total") and f'"{e}"' in k) -
                            sum(v for k, v in before.items()
                                if k.startswith("vllm:request_success_total") and f'"{e}"' in k))
                     for e in ENDS},
               running=one(after, "vllm:num_requests_running"),
               waiting=one(after, "vllm:num_requests_waiting"),
               preempted=one(after, "vllm:num_preemptions_total"),
               open_fds=one(after, "process_open_fds"),
               rss_begin=points[0][1], rss_settled=settled[0][1], rss_end=points[-1][1],
               rss_slope_bytes_per_minute=round(slope(settled)),
               p50_s=round(seconds[len(seconds) // 2], 3) if seconds else None,
               p95_s=round(seconds[len(seconds) * 95 // 100], 3) if seconds else None,
               samples=(wrong + errors)[:5])
    ok = not wrong and not errors and out["running"] == out["waiting"] == 0
    # whoever was read whole was accepted; who left early perhaps not
    ok = ok and total["whole"] <= ends <= total["sent"] and out["ends"]["error"] == 0
    return out, ok


async def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--minutes", type=float, default=10)
    p.add_argument("--streams", type=int, default=64)
    p.add_argument("--idle", type=int, default=0)
    p.add_argument("--seed", type=int, default=1)
    p.add_argument("--port", type=int, help="of a server that runs already")
    p.add_argument("--server", default="build/release/trireme")
    p.add_argument("rest", nargs="*", help="for trireme serve")
    o = p.parse_args()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    process = None
    if not o.port:
        args = o.rest or ["--ram", "1G", "--context", "1024", "--parallel", "8"]
        process = await asyncio.create_subprocess_exec(
            o.server, "serve", "--port", "0", *args, stdout=asyncio.subprocess.PIPE)
        o.port = int(re.search(rb":(\d+) ", await process.stdout.readline()).group(1))
    try:
        out, ok = await run(Target(o.port), o)
    finally:
        if process and process.returncode is None:
            process.send_signal(signal.SIGTERM)
            await process.wait()
    if process:
        out["exit"] = process.returncode
        ok = ok and process.returncode == 0
    out["ok"] = ok
    print(json.dumps(out))
    return 0 if ok else 1


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    sys.exit(asyncio.run(main()))
