"""Pipelines of which a part is prefetched: the stages before `infinibatch_prefetch`."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from lazyckpt.core.call import Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.stages import passing
from lazyckpt.decorators import combinator
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes, threads
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.executors.session import Session
from lazyckpt.pipeline import Pipeline

logger = logging.getLogger("lazyckpt.compat.infinibatch")

_NAME = "infinibatch_prefetch"


@combinator(registered=False, keeps_items=True, unrecorded=("executor", "logs"))
def infinibatch_prefetch(upstream: Machine[Any], executor: Executor, logs: bool) -> Machine[Any]:
    """The items as they are; an executor makes what comes before ahead. State: none."""
    return passing(upstream)


def prefetched(
    pipeline: Pipeline[Any], workers: int, buffer_size: int, logs: bool = False
) -> Pipeline[Any]:
    """A pipeline that processes make ahead, or threads where it can't be sent to processes.

    With `logs` there is a warning when an item is asked for and none is ready.
    """
    make: Callable[..., Executor] = processes
    if multiprocessing.get_start_method() != "fork":
        try:
            pickle.dumps(pipeline)
        except Exception:
            make = threads
    return pipeline | infinibatch_prefetch(make(workers, buffer_size=buffer_size), logs)


def has_prefetch(pipeline: Chain) -> bool:
    """Whether any part of a pipeline is prefetched."""
    return any(call.name == _NAME or any(map(has_prefetch, call.chains)) for call in pipeline.calls)


def with_workers(pipeline: Pipeline[Any], sessions: list[Session]) -> Pipeline[Any]:
    """The same pipeline, with workers for its parts, whose sessions are added to the list."""
    calls = pipeline.calls
    begin = max((n for n, call in enumerate(calls, 1) if call.name == _NAME), default=0)
    machine: Machine[Any] | None = None
    if begin:  # what is prefetched before that is made by the same worker
        part: Pipeline[Any] = Pipeline(calls[:begin])
        arguments = calls[begin - 1].arguments
        session = arguments["executor"].open(part)
        sessions.append(session)
        flow = partial(_logged, session) if arguments["logs"] else session.machine.flow
        machine = part.machine._replace(flow=flow, view=None)
    for call in calls[begin:]:
        machine = call.with_chains(lambda each: with_workers(each, sessions)).build(machine)
    found: Pipeline[Any] = Pipeline(calls)
    found.__dict__["machine"] = machine
    return found


def _logged(session: Session, position: Position) -> Flow[Any]:
    """The flow of a session, which logs when nothing is ready."""
    made: Flow[Any] = session.machine.flow(position)
    prefetcher = session.prefetching
    assert isinstance(prefetcher, Prefetcher)

    def look() -> None:
        if not prefetcher.is_ready:
            logger.warning("trying to fetch item, but prefetch buffer is empty")

    def items() -> Iterator[Any]:
        look()
        for item in made:
            yield item
            look()

    return Flow(items(), made.snapshot)
