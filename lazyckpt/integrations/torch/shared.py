"""`lz.torch.shared`: what all ranks of a job need is made by one of them, and sent to all."""

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
    chunk_size: int = 8,
    timeout: float = 60.0,
) -> Executor:
    """Share the work before `shard` among the ranks of a process group."""
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
