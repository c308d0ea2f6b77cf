"""`lz.torch.shared`: one rank makes each item that all need, and sends it to the others."""

from __future__ import annotations

import os
import socket
import weakref
from typing import Any

import torch.distributed as dist

from lazyckpt.core.checks import Unfit, checked, positive
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import seconds
from lazyckpt.executors.pool_executor import PoolExecutor
from lazyckpt.executors.sharing.executor import SharedExecutor
from lazyckpt.executors.sharing.meeting import MeetingPlace, SocketMeeting

_SECRET = 32  # bytes


def shared(
    executor: Executor,
    group: dist.ProcessGroup | None = None,
    *,
    chunk_size: int = 32,
    timeout: float = 60.0,
) -> Executor:
    """Have each item before `shard` made by one rank of a process group, and sent to all.

    Without it each rank reads, tokenizes and filters all that comes before `shard`, and
    keeps its part of the rows. With it the ranks do so by turns: each makes its part of the
    common items in the workers of `executor`, and sends them to the others. Mixing, packing and
    sharding run on each rank, and so do the stages after `shard`. Items, their order and
    the states are those of each rank alone, on any number of ranks.

    If all stages up to `shard` have random access, no rank makes the items of others anyway,
    and nothing is sent.

    A failing item fails on all ranks at the same place; with `on_error="skip"` all leave out the
    same records, even if they fail by chance. Functions after `shard` run on their own
    rank alone. A rank that is lost is a `RankMissing`, which names it, at the first item
    that it should have made; a rank that leaves its run is replaced by the others.

    All ranks open the same runs. They compare stages, settings, the position, and a sample of the
    data, and refuse to go on if they differ. A rewind (`load_state_dict`), a pause, and going on
    after an error are a new beginning, which all ranks make together; `change` too.

    The ranks connect to each other by TCP, through the address of rank 0 that the group's
    `MASTER_ADDR` says, and each proves that it knows a secret which rank 0 has sent through the
    group. What they send is pickled: whoever is in the group is trusted.

    Ranks of one index of `shard`, as of tensor or pipeline parallelism, may all be in the group.

    Memory: the common items that the ranks have under way or made ahead, up to 64 MiB and those
    of one turn of all ranks.

    Args:
        executor: The workers of each rank: `processes(...)`, `threads(...)` and others.
        group: The process group, of any backend; None is that of all ranks. All its
            ranks call this at the same time.
        chunk_size: Items per message. Each message costs each rank some 0.2 ms of its reader's
            time, so items that are quickly made want many; a worker has to make all of them
            before any is sent. What `flat_map` makes of a file is always a message of its own.
        timeout: Seconds to wait for ranks that don't come, and for one that is awaited and
            says nothing: not for one that trains, compiles or saves.

    Returns:
        An executor, for the ranks of the group alone.

    Raises:
        ArgumentError: An argument is out of range, or there is no process group.
        PipelineError: When it runs: the pipeline has no `shard`, or ranks have places of their
            own, as after `shard(...) | filter(...)`.

    Example:
        executor = lz.torch.shared(lz.processes(8), dist.group.WORLD)
        batches = lz.torch.loader(pipeline(world_size, rank), executor, state)
    """
    checked("shared", "executor", executor, _with_workers)
    checked("shared", "chunk_size", chunk_size, positive)
    checked("shared", "timeout", timeout, seconds)
    if not dist.is_initialized():
        raise ArgumentError(
            "shared: torch.distributed has no process group; call init_process_group first"
        )
    rank, size = dist.get_rank(group), dist.get_world_size(group)
    found: list[Any] = [None]
    place: MeetingPlace | None = None
    if rank == 0:
        host, secret = _own_host(), os.urandom(_SECRET)
        place = MeetingPlace(host, secret, size, timeout)
        found = [(host, place.port, secret)]
    first = 0 if group is None else dist.get_global_rank(group, 0)
    dist.broadcast_object_list(found, first, group)
    host, port, secret = found[0]
    meeting = SocketMeeting(host, port, secret, rank, size, timeout)
    arguments = {
        "executor": executor, "meeting": meeting, "chunk_size": chunk_size, "timeout": timeout,
    }  # fmt: skip
    made = SharedExecutor(shared, arguments)
    if place is not None:
        weakref.finalize(made, place.close)
    return made


def _with_workers(value: Any) -> PoolExecutor:
    if not isinstance(value, PoolExecutor) or isinstance(value, SharedExecutor):
        raise Unfit("an executor with workers, such as processes(8)")
    return value


def _own_host() -> str:
    """The address of this machine on the network of the process group."""
    for name in (os.environ.get("MASTER_ADDR", ""), socket.gethostname()):
        try:
            host = socket.gethostbyname(name)
            with socket.create_server((host, 0)):
                return host
        except OSError:
            continue
    return "127.0.0.1"
