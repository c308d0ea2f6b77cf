"""Pipelines as datasets of grain, with checkpoints by Orbax: `lz.grain`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeVar

from lazyckpt.executors.executor import Executor
from lazyckpt.pipeline import Pipeline, run
from lazyckpt.run import Run

try:
    import grain
except ImportError as error:
    raise ImportError(f'lz.grain: pip install "lazyckpt[grain]" ({error})') from None

__all__ = ["Dataset", "DatasetIterator", "dataset"]

T = TypeVar("T")


def dataset(pipeline: Pipeline[T], executor: Executor | None = None) -> Dataset[T]:
    """Convert a pipeline to a grain `IterDataset`, to transform further or to iterate over.

    Its iterators have `get_state` and `set_state`. The state is the pipeline's own, the dict
    returned by `Run.state_dict`. `grain.checkpoint.CheckpointSave` and `CheckpointRestore` accept
    the iterators.

    Args:
        pipeline: Pipeline to read.
        executor: How items are computed, as in `lz.run`.

    >>> import lazyckpt as lz
    >>> batches = lz.grain.dataset(lz.source(range(6)) | lz.shuffle(seed=0)).batch(3)
    >>> iterator = iter(batches)
    >>> state = iterator.get_state()
    >>> first = next(iterator)
    >>> iterator.set_state(state)
    >>> (next(iterator) == first).all()
    np.True_
    """
    run(pipeline, executor=executor).close()  # to check the arguments
    return Dataset(pipeline, executor)


class Dataset(grain.IterDataset, Generic[T]):
    """A pipeline as an `IterDataset`; made by `dataset`."""

    def __init__(self, pipeline: Pipeline[T], executor: Executor | None) -> None:
        super().__init__()
        self._pipeline, self._executor = pipeline, executor

    def __iter__(self) -> DatasetIterator[T]:
        return DatasetIterator(run(self._pipeline, executor=self._executor))


class DatasetIterator(grain.DatasetIterator, Generic[T]):
    """A run with grain's names for its methods."""

    def __init__(self, run: Run[T]) -> None:
        super().__init__()
        self._run = run

    def __next__(self) -> T:
        self._assert_not_closed()
        return next(self._run)

    def get_state(self) -> dict[str, Any]:
        return self._run.state_dict()

    def set_state(self, state: Mapping[str, Any]) -> None:
        self._run.load_state_dict(state)

    def close(self) -> None:
        self._run.close()
        super().close()
