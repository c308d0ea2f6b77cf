"""What has a picture, and what is told in it; `lazyckpt.pictures` is imported to draw it."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any, NamedTuple


class Legend(NamedTuple):
    """What a picture shows.

    - `stages`: a chain, or the entries of a state
    - `places`: what is told of each stage, by its number, such as `1[0].2`
    - `facts`: what is told of all
    - `share`: how much of the way is done, if that is known
    """

    stages: Any
    places: Mapping[str, str] = {}
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
