"""Items that other ranks keep, fetched as soon as this rank is dealt them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from lazyckpt.core.call import Call, Chain
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.sizes import item_bytes
from lazyckpt.executors.lookahead import Work
from lazyckpt.executors.plan.deferred import Unfilled, deferred
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome, Reader
from lazyckpt.executors.plan.segments import Segment, all_segments, cut_after, dealt
from lazyckpt.executors.plan.tasks import stream_tasks
from lazyckpt.executors.planned import DrivenFlows
from lazyckpt.executors.pools.pool import PendingTask, PrefetchGate
from lazyckpt.executors.pools.threads import ThreadPool
from lazyckpt.executors.sharing.payloads import Asked, Payloads, is_elsewhere
from lazyckpt.executors.sharing.pool import SharedPool
from lazyckpt.failures.notes import Failure, as_failure
from lazyckpt.failures.skip_log import SkipLog
from lazyckpt.failures.skipping import skip_log_of

_AHEAD = 12  # items that are fetched ahead


class Parts(NamedTuple):
    """A pipeline, cut after `shard`.

    Attributes:
        calls: The stages up to `shard`.
        before: Their segments; rows are not filled there.
        after: The segments of the stages after it.
    """

    calls: tuple[Call, ...]
    before: list[Segment]
    after: list[Segment]

    @property
    def stays(self) -> list[Any]:
        """For each handler of the segments up to `shard`, the attribute of its segment."""
        return [each.stays for each in all_segments(self.before) if each.has_tasks]


def cut_at_shard(chain: Chain, segments: list[Segment]) -> Parts | None:
    """Cut a pipeline after `shard`; None if all items travel anyway."""
    for number, (call, machine) in enumerate(zip(chain.calls, chain.machines, strict=True), 1):
        upstream = machine.upstream
        if upstream is None or not upstream.share.ranks == 1 < machine.share.ranks:
            continue
        if call.combinator.keeps_items and upstream.skip is None and not dealt(chain):
            before, after = cut_after(segments, call)
            found = Parts(chain.calls[:number], deferred(before), after)
            return found if any(found.stays) else None
    return None


class _Coming(list[Any]):
    """Items of which this rank has asked for some."""

    def __init__(self, items: list[Any], asked: Asked) -> None:
        super().__init__(items)
        self.asked = asked


class _AskingReader(Reader):
    """Reads this rank's items, and asks their makers for them."""

    def __init__(
        self,
        chain: Chain,
        machine: Machine[Any],
        pool: SharedPool,
        suffices: Callable[[], bool] | None,
    ) -> None:
        super().__init__(chain, machine, suffices)
        self._pool = pool

    def fresh(self) -> _AskingReader:
        return _AskingReader(self.chain, self.machine, self._pool, self._suffices)

    def __call__(self, task: Any, items: list[Any] | None = None, /) -> Outcome:
        outcome, payloads = super().__call__(task, items), self._pool.payloads
        if payloads is None:
            return Outcome([], Failure(TaskLost(), ""))
        asked = payloads.ask([*_elsewhere_in(outcome.items)])
        return outcome._replace(items=_Coming(outcome.items, asked))


class FetchingPool(ThreadPool):
    """A thread that reads this rank's items up to `shard`, and asks their makers for them.

    The thread that drives this pool fills the rows of items that have come. As two threads read
    and deliver, this rank waits for no item that it doesn't need yet.
    """

    can_resume = False
    is_driven = True

    def __init__(
        self,
        pool: SharedPool,
        common: Chain,
        machine: Machine[Any],
        suffices: Callable[[], bool] | None = None,
    ) -> None:
        """Prepare to fetch.

        Args:
            pool: The pool that makes the items.
            common: The stages up to `shard`, with a skip log of their own.
            machine: Their machine.
            suffices: Whether the next item would have to be waited for; None if that is unknown.
        """
        super().__init__([_AskingReader(common, machine, pool, suffices)], 1, _AHEAD, None)
        self.chunk_size = 1 if suffices is None else 0
        self._common, self._machine = common, machine
        pool.can_resume, pool.reader = False, self

    def machine(self, gate: PrefetchGate, skip_log: SkipLog | None) -> Machine[Any]:
        """Return the machine of the fetched items, which logs skipped records as they come."""
        common = self._common
        work = Work(self, gate, 0, stream_tasks, common.calls, inner_log=skip_log)
        flows, inner_log = DrivenFlows(work, may_wait=False), skip_log_of(common)

        def flow(position: Position) -> Flow[Any]:
            if inner_log is not None and skip_log is not None:
                inner_log.lose(skip_log.lost)
            return flows(position)

        return self._machine._replace(flow=flow, item=None, view=None)

    def _take_in(self, pending: PendingTask, found: Any) -> None:
        if isinstance(found.items, _Coming):
            self.is_joining = True  # the time limit of an item doesn't run
            try:
                found = filled(found, found.items.asked, self._common.calls)
            finally:
                self.is_joining = False
        super()._take_in(pending, found)


def _elsewhere_in(items: list[Any]) -> Iterator[Any]:
    for item in items:
        yield from filter(is_elsewhere, item.parts if type(item) is Unfilled else [item])


def fetched(outcome: Outcome, payloads: Payloads, calls: tuple[Call, ...]) -> Outcome:
    """Ask for the items of an outcome, and wait until they are there."""
    return filled(outcome, payloads.ask([*_elsewhere_in(outcome.items)]), calls)


def filled(outcome: Outcome, asked: Asked, calls: tuple[Call, ...]) -> Outcome:
    """Wait for the items of an outcome, up to the first one that can't be had, and fill rows."""
    items = list[Any]()
    try:
        come = asked.wait()
        for item in outcome.items:
            if type(item) is Unfilled:
                parts = [next(come) if is_elsewhere(each) else each for each in item.parts]
                items.append(item._replace(parts=parts).filled)
            else:
                items.append(next(come) if is_elsewhere(item) else item)
    except Exception as error:
        failure = as_failure(error, calls)
        outcome = outcome._replace(failure=failure, end=None)
    return outcome._replace(items=items, item_bytes=item_bytes(items))
