"""Functions that check the laws for a pipeline or a stage."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import islice
from typing import Any

from lazyckpt.combinators.repeat import repeat
from lazyckpt.combinators.source import source
from lazyckpt.core.call import runnable
from lazyckpt.core.machine import End
from lazyckpt.pipeline import Pipeline, Stage
from lazyckpt.testing.laws import LAWS, Law, Stream
from lazyckpt.testing.traces import same, stable


def check_pipeline(pipeline: Pipeline[Any], *, limit: int = 60, model: bool = True) -> None:
    """Check all laws on the first items of a pipeline.

    Args:
        pipeline: A pipeline of built-in combinators, or with `model=False` any pipeline.
        limit: Number of items to check.
        model: If True, also compare it with the naive model of its combinators.

    Raises:
        AssertionError: If a law doesn't hold; the message names the law and the first difference.
    """
    _named("purity", stable, pipeline, limit)
    for name, law in LAWS.items():
        if name != "meaning" or model:
            _named(name, law, pipeline, limit)


def check_resume(pipeline: Pipeline[Any], *, limit: int = 60) -> None:
    """Check that a pipeline resumes exactly.

    It steps the pipeline, runs it, and stops at many points within the first items. From each it
    resumes twice, through JSON. It calls your functions many times.

    Args:
        pipeline: Pipeline to check.
        limit: Number of items to check.

    Raises:
        AssertionError: If a law doesn't hold; the message names the law and the first difference.

    >>> import lazyckpt as lz
    >>> from lazyckpt import testing
    >>> testing.check_resume(lz.source(range(20)) | lz.shuffle(4, seed=0) | lz.batch(3))
    """
    runnable("check_resume", pipeline)
    _named("purity", stable, pipeline, limit)
    for name in ("resume", "codec", "purity", "exhaustion"):
        _named(name, LAWS[name], pipeline, limit)


def check_combinator(
    stage: Stage[Any, Any],
    examples: Sequence[Any],
    *,
    model: Callable[[list[Any]], Iterable[Any]] | None = None,
    limit: int = 60,
) -> None:
    """Check the laws for a stage, over examples by index, as a stream, and repeated.

    Args:
        stage: Stage to check.
        examples: Items to feed it; pass more than it holds at a time.
        model: Its meaning, a function from the list of its inputs to the list of its outputs.
        limit: Number of items to check.

    Raises:
        AssertionError: If a law doesn't hold; the message names the law and the first difference.

    >>> import lazyckpt as lz
    >>> from lazyckpt import testing
    >>> testing.check_combinator(lz.take(2), examples=[1, 2, 3], model=lambda items: items[:2])
    """
    for data in (list(examples), Stream(examples), []):
        pipeline: Pipeline[Any] = source(data) | stage
        _named("purity", stable, pipeline, limit)
        if model is not None:
            expected = list(islice(model(list(data)), limit))
            same("meaning: items", list(islice(pipeline, limit)), expected)
        check_pipeline(pipeline, limit=limit, model=False)
        if len(data):
            check_pipeline(pipeline | repeat(2), limit=limit, model=False)
    _stops_pulling(stage, examples, limit)


def _stops_pulling(stage: Stage[Any, Any], examples: Sequence[Any], limit: int) -> None:
    data = Stream(examples)
    pipeline: Pipeline[Any] = source(data) | stage
    stream = iter(pipeline.machine.flow(pipeline.machine.init(0)))
    if len(list(islice(stream, limit))) < limit:
        pulled = data.pulled
        assert next(stream, End) is End, "exhaustion: an item after the end"
        assert data.pulled == pulled, "exhaustion: upstream was pulled again after the end"


def _named(name: str, law: Law, pipeline: Pipeline[Any], limit: int) -> None:
    try:
        law(pipeline, limit)
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}\nof {pipeline!r}") from None
