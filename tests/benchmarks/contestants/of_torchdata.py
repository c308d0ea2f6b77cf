"""torchdata's StatefulDataLoader, in torch's DataLoader's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from contestant import Way
from data import add, buffer_size, lines, nothing
from harness import fresh
from resuming import resumed
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader

from contestants import of_torch

Loader: Any = StatefulDataLoader


def w1(n: int) -> Way:
    return of_torch.w1(n, Loader)


def w2(n: int) -> Way:
    return of_torch.w2_getitems(n, Loader)


def w3(n: int) -> Way:
    return of_torch.w3(n, Loader)


class Shuffled(IterableDataset):  # type: ignore[misc,type-arg]  # torch may be missing
    """A dataset without a state of its own: the loader skips the items already yielded."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[bytes]:
        from torch.utils.data.datapipes.iter import IterableWrapper, Shuffler

        pipe = IterableWrapper(lines(self.n), deepcopy=False)
        return iter(Shuffler(pipe, buffer_size=buffer_size(self.n)).set_seed(0))


def w4stream(n: int) -> Way:
    return resumed(n // 32, lambda: Loader(Shuffled(n), batch_size=32, collate_fn=nothing))


def w4indexed(n: int) -> Way:
    items = of_torch.Mapped(n, add)

    def make() -> Any:
        order = torch.Generator().manual_seed(0)
        return Loader(items, batch_size=32, shuffle=True, generator=order, collate_fn=nothing)

    return resumed(n // 32, make)


def w5i(n: int) -> Way:
    return of_torch.w5i(n, Loader)


def w5a(n: int) -> Way:
    return of_torch.w5a(n, Loader)


def w6(n: int) -> Way:
    return of_torch.w6(n, Loader)


def w7(n: int) -> Way:
    imports = "from torchdata.stateful_dataloader import StatefulDataLoader"
    return fresh(imports, "next(iter(StatefulDataLoader(range(10))))")


def w12(n: int) -> Way:
    return of_torch.w12(n, Loader)
