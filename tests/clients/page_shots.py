#!/usr/bin/env python3
"""The page of `trireme serve` in headless Chromium: chats, calls a tool, stops, and saves screenshots
to look at. Not part of `make test`: it needs chromium and `pip install websocket-client`.
Run: TRIREME=build/release/trireme python3 tests/clients/page_shots.py FOLDER"""
import atexit
import base64
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "cli"))
from serving import Server  # noqa: E402

import websocket  # noqa: E402

TOOLS = json.dumps([{"type": "function", "function": {"name": "get_weather", "description": "Weather",
                    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}}])


class Page:
    def __init__(self, url, width=1200, height=850, dark=False):
        self.tmp = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        self.browser = subprocess.Popen(
            ["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             "--remote-debugging-port=0", "--remote-allow-origins=*",
             f"--user-data-dir={self.tmp.name}", "about:blank"], stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL)
        atexit.register(self.kill)
        port_file = pathlib.Path(self.tmp.name) / "DevToolsActivePort"
        for _ in range(300):
            if port_file.exists() and port_file.read_text().strip():
                break
            time.sleep(0.1)
        port = port_file.read_text().split()[0]
        for _ in range(100):
            targets = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json"))
            pages = [t for t in targets if t["type"] == "page"]
            if pages:
                break
            time.sleep(0.1)
        self.ws = websocket.create_connection(pages[0]["webSocketDebuggerUrl"], timeout=60)
        self.n, self.faults = 0, []
        self.do("Runtime.enable")
        self.do("Log.enable")
        self.do("Emulation.setDeviceMetricsOverride", width=width, height=height,
                deviceScaleFactor=1, mobile=False)
        if dark:
            self.do("Emulation.setEmulatedMedia",
                    features=[{"name": "prefers-color-scheme", "value": "dark"}])
        self.do("Page.navigate", url=url)
        self.wait("document.readyState === 'complete' && document.getElementById('model').textContent === 'nano' && "
                  "(document.getElementById('panel').hidden || document.getElementById('numbers').children.length > 0)")

    def do(self, method, **params):
        self.n += 1
        self.ws.send(json.dumps({"id": self.n, "method": method, "params": params}))
        while True:
            got = json.loads(self.ws.recv())
            if got.get("method") == "Runtime.exceptionThrown" or \
                    got.get("params", {}).get("entry", {}).get("level") == "error":
                self.faults.append(json.dumps(got["params"])[:400])
            if got.get("id") == self.n:
                return got.get("result", got)

    def js(self, text):
        return self.do("Runtime.evaluate", expression=text)["result"].get("value")

    def wait(self, text, seconds=30):
        end = time.time() + seconds
        while time.time() < end:
            if self.js(text):
                return
            time.sleep(0.1)
        raise AssertionError(f"never true: {text}: {self.js('document.body.innerText')} {self.faults}")

    def say(self, text):
        self.js(f"document.getElementById('say').value = {json.dumps(text)};"
                "document.getElementById('form').requestSubmit()")

    def idle(self):
        self.wait("document.getElementById('stop').hidden")

    def key(self, name, text="", code=0):
        """A key of the keyboard, to whatever has the focus."""
        press = {"key": name, "windowsVirtualKeyCode": code, "text": text}
        self.do("Input.dispatchKeyEvent", type="keyDown", **press)
        self.do("Input.dispatchKeyEvent", type="keyUp", **press)

    def focus(self):
        return self.js("document.activeElement.id || document.activeElement.textContent.trim().slice(0, 20)")

    def shot(self, path):
        data = self.do("Page.captureScreenshot", format="png")["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def kill(self):
        self.browser.kill()
        self.browser.wait()

    def close(self):
        self.kill()
        assert not self.faults, self.faults


def by_keyboard(page):
    """No mouse: what Tab reaches, in order; write, send, stop, ask again."""
    page.js("document.activeElement.blur()")
    reached = []
    for _ in range(12):
        page.key("Tab", code=9)
        reached.append(page.focus())
    for name in ("To the message field", "clear", "toggle", "Settings", "log", "say", "send"):
        assert name in reached, (name, reached)
    page.js("document.getElementById('say').focus()")
    page.do("Input.insertText", text="Tell me a long story about a ship.")
    page.key("Enter", "\r", 13)
    page.wait("document.querySelector('.turn.assistant') !== null")
    page.wait("!document.getElementById('stop').hidden")
    page.key("Escape", code=27)
    page.idle()
    assert page.focus() == "say", page.focus()
    assert "Stopped" in page.js("document.getElementById('log').textContent")
    page.js("document.querySelector('.tools button').focus()")
    page.key("Enter", "\r", 13)
    page.wait("document.querySelectorAll('.turn.assistant').length == 1 && "
              "!document.getElementById('log').textContent.includes('Stopped')")
    page.key("Escape", code=27)
    page.idle()
    assert page.js("document.querySelectorAll('.turn').length") == 2
    page.js("document.getElementById('clear').click()")


def clear_meanwhile(page, server):
    """A new chat in the middle of an answer: it ends, and nothing of it is in the next request."""
    page.say("Tell me a long story about a ship.")
    page.wait("document.querySelector('.turn.assistant > .text')?.textContent.length > 20")
    page.js("document.getElementById('clear').click()")
    page.idle()
    assert page.js("messages.length") == 0 and page.js("document.querySelectorAll('.turn').length") == 0
    assert page.js("document.getElementById('hint').hidden") is False
    page.say("Hi")
    page.idle()
    page.wait("document.querySelectorAll('.turn').length == 2")
    assert page.js("messages.length") == 2 and page.js("messages[0].content") == "Hi"
    for _ in range(100):
        if server.metric("vllm:num_requests_running") == 0:
            break
        time.sleep(0.1)
    assert server.metric("vllm:num_requests_running") == 0
    page.js("document.getElementById('clear').click()")


def main():
    out = sys.argv[1] if len(sys.argv) > 1 else "."
    os.makedirs(out, exist_ok=True)
    server = Server("--context", "4096")
    atexit.register(server.process.kill)
    url = f"http://127.0.0.1:{server.port}/"
    page = Page(url)
    page.shot(f"{out}/idle.png")
    page.js("document.getElementById('temperature').value = 0")
    page.do("Network.enable")
    slow = {"offline": False, "latency": 0, "uploadThroughput": -1}
    page.do("Network.emulateNetworkConditions", downloadThroughput=9000, **slow)
    page.say("Tell me a story about a fox.")
    page.wait("document.querySelector('.turn.assistant > .text')?.textContent.length > 60")
    assert not page.js("document.getElementById('stop').hidden")
    page.shot(f"{out}/streaming.png")
    page.js("document.querySelector('.think').open = true")
    page.shot(f"{out}/thinking.png")
    page.do("Network.emulateNetworkConditions", downloadThroughput=-1, **slow)
    page.idle()
    assert "tokens" in page.js("document.querySelector('.tools').textContent")
    page.js("document.getElementById('tools').value = " + json.dumps(TOOLS))
    page.js("document.getElementById('clear').click()")
    page.say("What is the weather in Paris?")
    page.idle()
    page.wait("document.querySelector('.call form input') !== null")
    page.shot(f"{out}/tool_call.png")
    page.js("document.querySelector('.call form input').value = 'sunny, 21 C';"
            "document.querySelector('.call form').requestSubmit()")
    page.wait("document.querySelectorAll('.turn').length >= 4")
    page.idle()
    page.shot(f"{out}/tool_result.png")
    threads = [threading.Thread(target=server.chat, args=(f"Tell me a story about {i} dogs.",),
                                kwargs={"max_tokens": 3500, "ignore_eos": True}) for i in range(9)]
    for t in threads:
        t.start()
    time.sleep(4)
    page.shot(f"{out}/load.png")
    page.js("document.getElementById('clear').click()")
    page.say("Tell me a long story about a ship.")
    page.wait("!document.getElementById('stop').hidden")
    page.js("document.getElementById('stop').click()")
    page.idle()
    assert "Stopped" in page.js("document.getElementById('log').textContent")
    for t in threads:
        t.join()
    page.do("Network.emulateNetworkConditions", downloadThroughput=9000, **slow)
    page.js("document.getElementById('clear').click()")
    clear_meanwhile(page, server)
    by_keyboard(page)
    page.close()
    page = Page(url, dark=True)
    page.say("Tell me a story about an owl.")
    page.idle()
    page.js("document.getElementById('settings').open = true")
    page.shot(f"{out}/dark_settings.png")
    page.close()
    page = Page(url, 420, 800, dark=True)
    page.say("Hi")
    page.idle()
    page.shot(f"{out}/narrow_dark.png")
    page.js("document.getElementById('settings').open = true")
    page.shot(f"{out}/narrow_settings.png")
    page.js("document.getElementById('settings').open = false;"
            "document.getElementById('toggle').click()")
    page.wait("document.getElementById('numbers').children.length > 0")
    page.shot(f"{out}/narrow_panel.png")
    page.js("document.getElementById('toggle').click()")
    # a refused request says why and leaves no empty turn in the conversation
    page.js("document.getElementById('temperature').value = 9")
    page.say("And now?")
    page.idle()
    assert "temperature" in page.js("document.querySelector('.bad').textContent")
    page.faults = [f for f in page.faults if "400 (Bad Request)" not in f]  # as it should be
    page.js("document.getElementById('temperature').value = 0")
    page.js("[...document.querySelectorAll('.tools button')].pop().click()")
    page.idle()
    assert page.js("messages.filter((m) => m.role === 'assistant' && !m.content).length") == 0
    # by keyboard alone: the skip link, then every control has a name
    names = page.js("[...document.querySelectorAll('button, input, select, textarea')].filter((e) =>"
                    " !e.textContent.trim() && !e.closest('label') && !e.getAttribute('aria-label') &&"
                    " !document.querySelector(`label[for='${e.id}']`)).length")
    assert names == 0, names
    page.close()
    assert server.close() == 0
    print("page works; screenshots in", out)


if __name__ == "__main__":
    main()
