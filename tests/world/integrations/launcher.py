"""The launcher under torchrun, which forks ranks here, so that a framework is imported once."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from uuid import uuid4

from torch.distributed.launcher.api import LaunchConfig, elastic_launch

# What training imports on its way: once, before ranks are forked.
IMPORTED = ["torch._dynamo", "torch.distributed.fsdp", "lazyckpt.integrations.torch"]


def launch(size: int, rank: Callable[..., object], *arguments: object) -> None:
    """Call a function on each rank, with the environment that `torchrun --standalone` has."""
    for module in IMPORTED:
        import_module(module)
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
