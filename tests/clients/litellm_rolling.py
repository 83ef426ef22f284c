#!/usr/bin/env python3
"""Two servers behind a real LiteLLM proxy with the shipped configuration: do conversations stay with
one server, and does a rolling restart of both lose a request? Not part of `make test`: it needs
`pip install 'litellm[proxy]'`.
Run: TRIREME=build/release/trireme LITELLM=.../bin/litellm python3 tests/clients/litellm_rolling.py"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
from serving import SOURCE, Server, wait_for  # noqa: E402
from test_prometheus import free_port  # noqa: E402

KEY = "sk-" + os.urandom(32).hex()
SECONDS = float(os.environ.get("TRI_PAUSE", "3"))


def head(session):
    return {"x-litellm-session-id": session, "Content-Type": "application/json", "Authorization": f"Bearer {KEY}"}


class Replica(Server):
    def __init__(self, port):
        super().__init__("--context", "2048", "--port", str(port))


def stay(front, servers):
    """Each conversation of three turns on one server, and both have some."""
    homes, moved, cached = [0, 0], 0, 0
    for session in range(12):
        messages = [{"role": "user", "content": f"Session {session}: " + "the fox and the crow. " * 20}]
        before = [s.metric("vllm:prompt_tokens_total") for s in servers]
        for turn in range(3):
            got = front.post("/v1/chat/completions", {"model": "k3", "messages": messages, "max_tokens": 8,
                                                      "temperature": 0},
                             headers=head(f"s{session}"))
            if turn:
                cached += got["usage"]["prompt_tokens_details"]["cached_tokens"] > 100
            m = got["choices"][0]["message"]
            messages += [{"role": "assistant", "content": m["content"] or "",
                          "reasoning_content": m.get("reasoning_content", "")},
                         {"role": "user", "content": "And then?"}]
        grew = [i for i in (0, 1) if servers[i].metric("vllm:prompt_tokens_total") > before[i]]
        moved += len(grew) != 1
        homes[grew[0]] += 1
    print(f"12 conversations of 3 turns: {moved} moved, {homes[0]} and {homes[1]} on each server, "
          f"{cached} of 24 later turns reused over 100 tokens", flush=True)
    return moved == 0 and min(homes) > 0 and cached == 24


def rolling(front, servers, ports):
    done, failed, stop, lock = [0, 0], [], threading.Event(), threading.Lock()

    def ask(n):
        i = 0
        while not stop.is_set():
            i += 1
            stream = i % 2 == 0
            body = {"model": "k3", "messages": [{"role": "user", "content": f"Tell me about {n} and {i}."}],
                    "max_tokens": 40, "stream": stream, "ignore_eos": True}
            try:
                status, data, _ = front.ask("POST", "/v1/chat/completions", body,
                                            head(f"{n}-{i % 7}"))
                if stream:
                    good = status == 200 and data.rstrip().endswith(b"data: [DONE]") and b'"error"' not in data
                else:
                    good = status == 200 and json.loads(data)["usage"]["completion_tokens"] == 40
            except Exception as e:  # noqa: BLE001: whatever it is, the request is lost
                good, status, data = False, repr(e), b""
            with lock:
                done[stream] += 1
                if not good:
                    failed.append((status, stream, data[-300:]))

    threads = [threading.Thread(target=ask, args=(n,)) for n in range(6)]
    for t in threads:
        t.start()
    time.sleep(SECONDS)
    for _ in range(3):
        for k in (0, 1):
            assert servers[k].close() == 0
            servers[k] = Replica(ports[k])
            time.sleep(SECONDS)
    stop.set()
    for t in threads:
        t.join()
    print(f"{done[0]} whole and {done[1]} streamed requests over six restarts: {len(failed)} lost", flush=True)
    for f in failed[:5]:
        print("  ", f)
    return not failed and min(done) > 20


def main():
    ports, front_port = [free_port(), free_port()], free_port()
    servers = [Replica(p) for p in ports]
    conf = (SOURCE / "ops" / "litellm.yaml").read_text()
    conf = conf.replace("127.0.0.1:8001", f"127.0.0.1:{ports[0]}").replace("127.0.0.1:8002", f"127.0.0.1:{ports[1]}")
    with tempfile.TemporaryDirectory() as tmp:
        path = pathlib.Path(tmp) / "litellm.yaml"
        path.write_text(conf)
        log = open(os.environ.get("TRI_PROXY_LOG", f"{tmp}/log"), "wb")
        env = dict(os.environ, LITELLM_MASTER_KEY=KEY, LITELLM_TELEMETRY="False", LITELLM_LOCAL_MODEL_COST_MAP="True")
        proxy = subprocess.Popen([os.environ.get("LITELLM", "litellm"), "--config", str(path), "--host", "127.0.0.1",
                                  "--port", str(front_port)], stdout=log, stderr=log, env=env)
        front = Server.__new__(Server)
        front.port = front_port

        def up():
            try:
                return front.ask("GET", "/health/liveliness")[0] == 200
            except OSError:
                return False
        try:
            assert wait_for(lambda: proxy.poll() is not None or up(), 180) and proxy.poll() is None, "no proxy"
            good = stay(front, servers)
            good &= rolling(front, servers, ports)
        finally:
            proxy.terminate()
            proxy.wait(30)
            log.close()
            for s in servers:
                s.close()
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
