"""Items made of more than an item: `enumerate`, `random_map`, `flat_scan`, `cache`."""

from __future__ import annotations

import builtins
import itertools
from collections.abc import Callable, Iterable, Iterator, Set
from functools import lru_cache
from typing import Any, TypeVar

import numpy as np

from lazyckpt.combinators.flat_map import opened
from lazyckpt.core.checks import function, integer, natural, optional, positive
from lazyckpt.core.machine import (
    MOST,
    End,
    Flow,
    Machine,
    Position,
    Table,
    View,
    countable,
    counted,
    machine,
    within,
)
from lazyckpt.core.prng import derive, hashed, hashes
from lazyckpt.core.registry import Again, Taken
from lazyckpt.core.user_state import freeze, storable, thaw
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline, combinator

A = TypeVar("A")
B = TypeVar("B")
S = TypeVar("S")

_ENDED = (1 << 53) - 1  # in place of the number of outputs given, which it never is


@combinator(checks={"start": integer}, pointwise=True)
def enumerate(upstream: Machine[Any], start: int = 0) -> Machine[tuple[int, Any]]:
    """Every item with its number in the epoch: `(number, item)`.

    - `start`: the first number

    State: a count of items.
    Resume: reads nothing again.
    Random access: kept.
    Rank-free: yes.

    Before `shard` the numbers are those of the whole stream; behind it, each
    rank's own.

    >>> import lazyckpt as lz
    >>> list(lz.source(["a", "b"]) | lz.enumerate(1))
    [(1, 'a'), (2, 'b')]
    """

    def paired(epoch: int, first: int) -> Callable[[Iterable[Any]], Iterator[tuple[int, Any]]]:
        return lambda items: builtins.zip(itertools.count(start + first), items)

    return _numbered("enumerate", upstream, paired)


@combinator(checks={"fn": function, "seed": natural}, pointwise=True)
def random_map(
    upstream: Machine[A], fn: Callable[[np.random.Generator, A], B], *, seed: int
) -> Machine[B]:
    """`fn(rng, item)` for every item, with a `numpy.random.Generator` of its own.

    - `fn`: draws what it wants from `rng` before it returns, and keeps it no longer
    - `seed`: an int >= 0; the same seed gives the same draws

    What `rng` draws depends on the seed, the epoch and the item's number in it,
    on nothing else: not on other items' draws, on workers or on resumes. What a
    method of `rng` makes of its bits may change with the version of NumPy.

    State: a count of items.
    Resume: reads nothing again.
    Random access: kept; an item passed over is not computed.
    Rank-free: yes; put it before `shard`, or all ranks draw the same.
    Source: the generator is SFC64 (Doty-Humphrey, PractRand, 2010), its state
    hashed anew for each item.

    >>> import lazyckpt as lz
    >>> noisy = lz.source([10, 20, 30]) | lz.random_map(lambda rng, x: x + rng.random(), seed=0)
    >>> [round(x, 3) for x in noisy], round(noisy[2], 3)
    ([10.333, 20.098, 30.364], 30.364)
    """

    spare: list[np.random.Generator] = []  # making one takes longer than most draws

    def drawn(epoch: int, first: int) -> Callable[[Iterable[A]], Iterator[B]]:
        rngs = _generators(spare, derive(seed, "random_map", epoch), first)
        return lambda items: (fn(next(rngs), item) for item in items)

    return _numbered("random_map", upstream, drawn)


def _generators(
    spare: list[np.random.Generator], key: int, number: int
) -> Iterator[np.random.Generator]:
    """One generator again and again, in the state that belongs to each number from one on."""
    rng = spare.pop() if spare else np.random.Generator(np.random.SFC64(0))
    bits = rng.bit_generator
    first = [hashed(key, 3 * number + i) for i in range(3)]
    vector: dict[str, Any] = {"state": [*first, 1]}  # the fourth is SFC64's counter
    state: Any = {"bit_generator": "SFC64", "state": vector, "has_uint32": 0, "uinteger": 0}
    try:
        bits.state = state
        yield rng
        number += 1
        for size in itertools.chain((16, 256), itertools.repeat(1024)):
            words = np.ones((size, 4), np.uint64)
            words[:, :3] = hashes(key, 3 * number, 3 * (number + size)).reshape(size, 3)
            number += size
            for vector["state"] in words:
                bits.state = state
                yield rng
    finally:
        spare.append(rng)


def _numbered(
    name: str,
    upstream: Machine[A],
    made: Callable[[int, int], Callable[[Iterable[A]], Iterator[B]]],
) -> Machine[B]:
    """What `made(epoch, number)` makes of the items from a number on."""

    def step(position: Position) -> tuple[Position, B]:
        before, number = position
        try:
            after, item = upstream.step(before)
        except End as end:
            raise End((end.position, number)) from None
        place = after, countable(name, number + 1)
        return place, next(made(upstream.epoch(before), number)([item]))

    def flow(position: Position) -> Flow[B]:
        before, number = position
        within(name, number, MOST)
        items = upstream.flow(before)
        results, given = counted(made(upstream.epoch(before), number)(items))
        return Flow(results, lambda: (items.snapshot(), countable(name, number + given())))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert upstream.skip is not None
        before, number = position
        after, passed = upstream.skip(before, n)
        return (after, countable(name, number + passed)), passed

    return machine(
        init=lambda epoch: (upstream.init(epoch), 0),
        epoch=lambda position: upstream.epoch(position[0]),
        step=step,
        flow=flow,
        skip=upstream.skip and skip,
        length=upstream.length,
    )


