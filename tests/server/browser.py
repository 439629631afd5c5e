"""A headless Chromium over the WebDriver protocol, with nothing but the standard library."""
import base64
import http.client
import json
import os
import re
import shutil
import subprocess
import tempfile
import time

from serving import PATIENCE

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Right": "\ue014", "Left": "\ue012", "Home": "\ue011", "Tab": "\ue004"}


def program():
    """Paths of browser and driver, or None."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver = shutil.which("chromedriver")
    return (browser, driver) if browser and driver else None


class Browser:
    """One window, for the length of a `with`."""

    def __init__(self):
        browser, driver = program()
        self.profile = tempfile.TemporaryDirectory()
        self.driver = subprocess.Popen([driver, "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                       env={**os.environ, "HOME": self.profile.name})
        self.session = None
        for line in self.driver.stdout:
            found = re.search(rb"successfully on port (\d+)", line)
            if found:
                self.port = int(found.group(1))
                break
        arguments = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars",
                     "--window-size=1280,860", "--user-data-dir=" + self.profile.name]
        try:
            value = self.send("POST", "/session", {"capabilities": {"alwaysMatch": {
                "browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                "goog:chromeOptions": {"binary": browser, "args": arguments}}}})
        except Exception:
            self.__exit__()
            raise
        self.session = value["sessionId"]

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        if self.session:
            try:
                self.send("DELETE", f"/session/{self.session}")
            except OSError:
                pass
        self.driver.terminate()
        self.driver.wait()
        self.profile.cleanup()

    def send(self, method, path, body=None):
        c = http.client.HTTPConnection("127.0.0.1", self.port, timeout=PATIENCE)
        c.request(method, path, json.dumps(body) if body is not None else None, {"Content-Type": "application/json"})
        r = c.getresponse()
        value = json.loads(r.read())["value"]
        c.close()
        if r.status != 200:
            raise RuntimeError(f"{path}: {value.get('error')}: {value.get('message', '')[:300]}")
        return value

    def do(self, method, path, body=None):
        return self.send(method, f"/session/{self.session}{path}", body)

    # ---- the page ----

    def open(self, url):
        self.do("POST", "/url", {"url": url})

    def js(self, text, *args):
        return self.do("POST", "/execute/sync", {"script": text, "args": list(args)})

    def wait(self, text, what=""):
        """Until the expression is true; its value."""
        until = time.time() + PATIENCE
        while True:
            value = self.js("return " + text)
            if value:
                return value
            if time.time() > until:
                raise RuntimeError(f"waited {PATIENCE} s for {what or text}")
            time.sleep(0.05)

    def find(self, selector):
        return self.do("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def click(self, selector):
        self.do("POST", f"/element/{self.find(selector)}/click", {})

    def type(self, selector, text):
        self.do("POST", f"/element/{self.find(selector)}/value", {"text": text})

    def press(self, selector, key):
        self.type(selector, KEYS[key])

    # ---- the window ----

    def cdp(self, command, **params):
        return self.do("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def size(self, width, height, mobile=False):
        self.cdp("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile)

    def scheme(self, name):
        self.cdp("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def messages(self):
        """What the console said since the last time."""
        return self.do("POST", "/se/log", {"type": "browser"})

    def picture(self, path):
        with open(path, "wb") as f:
            f.write(base64.b64decode(self.do("GET", "/screenshot")))
