"""A resume in the middle of an epoch yields its rest, and then whole epochs, in any framework."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Any

import pytest
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

import lazyckpt as lz
from lazyckpt.compat import seqtools
from lazyckpt.compat.emloop import StreamWrapper
from lazyckpt.compat.gluon import ShardedDataLoader

pytestmark = pytest.mark.filterwarnings("ignore:.*'set_vital'")  # StatefulDataLoader calls it

FIVE = lz.source(range(5)) | lz.shuffle(seed=0)
ENDLESS = FIVE | lz.repeat()


class Epochs:
    """A run whose loops are epochs."""

    def __init__(
        self, pipeline: lz.Pipeline[Any], size: int | None, executor: lz.Executor | None = None
    ) -> None:
        self.run, self.size = lz.run(pipeline, executor=executor), size
        self.state_dict, self.load_state_dict = self.run.state_dict, self.run.load_state_dict

    def __iter__(self) -> Iterator[Any]:
        return self.run.epoch(self.size)


def seqtools_loader() -> Any:
    return seqtools.DataLoader(range(5), collate_fn=list, shuffle=True, seed=0)


ENTRANCES: dict[str, Callable[[], Any]] = {
    "epoch": lambda: Epochs(FIVE, None),
    "epoch of a size": lambda: Epochs(ENDLESS, 5),
    "epoch of a size over ends": lambda: Epochs(FIVE, 5),
    "in threads": lambda: Epochs(ENDLESS, 5, lz.threads(2)),
    "on a device of JAX": lambda: Epochs(ENDLESS, 5, lz.jax.device_put(lz.inline())),
    "on a device of torch": lambda: Epochs(ENDLESS, 5, lz.to_device(lz.inline(), "cpu")),
    "loader": lambda: lz.torch.loader(FIVE),
    "loader of a size": lambda: lz.torch.loader(ENDLESS, epoch_size=5),
    "loader of a size over ends": lambda: lz.torch.loader(FIVE, epoch_size=5),
    "StatefulDataLoader": lambda: StatefulDataLoader(lz.torch.dataset(FIVE), batch_size=None),
    "seqtools": seqtools_loader,
    "gluon": lambda: ShardedDataLoader(range(5), 1),
    "emloop": lambda: StreamWrapper(lambda: iter(range(5))),
    "emloop of a size": lambda: StreamWrapper(lambda: iter(range(5)), epoch_size=5),
}


@pytest.mark.parametrize("name", ENTRANCES)
def test_at_item_3_of_5_it_has_2(name: str) -> None:
    batches: Any = ENTRANCES[name]()
    assert len(list(batches)) == 5
    head: Iterable[Any] = iter(batches)
    assert len(list(islice(head, 3))) == 3
    saved = batches.state_dict()
    resumed: Any = ENTRANCES[name]()
    resumed.load_state_dict(saved)
    assert [len(list(resumed)) for _ in range(3)] == [2, 5, 5]


def test_a_dataset_gives_the_rest_of_the_epoch_that_its_state_is_in() -> None:
    data = lz.torch.dataset(FIVE, lz.state_at(FIVE, 3))
    for workers in (0, 2):
        assert len(list(DataLoader(data, batch_size=None, num_workers=workers))) == 2
    found = lz.grain.dataset(FIVE).__iter__()
    found.set_state(lz.run(FIVE, lz.state_at(FIVE, 3)).state_dict())
    assert len(list(found)) == 2


def test_a_loader_from_a_state_is_where_a_run_from_it_is() -> None:
    for items in range(12):
        state = lz.state_at(ENDLESS, items)
        expected = [
            list(lz.run(ENDLESS, state).epoch(5)),
            list(lz.torch.loader(ENDLESS, state=state, epoch_size=5)),
        ]
        assert expected[0] == expected[1]
        assert len(expected[0]) == 5 - items % 5