@combinator(
    checks={"step": function, "init": storable, "flush": optional(function)},
    again=lambda position, **_: [Again(position[0], 1 if position[2] not in (0, _ENDED) else 0)],
)
def flat_scan(
    upstream: Machine[A],
    step: Callable[[S, A], tuple[S, Iterable[B]]],
    init: S,
    flush: Callable[[S], Iterable[B]] | None = None,
) -> Machine[B]:
    """The outputs of a Mealy machine, any number an item: `step(state, item) -> (state, outputs)`.

    - `init`: the first state; None, bool, int, float, str, and lists, dicts and
      tuples of them. `step` may change its state in place; it is copied first
    - `flush`: `flush(state) -> outputs`, called where the epoch ends

    Outputs are an iterable, as `flat_map` takes it, or a pipeline.

    State: the place before the current item, your own state there, and a count
    of the item's outputs given.
    Resume: calls `step` on one item again, or `flush`, and passes over what it gave.
    Random access: no.
    Rank-free: no.
    Errors: a state of other types raises `InvalidState`; outputs that became
    fewer raise `SourceChanged`.

    >>> import lazyckpt as lz
    >>> def pairs(held, item):
    ...     return ([], [(held[0], item)]) if held else ([item], [])
    >>> list(lz.source(range(5)) | lz.flat_scan(pairs, [], flush=lambda held: held))
    [(0, 1), (2, 3), 4]
    """
    first = freeze(init, "flat_scan")

    def flow(position: Position) -> Flow[B]:
        anchor, mine, inside = position
        epoch = upstream.epoch(anchor)
        before = upstream.flow(anchor)
        inner: Flow[B] | None = None
        begun = 0  # outputs given before those of the current item
        state = thaw(mine)

        def expansions() -> Iterator[Iterable[B]]:
            nonlocal anchor, mine, inside, inner, begun, state
            if inside == _ENDED:
                return
            here = anchor
            for item in before:
                frozen = freeze(state, "flat_scan")
                state, outputs = step(state, item)
                inner = _entered(outputs, inside, epoch)
                anchor, mine, inside, begun = here, frozen, 0, taken()
                yield inner or outputs
                here = before.snapshot()
            frozen, here = freeze(state, "flat_scan"), before.snapshot()
            if flush is not None:
                outputs = flush(state)
                inner = _entered(outputs, inside, epoch)
                anchor, mine, inside, begun = here, frozen, 0, taken()
                yield inner or outputs
            anchor, mine, inside, inner, begun = here, frozen, _ENDED, None, taken()

        def snapshot() -> Position:
            if inner is not None:
                return anchor, mine, inner.snapshot()
            given = taken() - begun
            return anchor, mine, inside + given if given else inside

        items, taken = counted(itertools.chain.from_iterable(expansions()))
        return Flow(items, snapshot)

    return machine(
        init=lambda epoch: (upstream.init(epoch), first, 0),
        epoch=lambda position: upstream.epoch(position[0]),
        flow=flow,
    )


def _entered(outputs: Iterable[B], inside: Position, epoch: int) -> Flow[B] | None:
    """The outputs as a flow, where counting them does not tell the place."""
    if inside or isinstance(outputs, (Pipeline, Set)):
        return opened(outputs, inside, epoch)
    return None


@combinator(
    keeps_items=True,
    checks={"size": positive},
    free=("size",),
    transparent=True,
    takes=Taken(),
)
def cache(upstream: Machine[A], size: int) -> Machine[A]:
    """The items as they are, the `size` last used of them kept rather than made again.

    Over a table (a source with random access, through any of `map`, `take`,
    `skip`, `gather`, `shard`, `repeat`, `shuffle` without a buffer) an item is kept
    from one epoch to the next: put it before `shuffle` and `repeat`. Elsewhere
    it is kept within its epoch. Each process has a cache of its own.

    - `size`: how many items are kept

    State: none; a cache begins empty.
    Resume: reads nothing again.
    Random access: kept.
    Rank-free: yes.
    Memory: `size` items. They are shared: don't change them in place.
    Errors: `ArgumentError` where upstream has no random access.

    >>> import lazyckpt as lz
    >>> seen = lz.source([1, 2]) | lz.tap(print) | lz.cache(2) | lz.repeat(3)
    >>> sum(seen)
    1
    2
    9
    """
    jump, view = upstream.skip, upstream.view
    if jump is None:
        raise ArgumentError("cache: what comes before it has no random access")
    if view is None:
        return machine(
            init=upstream.init,
            epoch=upstream.epoch,
            step=lru_cache(size)(upstream.step),
            skip=jump,
            length=upstream.length,
        )
    get = lru_cache(size)(view.table.get)

    def step(position: Position) -> tuple[Position, A]:
        after, passed = jump(position, 1)
        if not passed:
            raise End(after)
        return after, get(int(view.ahead(position, range(1))[0]))

    return machine(
        init=upstream.init,
        epoch=upstream.epoch,
        step=step,
        skip=jump,
        length=upstream.length,
        view=View(Table(get), view.ahead),
    )
