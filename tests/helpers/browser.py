"""Headless Chromium, driven by chromedriver's HTTP interface (W3C WebDriver)."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]


def is_installed() -> bool:
    """Tell whether chromedriver and Chromium are installed."""
    return bool(shutil.which("chromedriver") and shutil.which("chromium"))


class Browser:
    """A browser session; `close` ends the driver and the browser."""

    def __init__(self) -> None:
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, text=True)
        assert self.driver.stdout is not None
        started = next(m for line in self.driver.stdout if (m := re.search(r"successfully on port (\d+)", line)))
        self.base = f"http://127.0.0.1:{started[1]}"
        options = {
            "goog:chromeOptions": {"args": FLAGS, "binary": shutil.which("chromium")},
            "goog:loggingPrefs": {"browser": "ALL"},
        }
        session = self.send("/session", {"capabilities": {"alwaysMatch": options}})
        self.base += f"/session/{session['sessionId']}"

    def send(self, path: str, body: dict[str, Any] | None = None, method: str = "POST") -> Any:
        data = None if method in ("GET", "DELETE") else json.dumps(body or {}).encode()
        request = urllib.request.Request(
            self.base + path, data, {"Content-Type": "application/json"}, method=method
        )
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=60) as answer:
            return json.load(answer)["value"]

    def devtools(self, command: str, **parameters: Any) -> Any:
        return self.send("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def open(self, file: Path, width: int = 1280, height: int = 900, scheme: str = "light") -> None:
        self.devtools("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1,
                      mobile=width < 600)  # fmt: skip
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.send("/url", {"url": file.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        return self.send("/execute/sync", {"script": script, "args": list(arguments)})

    def overlapping_texts(self) -> list[str]:
        """Return the pairs of texts of a picture of which one lies over the other."""
        pairs: list[str] = self.run("""const texts = [...document.querySelectorAll("text")].map(
            t => [t.textContent, t.getBoundingClientRect()]);
          return texts.flatMap(([a, p], i) => texts.slice(i + 1).filter(([b, q]) =>
            Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1
            && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 4).map(([b, q]) => a + " / " + b))""")
        return pairs

    def console(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.send("/se/log", {"type": "browser"})
        return messages

    def move(self, x: float, y: float) -> None:
        """Move the mouse to a point of the window."""
        self.devtools("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def close(self) -> None:
        try:
            self.send("", method="DELETE")
        finally:
            self.driver.terminate()
            self.driver.wait(10)
