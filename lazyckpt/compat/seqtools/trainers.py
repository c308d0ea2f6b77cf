"""What trainers look for in a loader: its samplers, and whether they may take it apart."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any
from weakref import ref

from lazyckpt.compat.seqtools.sequence import is_iterable
from lazyckpt.errors import ArgumentError


def shown_samplers(loader: Any, sampler: Any, batch_sampler: Any) -> tuple[Any, Any]:
    """A loader's `sampler` and `batch_sampler`: for data by index torch's, if none are given."""
    torch = sys.modules.get("torch.utils.data")
    if torch is None or is_iterable(loader.dataset):
        return sampler, batch_sampler
    if sampler is None:
        shuffles, data = loader._shuffles, loader.dataset
        sampler = _order(torch, loader) if shuffles else torch.SequentialSampler(data)
    if batch_sampler is None and loader.batch_size is not None:
        batch_sampler = torch.BatchSampler(sampler, loader.batch_size, loader.drop_last)
    return sampler, batch_sampler


def _order(torch: Any, loader: Any) -> Any:
    """A `RandomSampler` in the order of the loader's next epoch."""
    found: Any = ref(loader)

    class Order(torch.RandomSampler):  # type: ignore[misc]  # its base is Any
        def __iter__(self) -> Iterator[int]:
            return iter(found().order())

    order: Any = Order.__new__(Order)  # without reading how long the data is
    order.data_source, order.replacement = loader.dataset, False
    order._num_samples = order.generator = None
    return order


class NeedsNoPreparing:
    """An attribute that tells Accelerate to leave a loader; an error where it has several ranks.

    It can be set, as by Accelerate, and is then as any other.
    """

    def __get__(self, loader: object, kind: type) -> bool:
        torch: Any = sys.modules.get("torch.distributed")
        if torch is None or not torch.is_initialized() or torch.get_world_size() == 1:
            return True
        raise ArgumentError(
            "DataLoader: accelerator.prepare would make a loader without this one's state; give "
            "each rank its part by sampler=DistributedSampler(dataset), leave the loader out of "
            "prepare, and save it by accelerator.register_for_checkpointing(loader)"
        )
