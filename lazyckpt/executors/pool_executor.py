"""Executors with workers: how many of which kind, and where each stage runs."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial, wraps
from typing import Any, NamedTuple, ParamSpec

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import Check, checked, plural, signature_of
from lazyckpt.core.machine import Machine
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.executor import Executor, Part
from lazyckpt.executors.lookahead import Work
from lazyckpt.executors.plan.handlers import Handler, Mapper, Reader
from lazyckpt.executors.plan.memory import said, with_count
from lazyckpt.executors.plan.segments import Segment, is_stream, needs_reader, split_pipeline
from lazyckpt.executors.plan.tasks import pointwise_tasks, stream_tasks
from lazyckpt.executors.planned import Plan, handlers_of, tasks_of
from lazyckpt.executors.pools.pool import PrefetchGate, WorkerPool
from lazyckpt.executors.pools.threads import ThreadPool
from lazyckpt.executors.prefetcher import Prefetcher
from lazyckpt.executors.session import Session
from lazyckpt.failures.skipping import skip_log_of

P = ParamSpec("P")

_NO_RETRIES = "; only processes(...) can stop a hanging worker, and tell which item killed one"
_SHOWN = 6  # joined pipelines with lines of their own; the others are summed up


class PoolSpec(NamedTuple):
    """The workers that an executor asks for.

    Attributes:
        start: Function that makes a pool with the given number of workers for the tasks of
            the given handlers.
        workers: Number of workers.
        noun: Word for one worker.
        buffer_size: Number of items to hold ready.
        can_stream: If True, one worker can read a stream from end to end.
        deals_first: If True, functions just before `shard` are called for items of this rank only.
        is_gated: If True, compute only items that the consumer waits for.
        start_reader: Function that makes a pool of one process for the stages that need items
            in order. None if a thread of this process runs them.
        place: Words for the place where tasks run, if it isn't a number of workers.
        timeout: Seconds to wait for an item.
        in_transit: Number of large items in transit, in addition to items being computed and
            items held ready.
        slots: Function from the number of handlers to the number of shared memory slots per
            worker.
        worker_init: Function that the thread for stages in order calls with its number.
        for_chain: Function that returns the executor that runs a pipeline, if that depends on the
            pipeline.
        start_each: Function that makes one pool per thread that drives it. None if several
            threads can drive one pool.
        stream_chunk: Number of items of each task of the worker that runs stages in order; 0 to
            adapt. With 1, it holds no item back while it waits for the next one.
    """

    start: Callable[[list[Handler], int], WorkerPool]
    workers: int
    noun: str
    buffer_size: int
    can_stream: bool = True
    deals_first: bool = True
    is_gated: bool = False
    start_reader: Callable[..., WorkerPool] | None = None
    place: str = ""
    timeout: float | None = None
    in_transit: int = 0
    slots: Callable[[int], int] | None = None
    worker_init: Callable[[int], Any] | None = None
    for_chain: Callable[[Chain], PoolExecutor] | None = None
    start_each: Callable[[list[Handler]], list[WorkerPool]] | None = None
    stream_chunk: int = 0

    @property
    def ahead(self) -> int:
        """The most large items that are being computed, in transit and held ready."""
        ready = 0 if self.place else self.buffer_size  # other executors hold only their tasks
        return self.workers + self.in_transit + ready

    @property
    def reader_ahead(self) -> int:
        """The same number for the worker that runs stages in order."""
        return 1 + self.in_transit + self.buffer_size

    def split(self, chain: Chain) -> list[Segment]:
        """Split a pipeline into segments for these workers."""
        return split_pipeline(
            chain,
            workers=self.workers,
            can_stream=self.can_stream,
            deals_first=self.deals_first,
        )


class DrivingReader(Reader):
    """Runs stages in order in a separate process, which drives workers for the other stages."""

    def __init__(self, chain: Chain, executor: PoolExecutor) -> None:
        spec = executor.spec
        segments, gate = spec.split(chain), PrefetchGate(spec.is_gated)
        self._executor, self._gate = executor, gate
        pools, machine = executor.driven(chain, segments, gate)
        gate.pools += pools
        super().__init__(chain, machine)

    def __reduce__(self) -> tuple[Any, ...]:
        machine = self.chain.machine
        machine.check(machine.init(0))  # before pickling: the source's data haven't changed
        return DrivingReader, (self.chain, self._executor)

    def without_lookahead(self) -> AbstractContextManager[None]:
        return self._gate.without_lookahead()

    def stop(self) -> None:
        self._gate.is_closed = True
        for pool in self._gate.pools:
            pool.stop()


class PoolExecutor(Executor):
    """An executor with the workers that its public function specifies."""

    __slots__ = ()

    @property
    def spec(self) -> PoolSpec:
        """The workers and their settings."""
        found: PoolSpec = inspect.unwrap(self.public)(**self.arguments)
        return found

    def open(self, chain: Chain, gate: PrefetchGate | None = None) -> Session:
        """Start a session for a pipeline. Sessions that end together share a `gate`."""
        spec, skip_log = self.spec, skip_log_of(chain)
        if spec.for_chain is not None:
            return spec.for_chain(chain).open(chain, gate)
        gate, segments = gate or PrefetchGate(spec.is_gated), spec.split(chain)
        if is_stream(chain, segments):
            return _stream(chain, gate, spec.start([Reader(chain)], 1))
        is_driven = needs_reader(segments)
        if is_driven and spec.start_reader is not None:
            reader = spec.start_reader([DrivingReader(chain, self)])
            reader.chunk_size = spec.stream_chunk
            return _stream(chain, gate, reader)
        if not is_driven:
            pool = spec.start(handlers_of(segments), spec.workers)
            tasks = tasks_of(segments[0], pool)
            return _session(chain, Work(pool, gate, 0, tasks, chain.calls, skip_log))
        pools, machine = self.driven(chain, segments, gate)
        for pool in pools:
            pool.is_driven = True
        driver = ThreadPool(
            [Reader(chain, machine)],
            1,
            spec.buffer_size,
            spec.timeout,
            drives=tuple(pools),
            worker_init=spec.worker_init,
            number=spec.workers,
        )
        driver.chunk_size = spec.stream_chunk
        session = _stream(chain, gate, driver)
        gate.pools += pools  # after the pool that drives them
        return session

    def driven(
        self, chain: Chain, segments: list[Segment], gate: PrefetchGate
    ) -> tuple[list[WorkerPool], Machine[Any]]:
        """Return pools for the segments, and the machine of the thread that drives them."""
        pool = self.spec.start(handlers_of(segments), self.spec.workers)  # they start later
        machine = Plan(pool, gate, skip_log_of(chain)).machine(segments)
        return [pool], pool.opening(chain, machine)

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
            "chunks": (f"{many}, by random access", spec.ahead),
            "runs": (f"{many}, each input with its outputs", spec.ahead),
            "items": (f"{many}, item by item", spec.ahead),
            "local": (f"in one separate {reader}, in order", 0),
            "chosen": (f"{many}, chosen items by random access", spec.ahead),
        }
        more = spec.reader_ahead if needs_reader(segments) else 0
        return list(_lines(segments, places, more))

    def memory(self, chain: Chain) -> list[str]:
        spec = self.spec
        segments = spec.split(chain)
        slots = spec.slots(len(handlers_of(segments)) or 1) if spec.slots is not None else 0
        return [said(segments, spec.buffer_size, slots, is_gated=spec.is_gated)]


def _stream(chain: Chain, gate: PrefetchGate, pool: WorkerPool) -> Session:
    """Start a session in which the only worker of a pool reads the pipeline from end to end."""
    skip_log = skip_log_of(chain)
    return _session(chain, Work(pool, gate, 0, stream_tasks, chain.calls, skip_log))


def _session(chain: Chain, work: Work) -> Session:
    work.gate.pools.append(work.pool)
    work.pool.skip_log = work.skip_log
    return Session(chain.machine, partial(Prefetcher, work), work.gate)


def _lines(
    segments: list[Segment], places: Mapping[str, tuple[str, int]], more: int = 0, margin: str = ""
) -> Iterator[Part]:
    """Yield a line per segment, after the indented lines of the pipelines that it joins.

    After the last segment, `more` items are prefetched in addition.
    """
    last = [segment for segment in segments if segment.shown][-1]
    for segment in segments:
        for number, part in enumerate(segment.parts):
            if number == _SHOWN < len(segment.parts):
                yield (f"{margin}  ...",), f"and so on, for {len(segment.parts)} pipelines", None
                break
            yield from _lines(part, places, margin=margin + "  ")
        if segment.shown:
            first, *others = segment.shown
            where, ahead = places[segment.kind]
            shown = with_count(where, ahead + more * (segment is last))
            yield (margin + first, *others), shown, segment.whole_calls


class LastStageExecutor(PoolExecutor):
    """Runs only the last stage in workers, which is pointwise; the consumer runs the others."""

    __slots__ = ()

    def open(self, chain: Chain, gate: PrefetchGate | None = None) -> Session:
        spec, last = self.spec, chain.calls[-1:]
        gate, pool = gate or PrefetchGate(spec.is_gated), spec.start([Mapper(last)], spec.workers)
        tasks = pointwise_tasks(chain.machine.upstream, last)
        return _session(chain, Work(pool, gate, 0, tasks, last, holds_items=True))


def pool_executor(
    checks: Mapping[str, Check],
) -> Callable[[Callable[P, PoolSpec]], Callable[P, Executor]]:
    """Turn a function from arguments to a `PoolSpec` into a function that returns an executor.

    Args:
        checks: One check per argument. `**options` of the function aren't checked.
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
                bare = [p.replace(annotation=p.empty) for p in signature.parameters.values()]
                remedy = f"; the signature is {spec.__name__}{inspect.Signature(bare)}"
                remedy = _NO_RETRIES if "retries" in kwargs else remedy
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
