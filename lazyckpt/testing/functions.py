"""Named functions of any item, for the stages that are drawn, so that these pickle."""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np

import lazyckpt as lz
from lazyckpt.pipeline import Pipeline


def tagged(item: Any) -> Any:
    return ("tagged", item)


def counted(count: int, item: Any) -> tuple[int, Any]:
    return count + 1, (count, item)


def collected(seen: list[int], item: Any) -> tuple[list[int], Any]:
    seen.append(crc(item) % 7)
    return seen[-3:], (item, sum(seen))


def kept(item: Any) -> bool:
    return crc(item) % 3 != 0


def several(item: Any) -> list[Any]:
    return [(item, i) for i in range(crc(item) % 4)]


def lazily(item: Any) -> Any:
    return (x for x in several(item))


def piped(item: Any) -> Pipeline[Any]:
    return lz.source(several(item)) | lz.shuffle(seed=crc(item))


def length_of(item: Any) -> int:
    return crc(item) % 5


def size_of(item: Any) -> int:
    return 1 + length_of(item) // 2


def tokens(item: Any) -> Any:
    found = list(range(crc(item) % 100, crc(item) % 100 + length_of(item)))
    return found if kept(item) else np.array(found, np.int64)


def features(item: Any) -> dict[str, Any]:
    found = np.array(tokens(item), np.int64)
    return {"x": found, "y": np.stack([found, found / 2], axis=-1)}


def crc(item: Any) -> int:
    return zlib.crc32(repr(item).encode())


def number(item: Any) -> int:
    return crc(item) % 1000


def above(least: int, item: Any) -> bool:
    return crc(item) % 8 >= least


def labelled(label: Any, item: Any) -> tuple[Any, Any]:
    return label, item


def parity(item: Any) -> int:
    return crc(item) % 2


def numbered(item: Any) -> tuple[int, Any]:
    return number(item), item


def halved(numbers: Any) -> Any:
    return numbers / 2


def spelled(numbers: Any) -> Any:
    return numbers.astype("U3")


def noisy(rng: np.random.Generator, item: Any) -> Any:
    return item, rng.random(), rng.integers(9, size=crc(item) % 3).tolist()


def held(items: list[int], item: Any) -> tuple[list[int], Any]:
    items.append(crc(item) % 7)
    made = piped if items[-1] % 2 else lazily
    return (items, []) if len(items) < 3 else ([], made((items, item)))


def growing(seen: list[int], item: Any) -> tuple[list[int], list[int]]:
    """Return the state as the output of a step."""
    seen.append(crc(item) % 7)
    return seen, seen


def growing_several(seen: list[int], item: Any) -> tuple[list[int], list[list[int]]]:
    """Return the state among the outputs of a step."""
    seen.append(crc(item) % 7)
    return seen, [seen, [*seen]][: len(seen) % 3]


def falling_lists(left: list[int]) -> tuple[list[int], list[int]] | None:
    """Return the state as the item of a step."""
    if not left[0]:
        return None
    left[0] -= 1
    return left, left


def countdown(left: list[int]) -> tuple[list[int], int] | None:
    if not left[0]:
        left.clear()
        return None
    left[0] -= 1
    return left, left[0]
