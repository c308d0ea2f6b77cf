"""What makes a run's items: a pipeline, an executor's workers, and a cursor."""

from __future__ import annotations

from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from lazyckpt.core.call import Chain
from lazyckpt.core.entries import room_for_texts
from lazyckpt.core.machine import Machine
from lazyckpt.cursor import Cursor
from lazyckpt.executors.executor import Executor
from lazyckpt.failures.skip_log import SkipLog

if TYPE_CHECKING:
    from lazyckpt.executors.session import Session

T = TypeVar("T")


class Execution(NamedTuple, Generic[T]):
    """What makes a pipeline's items, and where it is in them.

    Attributes:
        pipeline: It.
        session: The executor's workers.
        machine: What the cursor goes through.
        cursor: Where the item delivered last is.
    """

    pipeline: Chain
    session: Session | None
    machine: Machine[T]
    cursor: Cursor[T]


def prepared(pipeline: Chain, executor: Executor | None, *, skips: bool) -> Execution[T]:
    """What makes the items of a pipeline."""
    skip_log = SkipLog(room_for_texts(pipeline.entries))
    made = _skipping(pipeline, skip_log) if skips else pipeline
    session = None if executor is None else executor.open(made)
    machine = made.machine if session is None else session.machine
    if machine is not pipeline.machine:  # made of data that may have changed since
        pipeline.machine.check(pipeline.machine.init(0))
    skip_log.is_direct = skip_log.is_direct or session is None
    cursor: Cursor[T] = Cursor(machine, skip_log, partial(_again, pipeline, skips=skips))
    return Execution(pipeline, session, machine, cursor)


def with_skip_log(pipeline: Chain, *, skips: bool) -> tuple[Chain, SkipLog]:
    """The pipeline whose items are made, with a skip log of its own."""
    skip_log = SkipLog(room_for_texts(pipeline.entries))
    skip_log.is_direct = True
    return _skipping(pipeline, skip_log) if skips else pipeline, skip_log


def _again(pipeline: Chain, *, skips: bool) -> tuple[Machine[Any], SkipLog]:
    """The pipeline's machine with a skip log of its own, to read items again."""
    chain, skip_log = with_skip_log(pipeline, skips=skips)
    return chain.machine, skip_log


def _skipping(pipeline: Chain, skip_log: SkipLog) -> Chain:
    """The pipeline that leaves out what fails."""
    module = import_module("lazyckpt.failures.skipping")  # when something is to be
    found: Chain = module.skipping(pipeline, skip_log)
    return found
