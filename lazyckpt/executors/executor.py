"""Executors as values: who makes a run's items, and what is done where."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple, ParamSpec

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import Check, brief, checked, is_integer
from lazyckpt.core.show import same, show
from lazyckpt.errors import ArgumentError
from lazyckpt.executors.plan.handlers import Handler
from lazyckpt.executors.plan.report import Part, laid_out, warnings
from lazyckpt.executors.plan.segments import Segment, split_pipeline
from lazyckpt.executors.pools.pool import PrefetchGate, WorkerPool
from lazyckpt.executors.pools.threads import ThreadPool
from lazyckpt.executors.session import Session, open_last_stage, open_session

P = ParamSpec("P")

_option = inspect.Parameter("option", inspect.Parameter.KEYWORD_ONLY)


class Executor:
    """How a run's items are made. It changes no item, order or state.

    An executor is a value, as pipelines are: frozen, compared by value, picklable
    where its arguments are.
    """

    __slots__ = ("arguments", "public")

    arguments: Mapping[str, Any]
    public: Callable[..., Any]

    def __init__(self, public: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        object.__setattr__(self, "public", public)
        object.__setattr__(self, "arguments", arguments)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{self!r} is a value: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{self!r} is a value: {name} cannot be deleted")

    def open(self, chain: Chain) -> Session | None:
        """Begin to work on a pipeline; None where the consumer does all of it."""
        return None

    def explain(self, chain: Chain) -> list[Part]:
        """Which stages run together, and where."""
        return [(tuple(map(repr, chain.written)), "in the consumer's thread, when asked for")]

    def __repr__(self) -> str:
        parameters = inspect.signature(self.public).parameters
        shown = []
        for name, value in self.arguments.items():
            parameter = parameters.get(name, _option)
            if not same(value, parameter.default):
                is_positional = parameter.kind is not parameter.KEYWORD_ONLY
                is_bare = is_positional and parameter.default is parameter.empty
                text = repr(value) if isinstance(value, Executor) else show(value)
                shown.append(text if is_bare else f"{name}={text}")
        return f"{self.public.__name__}({', '.join(shown)})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Executor):
            return NotImplemented
        return self.public is other.public and same(dict(self.arguments), dict(other.arguments))

    def __hash__(self) -> int:
        return hash((self.public.__name__, tuple(map(show, self.arguments.values()))))

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (type(self), self.public, dict(self.arguments))


def _restored(
    kind: type[Executor], public: Callable[..., Executor], arguments: dict[str, Any]
) -> Executor:
    return kind(public, arguments)


class PoolSpec(NamedTuple):
    """The workers that an executor asks for.

    Attributes:
        start: Makes a pool of so many workers that can do the handlers' tasks.
        workers: How many workers.
        noun: What one is called.
        buffer_size: Items to have ready.
        can_stream: Whether one worker can read a stream from end to end.
        is_gated: Whether nothing is made that nobody waits for.
        place: Where things are done, if a number of nouns doesn't say it.
        timeout: Seconds to wait for an item.
    """

    start: Callable[[list[Handler], int], WorkerPool]
    workers: int
    noun: str
    buffer_size: int
    can_stream: bool = True
    is_gated: bool = False
    place: str = ""
    timeout: float | None = None

    def split(self, chain: Chain) -> list[Segment]:
        """The segments of a pipeline for these workers."""
        return split_pipeline(chain, workers=self.workers, can_stream=self.can_stream)


class PoolExecutor(Executor):
    """An executor with workers, as its public function specifies them."""

    __slots__ = ("_spec",)

    _spec: Callable[..., PoolSpec]

    def __init__(self, public: Callable[..., Executor], arguments: Mapping[str, Any]) -> None:
        super().__init__(public, arguments)
        object.__setattr__(self, "_spec", public.__wrapped__)  # type: ignore[attr-defined]

    @property
    def spec(self) -> PoolSpec:
        """The workers, with their settings."""
        return self._spec(**self.arguments)

    def open(self, chain: Chain) -> Session:
        spec = self.spec

        def start_driver(handler: Handler, driven: WorkerPool) -> WorkerPool:
            return ThreadPool([handler], 1, spec.buffer_size, spec.timeout, drives=(driven,))

        gate, segments = PrefetchGate(spec.is_gated), spec.split(chain)
        return open_session(chain, segments, gate, spec.start, start_driver, spec.workers)

    def explain(self, chain: Chain) -> list[Part]:
        spec = self.spec
        segments = spec.split(chain)
        one = f"in one {spec.noun} beside the consumer"
        many = one if spec.workers == 1 else f"in {spec.workers} {plural(spec.noun)}"
        many = spec.place or many
        if len(segments) == 1 and segments[0].kind == "chunks" and chain.machine.skip is None:
            return [(tuple(map(repr, chain.written)), f"{one}, as one stream")]
        places = {
            "chunks": f"{many}, each item from its own state",
            "items": f"{many}, item by item",
            "local": "in one thread beside the consumer",
        }
        return [(each.shown, places[each.kind]) for each in segments if each.shown]


class LastStageExecutor(PoolExecutor):
    """Workers for the last stage alone, a pointwise one; the consumer does the rest."""

    __slots__ = ()

    def open(self, chain: Chain) -> Session:
        spec = self.spec
        gate = PrefetchGate(spec.is_gated)
        return open_last_stage(chain, gate, spec.start, spec.workers)


def plural(noun: str) -> str:
    return noun + ("es" if noun.endswith("s") else "s")


def pool_executor(
    checks: Mapping[str, Check],
) -> Callable[[Callable[P, PoolSpec]], Callable[P, Executor]]:
    """Make an executor of a function from arguments to its workers.

    Args:
        checks: One for each argument. The function's `**options` go unchecked.
    """

    def wrap(spec: Callable[P, PoolSpec]) -> Callable[P, Executor]:
        signature = inspect.signature(spec)
        kinds = {p.kind: p.name for p in signature.parameters.values()}
        more = kinds.get(inspect.Parameter.VAR_KEYWORD)

        @wraps(spec)
        def public(*args: P.args, **kwargs: P.kwargs) -> Executor:
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise ArgumentError(f"{spec.__name__}: {error}") from None
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


def as_executor(value: Any) -> Executor | None:
    """The value, if it is an executor or None; an `ArgumentError` for anything else."""
    if value is None or isinstance(value, Executor):
        return value
    remedy = ""
    if callable(getattr(value, "submit", None)):
        remedy = f"; write futures({show(value)}, buffer_size=...)"
    elif callable(value):
        remedy = f"; write {show(value)}()"
    elif hasattr(value, "to_json"):
        remedy = "; write state=..."
    elif is_integer(value):
        remedy = f"; write threads({value}) or processes({value})"
    raise ArgumentError(f"run: executor must be an executor, got {brief(value)}{remedy}")


def explain(pipeline: Chain, executor: Executor | None = None) -> str:
    """Say what will run where. Starts nothing.

    Args:
        pipeline: The pipeline to run.
        executor: The executor to run it with; None is `inline()`.

    Returns:
        A line for each segment of the pipeline, its stages and where they run, or more
        lines for long ones; and a warning where the first items of a shuffled epoch
        are taken, which are others in each epoch.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(9)) | lz.map(str) | lz.filter(str.isdigit) | lz.batch(2)
    >>> print(lz.explain(pipeline, lz.threads(4)))
    source(range(0, 9)) | map(str)  in 4 threads, each item from its own state
    filter(str.isdigit) | batch(2)  in one thread beside the consumer
    """
    chain: Chain = runnable("explain", pipeline)
    parts = (as_executor(executor) or Executor(explain, {})).explain(chain)
    return "\n".join([laid_out(parts), *warnings(chain)])
