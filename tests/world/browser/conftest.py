"""One browser for the tests of a session."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.world.browser.chromium import Browser, chromium


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Chromium, which has to be installed: the error says how."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of screenshots: LAZYCKPT_SCREENSHOTS, or a temporary folder."""
    chosen = os.environ.get("LAZYCKPT_SCREENSHOTS")
    return Path(chosen) if chosen else tmp_path_factory.mktemp("screenshots")
