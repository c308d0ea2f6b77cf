"""Pipelines of which a part is made ahead: the stages before `infinibatch_ahead`."""

from __future__ import annotations

import logging
import multiprocessing
import pickle
from collections.abc import Callable, Iterator
from operator import length_hint
from typing import Any

from lazyckpt.core.call import Call
from lazyckpt.core.machine import Flow, Machine, Position
from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import processes, threads
from lazyckpt.executors.pools.pool import PendingTask
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.executors.session import Session
from lazyckpt.pipeline import Pipeline, combinator

logger = logging.getLogger("lazyckpt.compat.infinibatch")

_MARK = "infinibatch_ahead"


@combinator(listed=False, free=("executor", "logs"), lockstep=True)
def infinibatch_ahead(upstream: Machine[Any], executor: Executor, logs: bool) -> Machine[Any]:
    """The items as they are; what comes before is made ahead, by an executor.

    State: none.
    """
    return upstream


def made_ahead(
    pipeline: Pipeline[Any], workers: int, buffer_size: int, logs: bool = False
) -> Pipeline[Any]:
    """A pipeline whose items processes make ahead; a log says, if it is to, when none is ready."""
    executor = _executing(pipeline, workers, buffer_size)
    return pipeline | infinibatch_ahead(executor=executor, logs=logs)


def _executing(pipeline: Pipeline[Any], workers: int, buffer_size: int) -> Executor:
    """Processes; threads where processes are not forked and the pipeline can't be sent to them."""
    if multiprocessing.get_start_method() != "fork":
        try:
            pickle.dumps(pipeline)
        except Exception:
            return threads(workers, buffer_size=buffer_size)
    return processes(workers, buffer_size=buffer_size)


def is_ahead(pipeline: Pipeline[Any]) -> bool:
    """Whether any part of a pipeline is made ahead."""
    return any(call.name == _MARK or any(map(is_ahead, _parts(call))) for call in pipeline.calls)


def led(pipeline: Pipeline[Any]) -> Executor | None:
    """The executor of a pipeline that is made ahead as a whole."""
    last = pipeline.calls[-1]
    if last.name != _MARK or last.arguments["logs"]:
        return None
    executor: Executor = last.arguments["executor"]
    return executor


def live(pipeline: Pipeline[Any], sessions: list[Session]) -> Pipeline[Any]:
    """The same pipeline, with workers for its parts; their sessions are added to the list."""
    calls = pipeline.calls
    begin = max((n for n, call in enumerate(calls, 1) if call.name == _MARK), default=0)
    machine: Machine[Any] | None = None
    if begin:  # what is made ahead before that is made by the same worker
        part: Pipeline[Any] = Pipeline(calls[:begin])
        arguments = calls[begin - 1].arguments
        session = arguments["executor"].open(part)
        sessions.append(session)
        flow = _logged(session) if arguments["logs"] else session.machine.flow
        machine = part.machine._replace(flow=flow, view=None)
    for call in calls[begin:]:
        machine = _revived(call, sessions).build(machine)
    found: Pipeline[Any] = Pipeline(calls)
    found.__dict__["machine"] = machine
    return found


def _parts(call: Call) -> list[Pipeline[Any]]:
    found: list[Pipeline[Any]] = []
    for value in call.arguments.values():
        several = value if isinstance(value, tuple) else (value,)
        found += [each for each in several if isinstance(each, Pipeline)]
    return found


def _revived(call: Call, sessions: list[Session]) -> Call:
    if not any(map(is_ahead, _parts(call))):
        return call

    def revived(value: Any) -> Any:
        if isinstance(value, tuple):
            return tuple(map(revived, value))
        return live(value, sessions) if isinstance(value, Pipeline) else value

    return call.replaced(**{name: revived(value) for name, value in call.arguments.items()})


def _logged(session: Session) -> Callable[[Position], Flow[Any]]:
    """The flow of a session that says when nothing is ready."""

    def flow(position: Position) -> Flow[Any]:
        made: Flow[Any] = session.machine.flow(position)
        prefetcher: Any = session.prefetching

        def items() -> Iterator[Any]:
            stream = iter(made)
            while True:
                if not _has_more(prefetcher):
                    logger.warning("trying to fetch item, but prefetch buffer is empty")
                for item in stream:
                    yield item
                    break
                else:
                    return

        return Flow(items(), made.snapshot)

    return flow


def _has_more(prefetcher: Prefetcher) -> bool:
    """Whether the next item is there, or an error or the end instead."""
    if length_hint(prefetcher.items):
        return True
    if not prefetcher.has_pending:
        return False
    pending = prefetcher.next_pending
    if not isinstance(pending, PendingTask) or pending.outcome is not None:
        return True
    handle = pending.handle
    return handle.connection.poll() if hasattr(handle, "connection") else not handle.empty()
