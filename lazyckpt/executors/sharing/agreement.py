"""Agreement of the ranks that share work: their stages, settings and data must be equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import blake2b
from types import FunctionType
from typing import Any, TypeVar

import numpy as np

from lazyckpt.core.call import Call, Chain, is_pipelines
from lazyckpt.core.content import content, digest, dumps
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine
from lazyckpt.core.values import is_function
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Handler
from lazyckpt.executors.pools.pool import WorkerPool
from lazyckpt.executors.pools.progress import say_alive
from lazyckpt.executors.sharing.link import SHARDS, Link, Meeting, Reach
from lazyckpt.executors.sharing.outcomes import KEY_BYTES
from lazyckpt.failures.skipping import skip_log_of

T = TypeVar("T")

_SAMPLES = 4096  # items compared, of data in memory
_FEW = 4  # the same, of other data, which may be slow
_WHOLE = 1 << 26  # bytes of an array up to which all of it is compared
_SHOWN = 200  # characters of a function's bound values that are compared as they are


def told_of(chain: Chain, chunk_size: int) -> dict[str, Any]:
    """Return the settings that ranks tell each other, as `Meeting.join` takes them."""
    on_error = "raise" if skip_log_of(chain) is None else "skip"
    equal = {"on_error": on_error, "chunk_size": chunk_size, **dict(_stages(chain, ""))}
    return {**equal, SHARDS: [*_shards(chain)]}


def opening_of(
    pool: WorkerPool,
    chain: Chain,
    machine: Machine[T],
    begin: Callable[[Mapping[str, Any]], None],
    more: Mapping[str, Any] = {},
) -> Machine[T]:
    """Return a machine whose flows begin on all ranks together: `begin` receives the position."""
    told = {**told_of(chain, pool.chunk_size), "gated": pool.is_gated, **more}

    def flow(position: Position) -> Flow[T]:
        if pool.is_driven and pool.is_stopped:
            raise TaskLost
        pool.is_joining = True  # the time limit of an item doesn't run
        try:
            begin({**told, "position": repr(position)})
        finally:
            pool.is_joining = False
        return machine.flow(position)

    return machine._replace(flow=flow)


def join(
    pool: WorkerPool,
    meeting: Meeting,
    told: Mapping[str, Any],
    reach: Reach,
    use: Callable[[Link], None],
) -> Link:
    """Join a meeting for a pool, which begins to `use` the link.

    Raises:
        TaskLost: The pool was stopped; soon after it was.
    """
    generation = pool.generation

    def look() -> None:
        say_alive()  # where this is a process of which others wait for items
        if pool.generation != generation or pool.is_stopped:
            raise TaskLost

    link = meeting.join(told, reach, look)
    use(link)
    try:
        look()
    except TaskLost:
        link.close()
        raise
    return link


def common_key(
    handlers: Sequence[Handler], handler: int, payload: Any, more: Sequence[Any] = ()
) -> bytes | None:
    """Return the unique key of a task, equal on all ranks; None for a task of one rank."""
    calls = handlers[handler].calls  # one of which may deal the items that it is given
    if handlers[handler].share(payload).ranks > 1 or any(map(_deals, calls)):
        return None
    position, *rest = handlers[handler].name(payload)
    text = repr((handler, position, *rest, *more))
    return blake2b(text.encode(), digest_size=KEY_BYTES).digest()


def _deals(call: Call) -> bool:
    return bool(call.arguments.get("num_shards", 1) > 1)


def _shards(chain: Chain) -> Iterator[tuple[int, int]]:
    """Yield the number of shards and the index of each stage that deals items."""
    for call in chain.calls:
        for each in call.chains:
            yield from _shards(each)
        if _deals(call):
            yield call.arguments["num_shards"], call.arguments["index"]


def _stages(chain: Chain, prefix: str) -> Iterator[tuple[str, str]]:
    """Yield each stage with its settings and data, after those of the pipelines that it joins."""
    stages = zip(chain.calls, chain.entries, chain.machines, strict=True)
    for number, (call, entry, machine) in enumerate(stages):
        for place, each in enumerate(call.chains):
            yield from _stages(each, f"{prefix}{call.combinator.name}.{place} ")
        name = f"{prefix}{number} {call.combinator.name}"
        yield name, entry.arguments
        for argument, value in call.arguments.items():
            if call.combinator.is_source and (found := _sampled(value)):
                yield f"{name} {argument}", found
            elif is_function(value) and machine.share.ranks == 1:
                told = dumps(_function(value))
                yield f"{name} {argument}", told if len(told) < _SHOWN else digest(told)


def _function(value: Any) -> Any:
    """Return the name of a function and the values bound to it, as JSON."""
    if isinstance(value, partial):
        return [_function(value.func), _content(value.args), _content(value.keywords)]
    if not isinstance(value, FunctionType):
        name = getattr(value, "__qualname__", None)
        return name if isinstance(name, str) else type(value).__qualname__
    bound = [each for each in (value.__defaults__, value.__kwdefaults__) if each]
    for variable, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
        with suppress(ValueError):  # it isn't set yet
            bound.append({variable: cell.cell_contents})
    return [value.__qualname__, *map(_content, bound)]


def _sampled(data: Any) -> str:
    """Return a digest of evenly spaced items of data that can be indexed, or of all of them."""
    kind = type(data)  # a function may be a class, which has these for its objects
    is_indexable = hasattr(kind, "__getitem__") and hasattr(kind, "__len__")
    if isinstance(data, (str, bytes)) or is_pipelines(data) or not is_indexable:
        return ""
    if isinstance(data, np.ndarray) and data.nbytes <= _WHOLE and not data.dtype.hasobject:
        return digest(dumps(_content(data)))
    is_at_hand = isinstance(data, (list, tuple, range, np.ndarray))
    count = min(len(data), _SAMPLES if is_at_hand else _FEW)
    places = np.linspace(0, len(data) - 1, count).astype(int).tolist() if count else []
    return digest(dumps([len(data), [_item(data, place) for place in places]]))


def _item(data: Sequence[Any], place: int) -> Any:
    try:
        return _content(data[place])
    except Exception as error:
        return type(error).__name__


def _content(value: Any) -> Any:
    """Return the contents of a value as JSON; of an object without comparable ones, its type."""
    try:
        return content(value, is_strict=False)
    except Exception as error:  # of the object's own code, or it contains itself
        return type(error).__name__
