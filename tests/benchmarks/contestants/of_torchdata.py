"""torchdata's StatefulDataLoader, in torch's DataLoader's place."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any

import torch
from contestant import Way
from data import ROWS, buffer_size, busy, files, large, lines_of, nothing, texts
from harness import by_workers, fresh, spent
from resuming import Started, dumped, loaded, resumes
from torch.utils.data import IterableDataset
from torchdata.stateful_dataloader import StatefulDataLoader
from wide import add

from contestants.of_torch import Batches, Grouped, Mapped, Packed, Stream

Loader: Any = StatefulDataLoader


def w1(n: int) -> Way:
    data = Stream(list(range(n)))
    return lambda: spent(Loader(data, batch_size=32, collate_fn=nothing))


def w2(n: int) -> Way:
    rows = Batches(n)
    return lambda: spent(Loader(rows, batch_size=256, shuffle=True, collate_fn=nothing))


def w3(n: int) -> Way:
    return lambda: spent(Loader(Grouped(n), batch_size=None))


class Shuffled(IterableDataset):  # type: ignore[misc,type-arg]  # torch may be missing
    """A data set without a state of its own: the loader goes over what was given."""

    def __init__(self, n: int) -> None:
        self.n = n

    def __iter__(self) -> Iterator[bytes]:
        from torch.utils.data.datapipes.iter import IterableWrapper, Shuffler

        lines = (line for path in files(self.n) for line in lines_of(path))
        pipe = IterableWrapper(lines, deepcopy=False)
        return iter(Shuffler(pipe, buffer_size=buffer_size(self.n)).set_seed(0))


def w4stream(n: int) -> Way:
    return resumed(n, lambda: Loader(Shuffled(n), batch_size=32, collate_fn=nothing))


def w4indexed(n: int) -> Way:
    items = Mapped(n, add)

    def make() -> Any:
        order = torch.Generator().manual_seed(0)
        return Loader(items, batch_size=32, shuffle=True, generator=order, collate_fn=nothing)

    return resumed(n, make)


def resumed(n: int, make: Any) -> Way:
    def start(text: bytes | None) -> Started:
        loader = make()
        if text is not None:
            loader.load_state_dict(loaded(text))
        return loader, iter(loader)

    return resumes(n // 32, start, lambda loader: dumped(loader.state_dict()))


def w5i(n: int) -> Way:
    loader = Loader(range(n), batch_size=256, num_workers=1, collate_fn=nothing)
    return by_workers(lambda: chain.from_iterable(loader), n)


def w5a(n: int) -> Way:
    arrays = Mapped(n, large)
    return by_workers(lambda: Loader(arrays, batch_size=None, num_workers=1), n)


def w6(n: int) -> Way:
    items = Mapped(n, busy)
    return by_workers(lambda: Loader(items, batch_size=16, num_workers=2, collate_fn=nothing), n)


def w7(n: int) -> Way:
    imports = "from torchdata.stateful_dataloader import StatefulDataLoader"
    return fresh(imports, "next(iter(StatefulDataLoader(range(10))))")


def w12(n: int) -> Way:
    from training import trained

    rows = Packed(texts(n))
    return trained(n, lambda: Loader(rows, batch_size=ROWS, num_workers=2))
