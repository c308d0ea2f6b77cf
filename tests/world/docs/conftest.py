"""The built site, served on this machine, and a browser."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

from tests.pages import ROOT
from tests.world.browser.conftest import browser, screenshots

__all__ = ["browser", "screenshots"]  # fixtures, for the tests of this folder

BUILT = ROOT / "build/docs"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


@pytest.fixture(scope="session")
def site() -> Path:
    if not (BUILT / "index.html").exists():
        raise FileNotFoundError("build it first: sphinx-build -W -j auto notebooks build/docs")
    return BUILT


@pytest.fixture(scope="session")
def address(site: Path) -> Iterator[str]:
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
