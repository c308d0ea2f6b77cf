"""Objects with diagrams, and the contents of these; `lazyckpt.pictures` is imported to draw."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Legend(NamedTuple):
    """The contents of a diagram.

    - `stages`: a chain, or the entries of a state
    - `labels`: a label per stage, by its number, such as `1[0].2`
    - `facts`: labels for the whole
    - `share`: the completed share, if known
    """

    stages: Any
    labels: Mapping[str, str] = {}
    facts: tuple[str, ...] = ()
    share: float | None = None


class Pictured:
    """Shown as a diagram by notebooks and as a tree by rich. Reads no data."""

    __slots__ = ()

    def _legend(self) -> Legend:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        found: str = _drawing().as_html(self)
        return found

    def __rich__(self) -> Any:
        return _drawing().as_rich(self)


def _drawing() -> Any:
    return import_module("lazyckpt.pictures.drawing")
