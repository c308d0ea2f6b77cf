"""The cost of ranks together that share the work before `shard`, or don't.

All figures are per additional document: the difference between many documents and a few, which
cost as much to start. Ratios are to one of lazyckpt's ranks alone. Documents of 20 to 250 tokens
are packed into rows of 4,096, and two rows are a batch. The contestants:

    lazyckpt    `lz.torch.shared(lz.processes(2), chunk_size=128)`: one rank mixes and packs for all
    per rank    the same with `readers="rank"`: each rank mixes and packs
    alone       the same pipeline on each rank by itself, `lz.processes(2)`
    datasets    `split_dataset_by_node` of 16 files, and of one (`datasets 1`), 2 workers
    accelerate  `dispatch_batches=True`: rank 0 reads for all, 2 workers
    grain       `MapDataset[rank::size]`, in each rank's own process
    Ray Data    `streaming_split(size, equal=True)` for actors of a cluster on this machine

With datasets, accelerate, grain and Ray Data, each process packs the documents that it reads, so
that rows depend on the number of ranks and workers. lazyckpt's rows are those of one stream.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from statistics import median
from time import process_time
from typing import Any

from contestants.of_ranks import dealt, is_kept
from harness import HERE, OURS, Row, spent
from ranks import tokens

import lazyckpt as lz
from lazyckpt.core.checks import plural

SIZES = (1, 2, 4, 8, 16)
TOKENIZERS = {  # µs; documents: few, many, and many for ours, which take less time each
    "20 µs": (20, 4_000, 50_000, 200_000),
    "2 ms": (2_000, 500, 4_000, 4_000),
}
CONTESTANTS = {
    "shared": OURS,
    "shared_per_rank": "per rank",
    "alone": "alone",
    "datasets": "datasets",
    "datasets_of_one_file": "datasets 1",
    "accelerate": "accelerate",
    "grain": "grain",
    "ray_data": "Ray Data",
}
FIGURES = ("calls", "cpu", "wall", "bytes")
BOUND = 1.3
_BASES = 3
OWN_NETWORK = ["unshare", "--map-root-user", "--net", "sh", "-c"]

Figures = dict[str, float]


def shared(rounds: int) -> Iterator[Row]:
    rounds = max(1, rounds // 6)
    command, counts_bytes = [sys.executable, str(HERE / "ranks.py")], has_own_network()
    if counts_bytes:
        command = [*OWN_NETWORK, 'ip link set lo up && exec "$0" "$@"', *command]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=environment, text=True,
    ) as starter:  # fmt: skip
        for words, (microseconds, few, many, more) in TOKENIZERS.items():
            one = one_alone(starter, microseconds, few, more)
            own = joined_part()
            for size in SIZES:
                for name, shown in CONTESTANTS.items():
                    is_ours = shown in (OURS, "per rank")
                    documents = more if is_ours else many
                    what = f"{words} per document, {plural(size, 'rank')}"
                    try:
                        found = [
                            slope(starter, name, size, microseconds, few, documents)
                            for _ in range(rounds)
                        ]
                    except RuntimeError as error:
                        yield Row("shared", what, [], contestant=shown, remark=f"failed: {error}")
                        continue
                    yield row_of(what, shown, one, found, counts_bytes=counts_bytes)
                    if is_ours:
                        yield bounded(f"{what}, {shown}", one, found, size * own)


def row_of(
    what: str, contestant: str, one: Figures, found: list[Figures], *, counts_bytes: bool
) -> Row:
    """Processor seconds as a ratio, and the rest in words."""
    calls, wall, received = (
        median(each[key] for each in found) for key in ("calls", "wall", "bytes")
    )
    words = f"calls {calls / one['calls']:.2f}, wall {wall / one['wall']:.2f}"
    words += f", {received:,.0f} B per document and rank" if counts_bytes else ""
    cpu = [each["cpu"] / one["cpu"] for each in found]
    return Row("shared", f"{what}: CPU in sum", cpu, contestant=contestant, remark=words)


def bounded(what: str, one: Figures, found: list[Figures], own: float) -> Row:
    rest = [(each["cpu"] - own) / one["cpu"] for each in found]
    words = f"{what}: less {own * 1e6:,.0f} µs of packing"
    sides = f"{median(each['cpu'] for each in found) * 1e6:,.0f} / {one['cpu'] * 1e6:,.0f} µs"
    return Row("shared", words, rest, bound=BOUND, sides=sides)


def one_alone(starter: subprocess.Popen[str], microseconds: int, few: int, many: int) -> Figures:
    """The figures of one of our ranks: the median of several, as all ratios refer to it."""
    found = [slope(starter, "alone", 1, microseconds, few, many) for _ in range(_BASES)]
    return {key: median(each[key] for each in found) for key in FIGURES}


def slope(
    starter: subprocess.Popen[str], contestant: str, size: int, microseconds: int, few: int,
    many: int,
) -> Figures:  # fmt: skip
    """The cost of one more document: on all ranks in sum, and bytes on each."""
    less, more = (ask(starter, [contestant, size, n, microseconds]) for n in (few, many))
    return {key: max(0.0, more[key] - less[key]) / (many - few) for key in FIGURES}


def ask(starter: subprocess.Popen[str], job: list[Any]) -> Figures:
    assert starter.stdin
    assert starter.stdout
    starter.stdin.write(json.dumps(job) + "\n")
    starter.stdin.flush()
    found = json.loads(starter.stdout.readline() or '{"error": "its process ended"}')
    if "error" in found:
        raise RuntimeError(found["error"])
    return found  # type: ignore[no-any-return]


def joined_part() -> float:
    """Return processor seconds per document for the work of each rank: packing and dealing."""
    documents = [each for each in map(tokens, range(5_000)) if is_kept(each)]
    pipeline = dealt(lz.source(documents), 0, 2)
    begun = process_time()
    spent(pipeline)
    return (process_time() - begun) / 5_000


def has_own_network() -> bool:
    """Return whether a network without other processes is available, to count bytes in it."""
    with suppress(OSError):
        command = [*OWN_NETWORK, "ip link set lo up"]
        return subprocess.run(command, capture_output=True, check=False).returncode == 0
    return False
