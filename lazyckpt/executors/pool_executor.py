"""Executors with workers: how many of which kind, and what is done where."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, NamedTuple, ParamSpec

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Check, checked, plural, signature_of
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor, Part
from lazyckpt.executors.lookahead import Work
from lazyckpt.executors.plan.counting import recorders_of, rereader_of
from lazyckpt.executors.plan.handlers import Handler, Mapper, Reader
from lazyckpt.executors.plan.memory import said, with_count
from lazyckpt.executors.plan.positions import Rereader
from lazyckpt.executors.plan.segments import Segment, is_stream, needs_reader, split_pipeline
from lazyckpt.executors.plan.tasks import pointwise_tasks, stream_tasks
from lazyckpt.executors.planned import Plan, handlers_of, tasks_of
from lazyckpt.executors.pools.pool import PrefetchGate, WorkerPool
from lazyckpt.executors.pools.threads import ThreadPool
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.executors.session import Session
from lazyckpt.failures.skipping import skip_log_of

P = ParamSpec("P")

_NO_RETRIES = "; only processes(...) can end a worker that hangs, and tell which item killed one"
_SHOWN = 6  # pipelines that are joined, before the others are summed up


class PoolSpec(NamedTuple):
    """The workers that an executor asks for.

    Attributes:
        start: Makes a pool of so many workers that can do the handlers' tasks.
        start_each: Makes a pool for each of several threads that drive them. None where one
            pool may be driven by all of them.
        workers: How many workers.
        noun: What one is called.
        buffer_size: Items to have ready.
        can_stream: Whether one worker can read a stream from end to end.
        is_gated: Whether nothing is made that nobody waits for.
        start_reader: Makes a pool of one process, which reads what workers can't share.
            None where a thread in this process does.
        place: Where things are done, if a number of nouns doesn't say it.
        timeout: Seconds to wait for an item.
        in_transit: Large items on their way, beside those that are made and those that are ready.
        slots: How many slots of shared memory a worker has, for so many handlers.
        worker_init: What a thread calls that reads beside the workers, with its number.
        check: Raises a PipelineError for a pipeline that they can't work on.
    """

    start: Callable[[list[Handler], int], WorkerPool]
    workers: int
    noun: str
    buffer_size: int
    can_stream: bool = True
    is_gated: bool = False
    start_reader: Callable[..., WorkerPool] | None = None
    place: str = ""
    timeout: float | None = None
    in_transit: int = 0
    slots: Callable[[int], int] | None = None
    worker_init: Callable[[int], Any] | None = None
    check: Callable[[Chain], None] | None = None
    start_each: Callable[[list[Handler]], list[WorkerPool]] | None = None

    @property
    def ahead(self) -> int:
        """Large items that workers make, have on their way and hold ready, at most."""
        ready = 0 if self.place else self.buffer_size  # tasks elsewhere are all that is held
        return self.workers + self.in_transit + ready

    @property
    def reader_ahead(self) -> int:
        """The same of who reads a stream."""
        return 1 + self.in_transit + self.buffer_size

    def split(self, chain: Chain) -> list[Segment]:
        """The segments of a pipeline for these workers."""
        return split_pipeline(chain, workers=self.workers, can_stream=self.can_stream)


class DrivingReader(Reader):
    """Reads a stream in a process of its own, and has others make what they can of it."""

    def __init__(self, chain: Chain, executor: PoolExecutor) -> None:
        spec = executor.spec
        segments, gate = spec.split(chain), PrefetchGate(spec.is_gated)
        self._executor, self._gate = executor, gate
        pool = spec.start(handlers_of(segments), spec.workers)  # they start where it works
        gate.pools.append(pool)
        recorders = recorders_of(chain) if len(segments) == 1 else None
        machine = Plan(pool, gate, skip_log_of(chain)).machine(segments, recorders)
        super().__init__(chain, pool.opening(chain, machine), recorders)

    def __reduce__(self) -> tuple[Any, ...]:
        machine = self.chain.machine
        machine.check(machine.init(0))  # that the data are those it will be made of
        return DrivingReader, (self.chain, self._executor)

    def fresh(self) -> DrivingReader:
        return DrivingReader(self.chain, self._executor)

    def without_lookahead(self) -> AbstractContextManager[None]:
        return self._gate.without_lookahead()


class PoolExecutor(Executor):
    """An executor with workers, as its public function specifies them."""

    __slots__ = ("_spec",)

    _spec: Callable[..., PoolSpec]

    def __init__(self, public: Callable[..., Executor], arguments: Mapping[str, Any]) -> None:
        super().__init__(public, arguments)
        object.__setattr__(self, "_spec", inspect.unwrap(public))

    @property
    def spec(self) -> PoolSpec:
        """The workers, with their settings."""
        return self._spec(**self.arguments)

    def open(self, chain: Chain, gate: PrefetchGate | None = None) -> Session:
        """Begin to work on a pipeline; several that end together have one `gate`."""
        spec, skip_log = self.spec, skip_log_of(chain)
        if spec.check is not None:
            spec.check(chain)
        gate, segments = gate or PrefetchGate(spec.is_gated), spec.split(chain)
        if is_stream(chain, segments):
            return _stream(chain, gate, spec.start([Reader(chain)], 1))
        is_driven = needs_reader(segments)
        if is_driven and spec.start_reader is not None:
            return _stream(chain, gate, spec.start_reader([DrivingReader(chain, self)]))
        pool = spec.start(handlers_of(segments), spec.workers)
        if not is_driven:
            tasks = tasks_of(segments[0], pool)
            return _session(chain, Work(pool, gate, 0, tasks, chain.calls, Rereader(), skip_log))
        pool.is_driven = True
        machine = pool.opening(chain, Plan(pool, gate, skip_log).machine(segments))
        driver = ThreadPool(
            [Reader(chain, machine)],
            1,
            spec.buffer_size,
            spec.timeout,
            drives=(pool,),
            worker_init=spec.worker_init,
            number=spec.workers,
        )
        session = _stream(chain, gate, driver)
        gate.pools.append(pool)  # behind what drives it
        return session

    def explain(self, chain: Chain) -> list[Part]:
        spec = self.spec
        segments = spec.split(chain)
        one = f"in one {spec.noun}"
        many = one if spec.workers == 1 else f"in {plural(spec.workers, spec.noun)}"
        many = spec.place or many
        is_one = spec.can_stream and spec.workers == 1 and len(segments) == 1
        if is_stream(chain, segments) or (is_one and segments[0].kind == "runs"):
            where = with_count(f"{one}, as one stream", spec.reader_ahead)
            return [(tuple(map(repr, chain.written)), where, chain.calls)]
        reader = "thread" if spec.start_reader is None else spec.noun
        places = {
            "chunks": (f"{many}, each item from its own state", spec.ahead),
            "runs": (f"{many}, each item with what comes of it", spec.ahead),
            "items": (f"{many}, item by item", spec.ahead),
            "local": (f"in one {reader} beside the consumer", 0),
            "chosen": (f"{many}, each chosen item from its own state", spec.ahead),
        }
        more = spec.reader_ahead if needs_reader(segments) else 0
        return list(_lines(segments, places, more))

    def memory(self, chain: Chain) -> list[str]:
        spec = self.spec
        segments = spec.split(chain)
        slots = spec.slots(len(handlers_of(segments)) or 1) if spec.slots is not None else 0
        return [said(segments, spec.buffer_size, slots, is_gated=spec.is_gated)]


def _stream(chain: Chain, gate: PrefetchGate, pool: WorkerPool) -> Session:
    """Begin to work on a pipeline that the only worker of a pool reads from end to end."""
    rereader, skip_log = rereader_of(chain), skip_log_of(chain)
    return _session(chain, Work(pool, gate, 0, stream_tasks, chain.calls, rereader, skip_log))


def _session(chain: Chain, work: Work) -> Session:
    work.gate.pools.append(work.pool)
    work.pool.skip_log = work.skip_log
    return Session(chain.machine, partial(Prefetcher, work), work.gate)


def _lines(
    segments: list[Segment], places: Mapping[str, tuple[str, int]], more: int = 0, margin: str = ""
) -> Iterator[Part]:
    """A line for each segment; those of pipelines that are joined come before, indented.

    Behind the last one so many more items are ahead.
    """
    last = [segment for segment in segments if segment.shown][-1]
    for segment in segments:
        for number, part in enumerate(segment.parts):
            if number == _SHOWN < len(segment.parts):
                yield (f"{margin}  ...",), f"and so on, for {len(segment.parts)} pipelines", ()
                break
            yield from _lines(part, places, margin=margin + "  ")
        if segment.shown:
            first, *others = segment.shown
            where, ahead = places[segment.kind]
            shown = with_count(where, ahead + more * (segment is last))
            yield (margin + first, *others), shown, segment.whole_calls


class LastStageExecutor(PoolExecutor):
    """Workers for the last stage alone, a pointwise one; the consumer does the rest."""

    __slots__ = ()

    def open(self, chain: Chain, gate: PrefetchGate | None = None) -> Session:
        spec, last, rereader = self.spec, chain.calls[-1:], Rereader()
        gate, pool = gate or PrefetchGate(spec.is_gated), spec.start([Mapper(last)], spec.workers)
        tasks = pointwise_tasks(chain.machine.upstream, last, rereader)
        return _session(chain, Work(pool, gate, 0, tasks, last, rereader, holds_items=True))


def pool_executor(
    checks: Mapping[str, Check],
) -> Callable[[Callable[P, PoolSpec]], Callable[P, Executor]]:
    """Make an executor of a function from arguments to its workers.

    Args:
        checks: One for each argument. The function's `**options` go unchecked.
    """

    def wrap(spec: Callable[P, PoolSpec]) -> Callable[P, Executor]:
        signature = signature_of(spec)
        kinds = {p.kind: p.name for p in signature.parameters.values()}
        more = kinds.get(inspect.Parameter.VAR_KEYWORD)

        @wraps(spec)
        def public(*args: P.args, **kwargs: P.kwargs) -> Executor:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                remedy = _NO_RETRIES if "retries" in kwargs else ""
                raise ArgumentError(f"{spec.__name__}: {error}{remedy}") from None
            bound.apply_defaults()
            given = dict(bound.arguments)
            options = given.pop(more, {}) if more else {}
            arguments = {
                name: checked(spec.__name__, name, value, checks[name])
                for name, value in given.items()
            }
            arguments.update(options)
            return PoolExecutor(public, arguments)

        return public

    return wrap
