"""A headless chromium, driven through a pipe: pages opened, keys pressed, pictures taken."""

import base64
import itertools
import json
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """One tab. `said`: what its console, its exceptions and its refusals said."""

    def __init__(self, out, back):
        self._out, self._back, self._numbers = out, back, itertools.count(1)
        self._events, self.said, self.requests = [], [], []
        target = self.call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attached = self.call("Target.attachToTarget", {"targetId": target, "flatten": True})
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    _session = None

    def call(self, method, parameters=None):
        """One command of the DevTools protocol, and its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters or {}}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            found = self._read()
            if found.get("id") == number:
                assert "error" not in found, found
                return found["result"]

    def _read(self):
        raw = b""
        while not raw.endswith(b"\0"):
            byte = self._back.read(1) if not self._back.peek() else None
            if byte == b"":
                raise EOFError("the browser has gone")
            waiting = self._back.peek()
            end = waiting.find(b"\0")
            raw += self._back.read(len(waiting) if end < 0 else end + 1)
        found = json.loads(raw[:-1])
        self._note(found)
        return found

    def _note(self, event):
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.said.append(str([a.get("value") for a in told["args"]]))
        elif method == "Runtime.exceptionThrown":
            self.said.append(str(told["exceptionDetails"]))
        elif method == "Log.entryAdded":
            self.said.append(told["entry"]["text"])
        elif method == "Page.javascriptDialogOpening":
            self.said.append(f"dialog: {told['message']}")
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        if method:
            self._events.append(method)

    def open(self, file, *, width=1280, height=900, dark=False, scripts=True):
        """Load a file and wait until it is there; what was said before is forgotten."""
        self.said.clear()
        self.requests.clear()
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})
        self.call("Emulation.setScriptExecutionDisabled", {"value": not scripts})
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.call("Emulation.setDeviceMetricsOverride", size)
        self._events.clear()
        self.call("Page.navigate", {"url": Path(file).resolve().as_uri()})
        self.wait(anew=False)

    def wait(self, *, anew=True):
        """Until the page has loaded; `anew`: once more."""
        if anew:
            self._events.clear()
        while "Page.loadEventFired" not in self._events:
            self._read()

    def ask(self, expression):
        """The value of an expression in the page."""
        wanted = {"expression": expression, "returnByValue": True}
        found = self.call("Runtime.evaluate", wanted)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def press(self, key):
        """A key, as a person would press it."""
        for kind in ("rawKeyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", {"type": kind, "key": key, "code": key})

    def picture(self, file, *, whole=False):
        """What is seen, or the whole page, as PNG."""
        clip = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            clip = {"clip": {**size, "height": min(size["height"], 6000), "scale": 1},
                    "captureBeyondViewport": True}  # fmt: skip
        shot = self.call("Page.captureScreenshot", {"format": "png", **clip})
        Path(file).write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser():
    """A browser with a profile of its own, gone afterwards."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        there_read, here_write = os.pipe()
        here_read, there_write = os.pipe()

        def descriptors():  # DevTools reads 3 and writes 4
            one, other = os.dup(there_read), os.dup(there_write)
            os.dup2(one, 3)
            os.dup2(other, 4)

        process = subprocess.Popen(
            [CHROMIUM, "--headless", "--no-sandbox", "--remote-debugging-pipe", "--disable-gpu",
             "--disable-dev-shm-usage", f"--user-data-dir={profile}", "--hide-scrollbars"],
            preexec_fn=descriptors, close_fds=False,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(there_read)
        os.close(there_write)
        with open(here_write, "wb") as out, open(here_read, "rb") as back:
            try:
                driver = Browser(out, back)
                yield driver
                driver._session = None
                driver.call("Browser.close")
            finally:
                process.kill()
                process.wait()
