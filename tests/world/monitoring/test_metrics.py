"""`metrics` in TensorBoard."""

from __future__ import annotations

from pathlib import Path

from torch.utils.tensorboard import SummaryWriter

import lazyckpt as lz


def test_a_tracker_takes_them(tmp_path: Path) -> None:
    run = lz.run(lz.source(range(10)))
    next(run)
    with SummaryWriter(str(tmp_path)) as writer:
        for name, value in lz.metrics(run).items():
            writer.add_scalar(name, value, 1)
    assert [*tmp_path.glob("events*")]
