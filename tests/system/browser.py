"""A headless Chromium, driven over a pipe by its DevTools protocol."""

import base64
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_S = 60  # with whatever is waited for


def find():
    """The program, or None."""
    return next((path for path in map(shutil.which, NAMES) if path), None)


class Browser:
    """One page. `errors` is what the page complained of: exceptions, refused loads, policies."""

    def __init__(self, program, width=1280, height=900):
        self.folder = tempfile.TemporaryDirectory(prefix="troop-browser-")
        to_browser, self.out = os.pipe()
        self.into, from_browser = os.pipe()

        def descriptors():  # 3: what it reads, 4: what it writes
            first, second = os.dup(to_browser), os.dup(from_browser)
            os.dup2(first, 3)
            os.dup2(second, 4)

        self.process = subprocess.Popen(
            [program, "--headless=new", "--remote-debugging-pipe", "--no-sandbox",
             "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--mute-audio",
             "--disable-background-networking", "--disable-component-update",
             f"--user-data-dir={self.folder.name}", f"--window-size={width},{height}",
             "about:blank"],
            preexec_fn=descriptors, close_fds=False, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL, start_new_session=True)
        os.close(to_browser)
        os.close(from_browser)
        self.buffer = b""
        self.number = 0
        self.session = None
        self.errors = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.call("Target.attachToTarget", targetId=target,
                                 flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(domain + ".enable")

    def close(self):
        try:
            os.killpg(self.process.pid, 9)
        except ProcessLookupError:
            pass
        self.process.wait()
        os.close(self.out)
        os.close(self.into)
        try:
            self.folder.cleanup()
        except OSError:
            pass  # a child of it may write its last

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()

    def _read(self, deadline):
        while b"\0" not in self.buffer:
            left = deadline - time.monotonic()
            if left <= 0 or not select.select([self.into], [], [], left)[0]:
                raise TimeoutError("the browser says nothing")
            chunk = os.read(self.into, 1 << 16)
            if not chunk:
                raise RuntimeError("the browser has ended")
            self.buffer += chunk
        message, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(message)

    def _note(self, message):
        method, params = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = params["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(f"{params['entry']['text']} {params['entry'].get('url', '')}")
        elif method == "Runtime.consoleAPICalled" and params["type"] == "error":
            self.errors.append(str([a.get("value", a.get("description")) for a in params["args"]]))

    def call(self, method, **params):
        self.number += 1
        message = {"id": self.number, "method": method, "params": params}
        if self.session:
            message["sessionId"] = self.session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data):]
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._read(deadline)
            if answer.get("id") != self.number:
                self._note(answer)
                continue
            if "error" in answer:
                raise RuntimeError(f"{method}: {answer['error']['message']}")
            return answer["result"]

    def open(self, url):
        self.call("Page.navigate", url="about:blank")  # else a new fragment loads nothing
        self.call("Page.navigate", url=url)

    def eval(self, code):
        """The value of a JavaScript expression, a promise's once it has one."""
        answer = self.call("Runtime.evaluate", expression=code, returnByValue=True,
                           awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{code}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, code, what=None):
        """Until the expression is true; its value."""
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                value = self.eval(code)
            except RuntimeError:
                value = None  # what it asks for is not there yet, or the page has just changed
            if value:
                return value
            if time.monotonic() > deadline:
                raise TimeoutError(f"never: {what or code}; the page says: " +
                                   str(self.eval("document.body.innerText"))[:2000])
            time.sleep(0.05)

    def size(self, width, height):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height,
                  deviceScaleFactor=1, mobile=False)

    def scheme(self, name):
        self.call("Emulation.setEmulatedMedia",
                  features=[{"name": "prefers-color-scheme", "value": name}])

    def key(self, name):
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=name, code=name)

    def screenshot(self, path):
        data = self.call("Page.captureScreenshot", format="png")["data"]
        with open(path, "wb") as file:
            file.write(base64.b64decode(data))
