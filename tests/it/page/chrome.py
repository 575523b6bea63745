"""Drives a headless Chromium over a pipe with its DevTools protocol: python's standard library alone.

Owns the process and the protocol. Every console message, error and network request of a page is kept, for the tests to
judge. Invariant: a call that gets no answer in time is an error, and the browser ends with the block that began it.
"""

import base64
import json
import os
import select
import subprocess
import tempfile
import time
from pathlib import Path

CALL_S = 60


class Chrome:
    """One browser; use it in a `with` block."""

    def __init__(self, executable, more_flags=()):
        self.profile = tempfile.TemporaryDirectory(prefix="pdreplay-chrome-")
        from_us, to_browser = os.pipe()
        from_browser, to_us = os.pipe()
        flags = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--hide-scrollbars",
                 "--disable-background-networking", "--disable-component-update", "--disable-sync", "--font-render-hinting=none",
                 "--force-device-scale-factor=1", "--remote-debugging-pipe", f"--user-data-dir={self.profile.name}", *more_flags, "about:blank"]

        def wire():
            # The browser reads file descriptor 3 and writes 4. Copied high first, so that neither is overwritten.
            high_in, high_out = os.dup(from_us), os.dup(to_us)
            os.dup2(high_in, 3)
            os.dup2(high_out, 4)

        self.process = subprocess.Popen([executable, *flags], pass_fds=[3, 4], preexec_fn=wire, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        os.close(from_us)
        os.close(to_us)
        self.to, self.answers = to_browser, from_browser
        self.buffer, self.number, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        try:
            self.call("Browser.close")
        except (RuntimeError, OSError):
            self.process.kill()
        self.process.wait(timeout=CALL_S)
        self.profile.cleanup()

    def call(self, method, params=None, session=None):
        """Sends a command and gives its result; events that come meanwhile are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": params or {}}
        if session:
            message["sessionId"] = session
        os.write(self.to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + CALL_S
        while True:
            answer = self.receive(until)
            if answer is None:
                raise RuntimeError(f"no answer to {method} in {CALL_S} s")
            if answer.get("id") == self.number:
                if "error" in answer:
                    raise RuntimeError(f"{method}: {answer['error']}")
                return answer["result"]
            self.events.append(answer)

    def receive(self, until):
        """The next message; None when none came in time."""
        while b"\0" not in self.buffer:
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.answers], [], [], left)[0]:
                return None
            read = os.read(self.answers, 1 << 20)
            if not read:
                raise RuntimeError("the browser has gone")
            self.buffer += read
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def open(self, path, width=1280, height=900, dark=False):
        """Opens a file in a tab of its own."""
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        session = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})["sessionId"]
        return Tab(self, target, session, Path(path).resolve().as_uri(), width, height, dark)


class Tab:
    """One page."""

    def __init__(self, chrome, target, session, url, width, height, dark):
        self.chrome, self.target, self.session, self.url = chrome, target, session, url
        for domain in ["Page", "Runtime", "Log", "Network"]:
            self.call(f"{domain}.enable")
        self.size(width, height)
        self.media(dark=dark)
        self.call("Page.navigate", url=url)
        self.wait(lambda: any(e["method"] == "Page.loadEventFired" for e in self.events()), "the page to load")
        self.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def call(self, method, **params):
        return self.chrome.call(method, params, self.session)


    def close(self):
        self.chrome.call("Target.closeTarget", {"targetId": self.target})

    def events(self):
        return [e for e in self.chrome.events if e.get("sessionId") == self.session]

    def wait(self, done, what):
        until = time.monotonic() + CALL_S
        while not done():
            message = self.chrome.receive(until)
            if message is None:
                raise RuntimeError(f"waited {CALL_S} s for {what}")
            self.chrome.events.append(message)

    def evaluate(self, expression):
        """The value of an expression; promises are awaited."""
        result = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in result:
            raise RuntimeError(result["exceptionDetails"].get("exception", {}).get("description", result["exceptionDetails"]["text"]))
        return result["result"].get("value")

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def media(self, dark=False, paper=False):
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media="print" if paper else "screen", features=[scheme])

    def settle(self):
        """Waits for a redrawing after a change of size or media."""
        self.evaluate("new Promise((done) => setTimeout(() => requestAnimationFrame(() => requestAnimationFrame(done)), 150))")

    def key(self, key, text=""):
        for kind in ["keyDown", "keyUp"]:
            extra = {"text": text} if text and kind == "keyDown" else {}
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key,
                      windowsVirtualKeyCode={"Enter": 13, "Tab": 9, "ArrowRight": 39}.get(key, 0), **extra)

    def screenshot(self, path=None, clip=None, whole=False):
        """A PNG of the window, of a box, or of the whole page."""
        params = {"format": "png", "captureBeyondViewport": bool(whole or clip)}
        if whole:
            box = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"x": 0, "y": 0, "width": box["width"], "height": box["height"]}
        if clip:
            params["clip"] = {**clip, "scale": clip.get("scale", 1)}
        image = base64.b64decode(self.call("Page.captureScreenshot", **params)["data"])
        if path:
            Path(path).write_bytes(image)
        return image

    def complaints(self):
        """Console messages and errors; and requests for anything but the page itself."""
        found = []
        for event in self.events():
            method, params = event["method"], event["params"]
            if method == "Runtime.consoleAPICalled" and params["type"] in ("error", "warning", "assert"):
                found.append(f"console {params['type']}: {[a.get('value', a.get('description')) for a in params['args']]}")
            elif method == "Runtime.exceptionThrown":
                detail = params["exceptionDetails"]
                found.append(f"exception: {detail.get('exception', {}).get('description', detail['text'])}")
            elif method == "Log.entryAdded" and params["entry"]["level"] in ("error", "warning"):
                found.append(f"log: {params['entry']['text']}")
            elif method == "Network.requestWillBeSent":
                url = params["request"]["url"]
                if url != self.url and not url.startswith("data:"):
                    found.append(f"request: {url}")
        return found
