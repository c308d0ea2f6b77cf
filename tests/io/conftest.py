"""Indices of these tests are kept in a folder of their own."""

from pathlib import Path

import pytest


@pytest.fixture(autouse=True, scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cache")
    patch = pytest.MonkeyPatch()
    patch.setenv("LAZYCKPT_CACHE", str(folder))
    return folder
