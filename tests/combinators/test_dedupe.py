"""`dedupe`: it keeps the keys of one window."""

from __future__ import annotations

import lazyckpt as lz


def test_memory_is_one_window() -> None:
    held: list[int] = []

    class Key:
        def __init__(self, number: int) -> None:
            self.number = number
            held.append(number)

        def __del__(self) -> None:
            held.remove(self.number)

    with lz.run(lz.count() | lz.dedupe(Key, window=50)) as run:
        for _ in range(500):
            next(run)
            assert len(held) <= 52
