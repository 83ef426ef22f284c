#!/usr/bin/env python3
"""What batching gains, and what short requests feel beside a long prompt, chunked and whole.

    bench/serve/latency.py                 one JSON line a measurement, for docs/findings

Each measurement starts a server of its own with the nano model. Run it on a quiet machine.
"""
import argparse
import asyncio
import json
import os
import re
import resource
import signal
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from load import Target, one  # noqa: E402

WORDS = "the fox and the crow went down to the river and sat there until the evening came "


async def start(server, *args):
    process = await asyncio.create_subprocess_exec(
        server, "serve", "--port", "0", "--ram", "2G", *args, stdout=asyncio.subprocess.PIPE)
    port = int(re.search(rb":(\d+) ", await process.stdout.readline()).group(1))
    return process, Target(port)


async def stop(process):
    process.send_signal(signal.SIGTERM)
    await process.wait()


async def stream(target, text, n):
    """Times of the pieces of a streamed completion, from sending on; the last is the end."""
    r, w = await target.connect()
    body = json.dumps({"prompt": text, "stream": True, "temperature": 0, "max_tokens": n,
                       "ignore_eos": True}).encode()
    begin = time.monotonic()
    w.write(b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
            b"Content-Length: %d\r\n\r\n" % len(body) + body)
    await w.drain()
    times = []
    while True:
        piece = await r.read(65536)
        if not piece:
            break
        got = piece.count(b'"finish_reason"')
        times += [time.monotonic() - begin] * got
    w.close()
    return times


def quantile(values, q):
    values = sorted(values)
    return round(values[min(len(values) - 1, int(len(values) * q))], 4) if values else None


async def gain(o, streams):
    process, target = await start(o.server, "--parallel", "16", "--context", "1024",
                                  "--threads", str(o.threads), "--cache-ram", "0")
    await stream(target, "warm up", 20)
    n, begin = 200, time.monotonic()
    before = await target.metrics()
    await asyncio.gather(*(stream(target, f"{i} {WORDS}", n) for i in range(streams)))
    seconds = time.monotonic() - begin
    after = await target.metrics()
    made = one(after, "vllm:generation_tokens_total") - one(before, "vllm:generation_tokens_total")
    await stop(process)
    return {"measure": "batch", "streams": streams, "tokens": int(made),
            "seconds": round(seconds, 3), "tokens_per_s": round(made / seconds, 1)}


async def beside(o, kind, chunk):
    """Short requests, one after the other on two connections, while a long prompt is computed."""
    process, target = await start(o.server, "--parallel", "8", "--context", "40960", "--chunk",
                                  str(chunk), "--threads", str(o.threads), "--cache-ram", "0")
    await stream(target, "warm up", 20)
    text = WORDS * (o.long_words // 17)
    long_task = None if kind == "alone" else asyncio.create_task(stream(target, text, 1))
    begin, ttft, tpot, n = time.monotonic(), [], [], 16
    await asyncio.sleep(0.05)

    async def ask(i):
        at = 0
        while (time.monotonic() - begin < 5) if long_task is None else not long_task.done():
            at += 1
            times = await stream(target, f"short {i} {at}", n)
            if times:
                ttft.append(times[0])
                tpot.append((times[-1] - times[0]) / (n - 1))
    await asyncio.gather(*(ask(i) for i in range(2)))
    long_s = (await long_task)[0] if long_task else None
    m = await target.metrics()
    await stop(process)
    return {"measure": "beside a long prompt", "kind": kind, "chunk": chunk,
            "prompt_tokens": int(one(m, "vllm:prompt_tokens_total")), "short": len(ttft),
            "long_ttft_s": round(long_s, 3) if long_s else None,
            "ttft_p50_s": quantile(ttft, .5), "ttft_p95_s": quantile(ttft, .95),
            "tpot_p50_s": quantile(tpot, .5), "tpot_p95_s": quantile(tpot, .95)}


async def idle(o, connections):
    """One stream beside connections that do nothing."""
    process, target = await start(o.server, "--parallel", "4", "--context", "2048", "--threads",
                                  str(o.threads), "--cache-ram", "0")
    held = [await target.connect() for _ in range(connections)]
    await stream(target, "warm up", 20)
    times = await stream(target, WORDS, 1500)
    gaps = [b - a for a, b in zip(times, times[1:])]
    m = await target.metrics()
    alive = sum(not r.at_eof() for r, _ in held)
    for _, w in held:
        w.close()
    await stop(process)
    return {"measure": "idle connections", "idle": connections, "still_open": alive,
            "connections": int(one(m, "trireme_http_connections")),
            "tpot_ms": round(1000 * (times[-1] - times[0]) / (len(times) - 1), 4),
            "gap_p95_ms": round(1000 * quantile(gaps, .95), 3)}


async def main():
    p = argparse.ArgumentParser(description=__doc__,
                                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--server", default="build/release/trireme")
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--long-words", type=int, default=17000)
    p.add_argument("--only", choices=("batch", "idle", "beside"), help="default: all")
    o = p.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for _ in range(o.rounds if o.only in (None, "idle") else 0):
        for connections in (0, 2000):
            print(json.dumps(await idle(o, connections)), flush=True)
    for _ in range(o.rounds if o.only in (None, "batch") else 0):
        for streams in (1, 4, 16):
            print(json.dumps(await gain(o, streams)), flush=True)
    for _ in range(o.rounds if o.only in (None, "beside") else 0):
        for kind, chunk in (("alone", 512), ("chunked", 64), ("chunked", 128), ("chunked", 512),
                            ("whole", 65536)):
            print(json.dumps(await beside(o, kind, chunk)), flush=True)


if __name__ == "__main__":
    os.chdir(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../.."))
    asyncio.run(main())
