"""Functions and data for the tests of several combinators."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st

from lazyckpt.testing import equal


def noise(rng: np.random.Generator, item: Any) -> tuple[Any, float, int, float]:
    return item, rng.random(), int(rng.integers(1000)), float(rng.standard_normal())


LENGTHS = st.lists(st.integers(0, 40), max_size=60)


def same(x: Any) -> Any:
    return x


class Odd:
    """Has no usable ==, bool, hash or repr."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("compared")

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        raise AssertionError("asked for its truth")


def alike(found: Any, expected: Any) -> bool:
    """As `equal`, and by identity for what can't be compared."""
    if isinstance(found, (list, tuple)):
        return len(found) == len(expected) and all(map(alike, found, expected))
    if isinstance(found, dict):
        return list(found) == list(expected) and all(alike(found[k], expected[k]) for k in found)
    return found is expected or (not isinstance(found, Odd) and equal(found, expected))
