"""Chromium, headless, as a person's browser: of any width, light or dark."""

from __future__ import annotations

import shutil
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

_MISSING = (
    "chromium and chromedriver are not installed: apt-get install chromium chromium-driver, "
    "or your system's packages of these names"
)
_FLAGS = (
    "headless", "no-sandbox", "disable-gpu", "disable-dev-shm-usage", "disable-quic",
    "no-first-run", "disable-background-networking", "disable-component-update", "disable-sync",
    "disable-default-apps", "hide-scrollbars", "force-color-profile=srgb",
)  # fmt: skip
_SCRIPTS = (Path(__file__).parent / "seen.js").read_text("utf-8")


class Browser:
    """A browser that shows one page at a time, and reports its problems."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self._driver = driver

    def open(self, url: str, *, width: int, dark: bool, scale: int = 1) -> None:
        """Go to a page: as wide as a screen of `width` pixels."""
        self.show(width=width, dark=dark, scale=scale)
        self._driver.get(url)

    def show(self, *, width: int, dark: bool, scale: int = 1) -> None:
        """Turn the screen into a different one, with the page on it."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._do("Emulation.setEmulatedMedia", features=[scheme])
        self._do(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=scale, mobile=False,
        )  # fmt: skip

    def _do(self, command: str, **arguments: Any) -> Any:
        return self._driver.execute_cdp_cmd(command, arguments)

    def asked(self, script: str) -> Any:
        """The result of a script, which may use the functions of `seen.js`."""
        return self._driver.execute_script(f"{_SCRIPTS}\n{script}")

    @property
    def problems(self) -> list[str]:
        """The places at which the page is too wide, too faint, or empty."""
        found: list[str] = self.asked("return [...overflow(), ...faint(4.5), ...empty()];")
        return found

    def screenshot(self, path: Path, selector: str = "body") -> None:
        """Write a picture of an element, the part below the fold too."""
        x, y, width, height = self.asked(f"return place({selector!r});")
        clip = {"x": x, "y": y, "width": width, "height": height, "scale": 1}
        shot = self._do("Page.captureScreenshot", clip=clip, captureBeyondViewport=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b64decode(shot["data"]))


@contextmanager
def chromium() -> Iterator[Browser]:
    """A browser of the system, with a profile of its own. It downloads nothing."""
    program, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if program is None or driver is None:
        raise FileNotFoundError(_MISSING)
    with TemporaryDirectory(prefix="chromium-", ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = program
        for flag in (*_FLAGS, f"user-data-dir={profile}"):
            options.add_argument(f"--{flag}")
        opened = webdriver.Chrome(options=options, service=Service(driver))
        try:
            yield Browser(opened)
        finally:
            opened.quit()
