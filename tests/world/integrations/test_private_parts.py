"""Parts of other packages that no document promises and this library uses: are they there?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from tests.helpers import printed


def aim_texts(folder: Path) -> None:
    if sys.version_info >= (3, 13):
        pytest.importorskip("aim", reason="Aim has no wheel for this Python")
    run = import_module("aim").Run(
        repo=str(folder), system_tracking_interval=None, capture_terminal_logs=False
    )
    context = import_module("aim.storage.context").Context({})
    texts = import_module("aim.sdk.sequences.text_sequence").Texts("lazyckpt", context, run)
    run.track(import_module("aim").Text("state"), name="lazyckpt", step=3)
    assert [(step, text.data) for step, text in texts.values.items()] == [(3, "state")]
    assert run.meta_run_tree is not None
    run.close()
    assert run.meta_run_tree is None


TRACKIO = """
from inspect import signature
import trackio
from trackio.run import Run
from trackio.sqlite_storage import SQLiteStorage
assert callable(Run._flush_queues_inline)
assert {"_is_local", "_client_lock"} <= {*Run.__init__.__code__.co_names}
signature(SQLiteStorage.get_metric_values).bind("project", "run", "metric", run_id="id")
assert trackio.context_vars.current_run.get() is None
"""


def trackio_parts(folder: Path) -> None:
    printed(TRACKIO)  # it looks for its files when it is imported


def torch_worker(folder: Path) -> None:
    module: Any = import_module("torch.utils.data._utils.worker")
    info = module.WorkerInfo(id=1, num_workers=2, seed=3, dataset=[4])
    assert module._worker_info is None
    module._worker_info = info
    try:
        assert import_module("torch.utils.data").get_worker_info() is info
    finally:
        module._worker_info = None


def torch_sampler(folder: Path) -> None:
    sampler = import_module("torch.utils.data").RandomSampler
    made = sampler.__new__(sampler)
    made.data_source, made.replacement = range(5), False
    made._num_samples = made.generator = None
    assert (len(made), sorted(made)) == (5, [0, 1, 2, 3, 4])


def accelerate_mark(folder: Path) -> None:
    accelerator = import_module("accelerate").Accelerator(cpu=True)
    loader = import_module("torch.utils.data").DataLoader(range(4))
    assert accelerator.prepare_data_loader(loader) is not loader
    loader._is_accelerate_prepared = True
    assert accelerator.prepare_data_loader(loader) is loader


PARTS: dict[str, Callable[[Path], None]] = {
    "aim: a run's texts beneath its sequences, meta_run_tree None once it is closed": aim_texts,
    "trackio: how a run writes at once, how its rows are read": trackio_parts,
    "torch: _utils.worker._worker_info and WorkerInfo": torch_worker,
    "torch: RandomSampler's attributes, among them _num_samples": torch_sampler,
    "accelerate: _is_accelerate_prepared": accelerate_mark,
}


@pytest.mark.filterwarnings("ignore:The ``declarative_base:DeprecationWarning")
@pytest.mark.parametrize("part", PARTS)
def test_a_private_part_is_there(part: str, tmp_path: Path) -> None:
    PARTS[part](tmp_path)
