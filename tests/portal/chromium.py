"""A real Chromium for tests: Debian's, without a window, driven over its own debugging protocol.

A tab remembers what a page must not do: open a dialog (a script of a message ran), break the policy, or ask another host.
"""

import base64
import itertools
import json
import shutil
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

import websocket

PROGRAMS = ("chromium", "chromium-browser", "google-chrome")
WAIT_S = 30.0


def find_chromium() -> str | None:
    return next((found for name in PROGRAMS if (found := shutil.which(name))), None)


class Chromium:
    def __init__(self, folder: Path) -> None:
        program = find_chromium()
        assert program is not None, "tests that need it are skipped"
        options = [
            *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"),
            *("--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"),
            *("--disable-extensions", "--mute-audio", "--remote-debugging-port=0", f"--user-data-dir={folder}"),
        ]
        self._process = subprocess.Popen(
            [program, *options, "about:blank"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        port = folder / "DevToolsActivePort"
        until = time.monotonic() + WAIT_S
        while not (port.exists() and port.read_text().count("\n")):
            assert time.monotonic() < until, "Chromium did not start"
            time.sleep(0.05)
        self._endpoint = f"http://127.0.0.1:{port.read_text().splitlines()[0]}"

    def tab(self, width: int = 1280, height: int = 900) -> "Tab":
        with urlopen(Request(f"{self._endpoint}/json/new?about:blank", method="PUT"), timeout=WAIT_S) as answer:
            return Tab(json.load(answer)["webSocketDebuggerUrl"], width, height)

    def __enter__(self) -> "Chromium":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(WAIT_S)


class Tab:
    def __init__(self, address: str, width: int, height: int) -> None:
        self._socket = websocket.create_connection(address, timeout=WAIT_S, suppress_origin=True)
        self._ids = itertools.count(1)
        self._events: list[dict[str, Any]] = []
        self.dialogs: list[str] = []
        self.hosts: set[str] = set()
        self.complaints: list[str] = []
        self.accepts_dialogs = False
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(f"{domain}.enable")
        self.resize(width, height)

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **metrics)

    def dark(self, is_dark: bool) -> None:
        value = "dark" if is_dark else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        self._socket.send(json.dumps({"id": number, "method": method, "params": params}))
        while True:
            said = self._receive()
            if said.get("id") == number:
                assert "error" not in said, said
                result: dict[str, Any] = said["result"]
                return result

    def _receive(self) -> dict[str, Any]:
        said: dict[str, Any] = json.loads(self._socket.recv())
        method, params = said.get("method"), said.get("params", {})
        if method == "Page.javascriptDialogOpening":
            self.dialogs.append(params["message"])
            answer = {"accept": self.accepts_dialogs}
            self._socket.send(json.dumps({"id": 0, "method": "Page.handleJavaScriptDialog", "params": answer}))
        elif method == "Network.requestWillBeSent":
            parts = urlsplit(params["request"]["url"])
            if parts.scheme in ("http", "https"):
                self.hosts.add(parts.netloc)
        elif method == "Log.entryAdded" and params["entry"]["source"] == "security":
            self.complaints.append(params["entry"]["text"])
        elif method == "Runtime.exceptionThrown":
            self.complaints.append(str(params["exceptionDetails"].get("exception", {}).get("description", params)))
        return said

    def open(self, address: str) -> None:
        """Returns when the page is there; live parts may follow."""
        self.call("Page.navigate", url=address)
        self.wait("document.readyState === 'complete' && location.href !== 'about:blank'")

    def run(self, script: str) -> Any:
        """The value of an expression on the page; a promise is waited for."""
        said = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in said, said["exceptionDetails"]
        return said["result"].get("value")

    def wait(self, condition: str) -> None:
        until = time.monotonic() + WAIT_S
        while time.monotonic() < until:
            try:
                if self.run(f"Boolean({condition})"):
                    return
            except AssertionError:
                pass  # the page is being replaced
            time.sleep(0.03)
        raise AssertionError(f"never true: {condition}; the page says: {self.text()[:2000]}")

    def text(self) -> str:
        return str(self.run("document.body.innerText"))

    def fill(self, selector: str, value: str) -> None:
        """As someone types it."""
        found = f"document.querySelector({json.dumps(selector)})"
        assert self.run(f"{found} !== null"), selector
        self.run(
            f"(() => {{ const it = {found}; it.focus(); it.value = {json.dumps(value)}; "
            "it.dispatchEvent(new Event('input', {bubbles: true})); })()"
        )

    def click(self, selector: str) -> None:
        """By where it is on the screen, so what covers it would be hit instead."""
        found = f"document.querySelector({json.dumps(selector)})"
        assert self.run(f"{found} !== null"), f"{selector} is not on: {self.text()[:1500]}"
        place = self.run(
            f"(() => {{ {found}.scrollIntoView({{block: 'center'}}); const r = {found}.getBoundingClientRect(); "
            "return [r.x + r.width / 2, r.y + r.height / 2]; })()"
        )
        for kind in ("mousePressed", "mouseReleased"):
            self.call("Input.dispatchMouseEvent", type=kind, x=place[0], y=place[1], button="left", clickCount=1)

    def follow(self, selector: str) -> None:
        """Click on what leads to another page, and wait for that page."""
        self.run("window.leaving = true")
        self.click(selector)
        self.wait("!window.leaving && document.readyState === 'complete' && document.body")

    def key(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, text=key if len(key) == 1 and kind == "keyDown" else ""
            )

    def picture(self, file: Path, *, is_whole: bool = False) -> None:
        shot = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        file.write_bytes(base64.b64decode(shot["data"]))

    def close(self) -> None:
        self._socket.close()
