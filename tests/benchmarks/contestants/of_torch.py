"""torch's DataLoader, in the process of the loop."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from contestant import Way
from harness import spent
from torch.utils.data import DataLoader, IterableDataset
from wide import add, keep, table


class Stream(IterableDataset):  # type: ignore[misc,type-arg]
    def __init__(self, data: list[int]) -> None:
        self.data = data

    def __iter__(self) -> Iterator[int]:
        return filter(keep, map(add, self.data))


class Rows:
    """A map-style data set."""

    def __init__(self, n: int) -> None:
        self.x, self.y = map(torch.from_numpy, table(n))

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": self.x[index], "y": self.y[index]}


class Batches(Rows):
    """The same with what the loader asks for a whole batch."""

    def __getitems__(self, indices: list[int]) -> dict[str, Any]:
        return {"x": self.x[indices], "y": self.y[indices]}


def same(batch: Any) -> Any:
    return batch


def w1(n: int) -> Way:
    data = Stream(list(range(n)))
    return lambda: spent(DataLoader(data, batch_size=32, collate_fn=same))


def w2(n: int) -> Way:
    rows = Rows(n)
    return lambda: spent(DataLoader(rows, batch_size=256, shuffle=True))  # type: ignore[arg-type]


def w2_batches_of_indices(n: int) -> Way:
    rows = Batches(n)
    return lambda: spent(DataLoader(rows, batch_size=256, shuffle=True, collate_fn=same))  # type: ignore[arg-type]
