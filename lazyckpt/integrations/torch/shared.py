"""`lz.torch.shared`: one rank computes each common item, and sends it to the others."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch.distributed as dist

from lazyckpt.core.checks import Unfit, checked, one_of, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import seconds
from lazyckpt.executors.pool_executor import PoolExecutor
from lazyckpt.executors.sharing.door import close_with
from lazyckpt.executors.sharing.executor import SharedExecutor
from lazyckpt.executors.sharing.link import Nodes
from lazyckpt.executors.sharing.meeting import SocketMeeting
from lazyckpt.executors.sharing.meeting_place import MeetingPlace
from lazyckpt.executors.sharing.mesh import LEAST_PATIENCE
from lazyckpt.executors.sharing.presence import Presence

_SECRET = 32  # bytes


def shared(
    executor: Executor,
    group: dist.ProcessGroup | None = None,
    *,
    readers: Literal["rank", "node"] = "node",
    chunk_size: int = 32,
    timeout: float = 60.0,
) -> Executor:
    """Compute each item before `shard` on one rank of a process group, and send it to all.

    Without it each rank reads, tokenizes and filters everything before `shard`, and keeps its part
    of the rows. With it one rank per host reads. The readers take turns: each computes its part of
    the common items in the workers of `executor`, and sends them to the readers of other hosts.
    Each reader mixes and packs all of them, and sends each rank of its host its own rows. The
    stages after `shard` run on each rank. Items, their order and the states are those of each rank
    alone, on any number of ranks. If all stages up to `shard` have random access, no rank computes
    the items of others: ranks compare once, before the first item, and then continue on
    their own.

    The reader is the first rank of each host. Only its workers compute common items, so give it
    more of them. If it leaves its run, it waits up to three seconds for ranks of its host that
    have taken fewer rows, and one for all to leave; they then read on by themselves. Before a
    rewind it waits for them up to `timeout`.

    **One reader per rank.** With `readers="rank"`, each rank reads, mixes and packs for itself, and
    takes turns with all others. Use it for `shard` within joined pipelines, or if one process can't
    pass on the rows of all ranks of a host, for example if these are images. Each rank then
    connects to each other rank.

    **Large items.** Items of more than some 200 bytes stay with the rank that computed them, if the
    stages up to `shard` only move them, as `shuffle`, `mix` and `take` do. Only a reference is sent
    to all readers. The reader for the rank whose turn an item is after `shard` fetches it, ahead of
    its use. Packing needs only lengths before `shard`: the tokens are sent to the reader that fills
    the row. So a reader receives the rows of its own ranks, with 60 to 230 bytes more per document
    or part of one, and some 25 bytes for each document of the job. If a stage in between looks into
    items, such as a `map` after a `mix` of streams, all items are sent to all readers.

    A failing item fails on all ranks at the same position. With `on_error="skip"` all ranks skip
    the same records, even if they fail at random. Functions after `shard` run on their own rank
    only. If a rank is lost, a `RankMissing` on all ranks names it; with `readers="rank"`, at the
    first item that it should have computed, or that it holds. If a reader leaves its run, it sends
    the items that it holds to the readers that may need them, and the others take over its turns.

    All ranks open the same runs. They compare stages, settings, the position, the data, and the
    names of the functions before `shard` with the values bound to them by `partial`, defaults and
    closures, and raise an error if these differ. Of long data they compare a sample: 4,096 items of
    a list, or of an array above 64 MiB, and 4 of other data that can be indexed. After a rewind
    (`load_state_dict`), an error, a Ctrl-C or a `change`, and when a closed run is entered, the
    ranks start again together: all must do the same. A rank that starts again alone, before the
    end of an epoch, raises `RankMissing` after `timeout` seconds, and the others continue without
    it, as if it had left.

    The ranks connect to each other by TCP, through the address of rank 0 in the group's
    `MASTER_ADDR`. Each proves that it knows a secret that rank 0 has sent through the group.
    Messages are pickled, so all members of the group are trusted.

    Ranks with the same index of `shard`, as in tensor or pipeline parallelism, may all be in the
    group.

    Memory: the common items in progress or computed ahead, up to 64 MiB plus those of one turn of
        all ranks. Items that stay with their rank are held there until all ranks have passed them:
        all ranks together hold these 64 MiB, the items in buffers such as that of `block_shuffle`
        on the slowest rank, and 12 items per rank that it has fetched ahead.
        A reader of several ranks also holds up to 64 MiB of rows that they have still to take.

    Args:
        executor: Workers of each rank: `processes(...)`, `threads(...)` and others.
        group: Process group, of any backend; None for the group of all ranks. All its ranks call
            this at the same time.
        readers: "node" if one rank per host reads for all of its ranks, or "rank" if each rank
            reads for itself.
        chunk_size: Items per message. Each message costs each rank about 0.2 ms in the thread that
            reads it, so use large chunks for cheap items: 128 if one takes 20 µs. A worker computes
            a whole chunk before it is sent, and several chunks per worker are in memory: for items
            of megabytes, pass 1 to 4. The outputs of `flat_map` for one file are always a
            message of their own.
        timeout: Seconds to wait for an awaited rank that sends nothing, and for ranks that don't
            start again together; at least 2. It starts when a different rank needs an item, and
            readers are up to 64 MiB ahead. It doesn't limit the time a rank trains, compiles or
            saves, be it between two items, before the first one or between epochs: its process
            says that it is busy, unless a call holds the GIL for longer. Each time that others wait
            for longer, a `RuntimeWarning` on rank 0 names it. After a rewind, and in a loop that
            was left before its end and begins again, ranks wait for each other no longer than this,
            nor for a rank that waits for an item. Rank 0, where ranks meet, has 10 seconds more to
            say which ranks don't come.

    Returns:
        An executor, for the ranks of the group only.

    Raises:
        ArgumentError: If an argument is out of range, or there is no process group.
        PipelineError: When a run starts, if the pipeline has no `shard`, if ranks have their own
            positions, as after `shard(...) | filter(...)`, or if a stream is dealt with
            `remainder="repeat"`. With `readers="node"`, also if `shard` is only within joined
            pipelines; the error names the remedy.

    Example:
        executor = lz.torch.shared(lz.processes(8), dist.group.WORLD)
        batches = lz.torch.loader(pipeline(world_size, rank), executor, state)
    """
    checked("shared", "executor", executor, _with_workers)
    checked("shared", "readers", readers, one_of("rank", "node"))
    checked("shared", "chunk_size", chunk_size, positive)
    checked("shared", "timeout", timeout, _patience)
    if not dist.is_initialized():
        raise ArgumentError(
            "shared: torch.distributed has no process group; call init_process_group first"
        )
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    told = _Told(readers, _machine(), None)
    place: MeetingPlace | None = None
    if rank == 0:
        host, secret = _own_host(), os.urandom(_SECRET)
        place = MeetingPlace(host, secret, timeout)
        told = told._replace(place=(host, place.port, secret))
    found: list[Any] = [None] * size
    dist.all_gather_object(found, told, group)
    if unlike := [n for n, each in enumerate(found) if each.readers != found[0].readers]:
        if place is not None:
            place.close()
        raise ArgumentError(
            f"shared: readers is {found[0].readers!r} on rank 0, and "
            f"{found[unlike[0]].readers!r} on rank {unlike[0]}; pass the same on all ranks"
        )
    host, port, secret = found[0].place
    nodes = _nodes([each.machine for each in found]) if readers == "node" else ()
    presence = Presence((host, port), secret, rank, timeout)
    meeting = SocketMeeting(host, port, secret, rank, size, timeout, nodes, presence)
    arguments = {
        "executor": executor, "meeting": meeting, "readers": readers, "chunk_size": chunk_size,
        "timeout": timeout,
    }  # fmt: skip
    made = SharedExecutor(shared, arguments)
    for each in (presence, place):
        if each is not None:
            close_with(made, each.close)
    return made


def _patience(value: Any) -> float:
    found: float = seconds(value)
    if found < LEAST_PATIENCE:
        raise Unfit(f"at least {LEAST_PATIENCE:g} seconds, as ranks report every second")
    return found


def _with_workers(value: Any) -> PoolExecutor:
    if not isinstance(value, PoolExecutor) or isinstance(value, SharedExecutor):
        raise Unfit("an executor with workers, such as processes(8)")
    return value


class _Told(NamedTuple):
    """A message from a rank to all others.

    Attributes:
        readers: The argument `readers` of the rank.
        machine: The name of its machine.
        place: On rank 0, the host and the port where ranks meet, and a secret.
    """

    readers: str
    machine: tuple[str, str]
    place: tuple[str, int, bytes] | None


def _machine() -> tuple[str, str]:
    boot = Path("/proc/sys/kernel/random/boot_id")  # machines may have equal names
    return socket.gethostname(), boot.read_text("utf-8") if boot.exists() else ""


def _nodes(machines: list[tuple[str, str]]) -> Nodes:
    """Return the ranks of each machine."""
    found: dict[Any, list[int]] = {}
    for rank, name in enumerate(machines):
        found.setdefault(name, []).append(rank)
    return tuple(map(tuple, found.values()))


def _own_host() -> str:
    """Return the address of this machine on the network of the process group."""
    for name in filter(None, (os.environ.get("MASTER_ADDR"), socket.gethostname())):
        with suppress(OSError):
            family, _, _, _, address = socket.getaddrinfo(name, 9, type=socket.SOCK_DGRAM)[0]
            with socket.socket(family, socket.SOCK_DGRAM) as sock:
                sock.connect(address)  # finds the interface; nothing is sent
                return str(sock.getsockname()[0])
    return "127.0.0.1"
