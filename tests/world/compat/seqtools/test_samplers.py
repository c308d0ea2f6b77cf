"""A `DataLoader` in the hands of trainers: Accelerate and Lightning themselves."""

from __future__ import annotations

import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
from accelerate import Accelerator, skip_first_batches
from torch.utils.data import BatchSampler, RandomSampler, SequentialSampler
from torch.utils.data import DataLoader as TorchLoader

from lazyckpt.compat import seqtools as ours
from tests.compat.seqtools.cases import as_list
from tests.world.compat.seqtools.cases import IterableTen


def loader(**options: Any) -> Any:
    return ours.DataLoader(range(10), 3, collate_fn=as_list, seed=1, **options)


def test_samplers_are_shown_as_torch_shows_them() -> None:
    for kind in (loader(), TorchLoader(range(10), 3)):  # type: ignore[arg-type]
        assert type(kind.sampler) is SequentialSampler
        assert type(kind.batch_sampler) is BatchSampler
        assert (kind.batch_sampler.sampler, kind.batch_sampler.batch_size) == (kind.sampler, 3)
    assert isinstance(loader(shuffle=True).sampler, RandomSampler)
    assert loader(sampler=[1, 2]).sampler == [1, 2]
    batches = [[1], [2, 3]]
    assert ours.DataLoader(range(4), batch_sampler=batches).batch_sampler is batches
    assert ours.DataLoader(range(4), None).batch_sampler is None
    assert ours.DataLoader(IterableTen()).sampler is None
    assert len(loader(shuffle=True).sampler) == 10


def test_a_shuffled_loader_shows_the_order_of_its_next_epoch() -> None:
    mine = loader(shuffle=True)
    for _ in range(2):
        shown = list(mine.batch_sampler)
        assert list(mine) == shown != list(mine.batch_sampler)


@pytest.mark.parametrize(
    "name", ["batch_size", "sampler", "batch_sampler", "drop_last", "dataset", "persistent_workers"]
)
def test_what_makes_the_order_cannot_be_set_any_more(name: str) -> None:
    for kind in (loader(), TorchLoader(range(10))):  # type: ignore[arg-type]
        with pytest.raises(ValueError, match=name):
            setattr(kind, name, getattr(kind, name))


def test_other_attributes_can_be_set_and_count() -> None:
    mine = loader()
    mine.collate_fn = tuple
    mine.num_workers = 1
    assert list(mine)[-1] == (9,)
    stream = ours.DataLoader(IterableTen(), None, num_workers=1, collate_fn=int)
    stream.num_workers = 2
    assert list(stream) == [x for x in range(10) for _ in range(2)]


@pytest.mark.parametrize("shuffle", [False, True])
def test_accelerate_skips_first_batches(shuffle: bool) -> None:
    mine = loader(shuffle=shuffle)
    rest = skip_first_batches(mine, 2)
    assert list(rest) == list(loader(shuffle=shuffle))[2:]


def test_accelerate_leaves_a_loader_as_it_is(tmp_path: Path) -> None:
    accelerator = Accelerator(cpu=True)
    mine = loader(shuffle=True)
    _, prepared = accelerator.prepare(torch.nn.Linear(1, 1), mine)
    assert prepared is mine
    accelerator.register_for_checkpointing(mine)
    batches = iter(mine)
    next(batches)
    accelerator.save_state(str(tmp_path))
    rest = list(batches)
    accelerator.load_state(str(tmp_path))
    assert list(mine) == rest


RANK = """
import sys, torch
from accelerate import Accelerator
from lazyckpt.compat.seqtools import DataLoader
rank, port = sys.argv[1:]
torch.distributed.init_process_group(
    "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=int(rank), world_size=2
)
try:
    Accelerator.prepare_data_loader(object.__new__(Accelerator), DataLoader(range(4)))
except ValueError as error:
    print(error)
"""


def test_accelerate_with_several_ranks_is_told_what_to_do() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    ranks = [
        subprocess.Popen(
            [sys.executable, "-c", RANK, rank, port], stdout=subprocess.PIPE, text=True
        )
        for rank in "01"
    ]
    for each in ranks:
        assert "sampler=DistributedSampler(dataset)" in each.communicate(timeout=50)[0]


class Model(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)
        self.seen: list[Any] = []

    def training_step(self, batch: Any, number: int) -> Any:
        self.seen.append(batch.tolist())
        return self.layer(batch[:, None].float()).sum()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)


@pytest.mark.filterwarnings("ignore")
def test_lightning_overfits_batches_in_order() -> None:
    model = Model()
    quiet: dict[str, Any] = {"enable_progress_bar": False, "enable_model_summary": False}
    trainer = pl.Trainer(
        accelerator="cpu",
        max_epochs=2,
        overfit_batches=2,
        logger=False,
        enable_checkpointing=False,
        **quiet,
    )
    trainer.fit(model, ours.DataLoader(range(8), 2, shuffle=True, seed=1))
    assert model.seen == [[0, 1], [2, 3]] * 2
    assert type(trainer.train_dataloader) is ours.DataLoader


def test_a_misspelt_attribute() -> None:
    with pytest.raises(AttributeError, match="'DataLoader' object has no attribute 'nothing'"):
        _ = loader().nothing
