"""tqdm, where it is installed."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any


def tqdm() -> Any:
    """The class of bars that suits where this runs: a notebook or a terminal.

    Raises:
        ImportError: tqdm is not installed.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # without ipywidgets it says so, and draws with text
        return import_module("tqdm.auto").tqdm
