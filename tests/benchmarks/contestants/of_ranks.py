"""One rank's batches, by each library as it documents that for many ranks.

Each function has the rank, the number of ranks, the number of documents, and a tokenizer
that takes the number of one and returns its tokens. It yields batches of packed rows.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib import import_module
from typing import Any, Protocol

import numpy as np
from toolz import partition_all

import lazyckpt as lz

ROW = 4_096  # tokens
BINS = 8
BATCH = 2  # rows
WORKERS = 2
FILES = 16
READ_AHEAD = 1_024  # documents that are packed together if that is done by hand
CHUNK = 128  # documents that ranks share at once


class Tokenize(Protocol):
    """A tokenizer that counts its calls."""

    def __call__(self, n: int, /) -> np.ndarray[Any, Any]: ...

    def note_unwaited(self, seconds: float) -> None:
        """Add the processor seconds of processes for which no process waits."""


def is_kept(tokens: np.ndarray[Any, Any]) -> bool:
    return len(tokens) % 8 != 3


def dealt(documents: lz.Pipeline[Any], rank: int, size: int) -> lz.Pipeline[Any]:
    """The work that each of our ranks does itself, even if ranks share the work before it."""
    rows = documents | lz.pack_first_fit(ROW, num_bins=BINS)
    mine = rows | lz.shard(num_shards=size, index=rank, remainder="drop")
    return mine | lz.batch(BATCH, collate=lz.stack)


def _run(rank: int, size: int, n: int, tokenize: Tokenize, executor: lz.Executor) -> Iterator[Any]:
    documents = lz.source(range(n)) | lz.shuffle(seed=0) | lz.map(tokenize) | lz.filter(is_kept)
    with lz.run(dealt(documents, rank, size), executor=executor) as run:
        yield from run


def _workers() -> lz.Executor:
    return lz.processes(WORKERS)


def shared(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterator[Any]:
    yield from _run(rank, size, n, tokenize, lz.torch.shared(_workers(), chunk_size=CHUNK))
    import_module("torch.distributed").barrier()  # ranks meet at rank 0


def shared_per_rank(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterator[Any]:
    executor = lz.torch.shared(_workers(), readers="rank", chunk_size=CHUNK)
    yield from _run(rank, size, n, tokenize, executor)
    import_module("torch.distributed").barrier()


def alone(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterator[Any]:
    return _run(rank, size, n, tokenize, _workers())


def packed(documents: Iterable[np.ndarray[Any, Any]]) -> Iterator[np.ndarray[Any, Any]]:
    """First fit, by hand."""
    bins: list[list[Any]] = []
    for tokens in documents:
        for each in bins:
            if sum(map(len, each)) + len(tokens) <= ROW:
                each.append(tokens)
                break
        else:
            bins.append([tokens])
    for each in bins:
        row = np.zeros(ROW, np.int32)
        row[: sum(map(len, each))] = np.concatenate(each)
        yield row


def _of_datasets(rank: int, size: int, n: int, tokenize: Tokenize, files: int) -> Iterable[Any]:
    from datasets import IterableDataset
    from datasets.distributed import split_dataset_by_node
    from torch.utils.data import DataLoader

    def read(file: list[int]) -> Iterator[dict[str, int]]:
        return ({"n": number} for each in file for number in range(each, n, files))

    def rows(batch: dict[str, list[int]]) -> dict[str, list[Any]]:
        return {"tokens": [*packed(filter(is_kept, map(tokenize, batch["n"])))]}

    data = IterableDataset.from_generator(read, gen_kwargs={"file": [*range(files)]})
    made = data.shuffle(seed=0, buffer_size=100).map(
        rows, batched=True, batch_size=READ_AHEAD, remove_columns=["n"]
    )
    mine = split_dataset_by_node(made, rank, size)
    return DataLoader(mine, batch_size=BATCH, num_workers=min(WORKERS, max(1, files // size)))


def datasets(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterable[Any]:
    return _of_datasets(rank, size, n, tokenize, FILES)


def datasets_of_one_file(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterable[Any]:
    return _of_datasets(rank, size, n, tokenize, 1)


def accelerate(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterable[Any]:
    import torch
    from accelerate import PartialState
    from accelerate.data_loader import prepare_data_loader
    from torch.utils.data import DataLoader, IterableDataset, get_worker_info

    class Rows(IterableDataset[Any]):
        def __iter__(self) -> Iterator[Any]:
            worker = get_worker_info()
            numbers = np.random.default_rng(0).permutation(n)[worker.id :: worker.num_workers]
            for begin in range(0, len(numbers), READ_AHEAD):
                some = numbers[begin : begin + READ_AHEAD].tolist()
                yield from packed(filter(is_kept, map(tokenize, some)))

    PartialState(cpu=True)
    return prepare_data_loader(
        DataLoader(Rows(), batch_size=BATCH, num_workers=WORKERS),
        num_processes=size,
        process_index=rank,
        put_on_device=True,
        device=torch.device("cpu"),
        dispatch_batches=True,
    )


def grain(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterable[Any]:
    from grain import MapDataset
    from grain.experimental import FirstFitPackIterDataset

    mine = MapDataset.range(n).shuffle(seed=0)[rank::size].map(tokenize)
    kept = mine.to_iter_dataset().filter(is_kept).map(lambda tokens: {"tokens": tokens})
    rows = FirstFitPackIterDataset(
        kept, length_struct={"tokens": ROW}, num_packing_bins=BINS, shuffle_bins=False
    )
    return rows.batch(BATCH)


def ray_data(rank: int, size: int, n: int, tokenize: Tokenize) -> Iterable[Any]:
    """Rank 0 drives a cluster in which actors are the ranks; the other processes wait."""
    if rank:
        return ()
    import ray
    import ray.data
    from psutil import Process

    class Rank:
        def consume(self, mine: Any) -> None:
            rows = packed(row["tokens"] for row in mine.iter_rows())
            for batch in partition_all(BATCH, rows):
                np.stack(batch)

    def tokens_of(row: dict[str, int]) -> dict[str, Any]:
        return {"tokens": tokenize(row["id"])}

    ray.init("local", num_cpus=WORKERS * size, include_dashboard=False, log_to_driver=False)
    data = ray.data.range(n, override_num_blocks=FILES).random_shuffle(seed=0).map(tokens_of)
    kept = data.filter(lambda row: is_kept(row["tokens"]))
    ranks = [ray.remote(num_cpus=0)(Rank).remote() for _ in range(size)]
    parts = kept.streaming_split(size, equal=True, locality_hints=None)
    ray.get([each.consume.remote(part) for each, part in zip(ranks, parts, strict=True)])
    workers = [each for each in Process().parent().children(recursive=True) if is_of_ray(each)]
    tokenize.note_unwaited(sum(sum(each.cpu_times()[:2]) for each in workers))
    ray.shutdown()
    return ()


def is_of_ray(process: Any) -> bool:
    """Return whether a process is a worker of Ray, for which nobody waits."""
    return bool(process.parent().name() == "raylet")
