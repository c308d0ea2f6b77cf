"""The launcher under torchrun, which forks ranks here, so that a framework is imported once."""

from __future__ import annotations

import signal
from collections.abc import Callable
from importlib import import_module
from uuid import uuid4

import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

# What training imports on its way: once, before ranks are forked.
IMPORTED = ["torch._dynamo", "torch.distributed.fsdp", "lazyckpt.integrations.torch"]


CONNECTING = 30  # seconds


def join() -> None:
    """Join the process group. On a busy machine, gloo's ranks may wait for each other for ever."""
    signal.alarm(CONNECTING)
    dist.init_process_group("gloo")
    signal.alarm(0)


def launch(size: int, rank: Callable[..., object], *arguments: object) -> None:
    """Call a function on each rank, with the environment that `torchrun --standalone` has.

    If ranks can't connect in time, all are started once more.
    """
    for module in IMPORTED:
        import_module(module)
    try:
        _launched(size, rank, *arguments)
    except ChildFailedError as error:
        if -signal.SIGALRM not in {each.exitcode for each in error.failures.values()}:
            raise
        _launched(size, rank, *arguments)


def _launched(size: int, rank: Callable[..., object], *arguments: object) -> None:
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=size,
        run_id=str(uuid4()),
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        start_method="fork",
    )
    elastic_launch(config, rank)(*arguments)
