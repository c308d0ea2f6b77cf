"""Functions that fail, and who is told."""

from __future__ import annotations

from typing import Any

import lazyckpt as lz


def picky(x: int) -> int:
    if x % 7 == 3:
        raise ValueError(f"{x}")
    return x


class Data:
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        return picky(index)


NUMBERS = lz.source(range(50))


class Rejecting:
    """A function that fails on some items."""

    def __init__(self, bad: frozenset[int]) -> None:
        self.bad = bad

    def __call__(self, x: int) -> int:
        if x in self.bad:
            raise ValueError(f"{x}\nis bad")
        return x


class Sum(Rejecting):
    def __call__(self, x: Any) -> int:
        return super().__call__(sum(x))
