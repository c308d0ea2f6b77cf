"""W1 and W2 as other libraries do them, where they are installed, against the same loops."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np
from harness import Row, compared, spent
from wide import N, add, by_hand, by_take, keep, table

FEW = 50_000  # rows, where a library takes them one by one


def peers(rounds: int) -> Iterator[Row]:
    """A row for each library and workload, fastest way known; none here takes states."""
    data = list(range(N))
    x, y = table()
    for name, flow in {"toolz": toolz, "torch": torch, "infinibatch": infinibatch}.items():
        if find_spec(name):
            what = f"W1 in {name} / loop"
            yield compared("peers", what, partial(flow, data), partial(by_hand, data), rounds, N)
    few_x, few_y = x[:FEW], y[:FEW]
    cases: list[tuple[str, str, Callable[..., None], int]] = [
        ("torch", "torch, __getitems__", torch_many, N),
        ("torch", "torch, row by row", torch_rows, FEW),
        ("seqtools", "seqtools, row by row", seqtools, FEW),
    ]
    for name, said, rows, n in cases:
        if find_spec(name):
            arrays = (x, y) if n == N else (few_x, few_y)
            ours, theirs = partial(rows, *arrays), partial(by_take, *arrays)
            yield compared("peers", f"W2 in {said} / permutation and take", ours, theirs, rounds, n)


def toolz(data: list[int]) -> None:
    from toolz import partition_all

    spent(partition_all(32, filter(keep, map(add, data))))


def torch(data: list[int]) -> None:
    from torch.utils.data import DataLoader, IterableDataset

    class Stream(IterableDataset):  # type: ignore[misc,type-arg]
        def __iter__(self) -> Iterator[int]:
            return filter(keep, map(add, data))

    spent(DataLoader(Stream(), batch_size=32, collate_fn=_same))


def infinibatch(data: list[int]) -> None:
    from infinibatch import iterators

    stream = iterators.NativeCheckpointableIterator(data)
    kept = iterators.SelectManyIterator(
        iterators.MapIterator(stream, add), lambda x: [x] if keep(x) else []
    )
    spent(iterators.FixedBatchIterator(kept, 32))


def torch_many(x: np.ndarray, y: np.ndarray) -> None:
    from torch.utils.data import DataLoader

    class Rows:
        def __len__(self) -> int:
            return len(x)

        def __getitems__(self, indices: list[int]) -> dict[str, Any]:
            return {"x": x.take(indices, axis=0), "y": y.take(indices)}

        def __getitem__(self, index: int) -> Any:
            raise NotImplementedError

    spent(DataLoader(Rows(), batch_size=256, shuffle=True, collate_fn=_same))  # type: ignore[arg-type]


def torch_rows(x: np.ndarray, y: np.ndarray) -> None:
    from torch.utils.data import DataLoader

    class Rows:
        def __len__(self) -> int:
            return len(x)

        def __getitem__(self, index: int) -> dict[str, Any]:
            return {"x": x[index], "y": y[index]}

    spent(DataLoader(Rows(), batch_size=256, shuffle=True))  # type: ignore[arg-type]


def seqtools(x: np.ndarray, y: np.ndarray) -> None:
    import seqtools as st

    order = np.random.default_rng(0).permutation(len(x))
    rows = st.collate([st.gather(x, order), st.gather(y, order)])
    spent(st.batch(rows, 256, collate_fn=_fields))


def _fields(rows: Iterable[Any]) -> list[Any]:
    return [np.stack(field) for field in zip(*rows, strict=True)]


def _same(batch: Any) -> Any:
    return batch
