"""`enumerate`, `random_map`: items made with their numbers."""

from __future__ import annotations

import builtins
import importlib.util
import itertools
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, Literal, TypeVar

import numpy as np
from numpy.typing import NDArray

from lazyckpt.core.checks import function, integer, natural, one_of
from lazyckpt.core.flow import Flow, Position, counted
from lazyckpt.core.machine import MOST, End, Machine, Rate, countable, within
from lazyckpt.core.prng import derive, hashed, hashes_at
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator, giving
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Numbering

A = TypeVar("A", bound=Any)  # by which pyright lets a lambda do anything with it
B = TypeVar("B")

_MASK = (1 << 64) - 1


@giving(Numbering)
@combinator(checks={"start": integer}, pointwise=True)
def enumerate(upstream: Machine[A], start: int = 0) -> Machine[tuple[int, A]]:
    """Every item with its number in the epoch: `(number, item)`.

    Before `shard` the numbers are those of the whole stream; behind it, each
    rank's own.

    Args:
        start: The first number.

    State:
        A count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    >>> import lazyckpt as lz
    >>> list(lz.source(["a", "b"]) | lz.enumerate(1))
    [(1, 'a'), (2, 'b')]
    """

    def paired(epoch: int, first: int) -> Callable[[Iterable[Any]], Iterator[tuple[int, Any]]]:
        return lambda items: builtins.zip(itertools.count(start + first), items)

    return numbered("enumerate", upstream, paired)


@combinator(
    checks={"fn": function, "seed": natural, "generator": one_of("numpy", "torch")},
    functions={"fn": "item"},
    elastic=Elastic(changes={"seed": "blind", "generator": "blind"}),
    pointwise=True,
)
def random_map(
    upstream: Machine[A],
    fn: Callable[[Any, A], B],
    *,
    seed: int,
    generator: Literal["numpy", "torch"] = "numpy",
) -> Machine[B]:
    """`fn(rng, item)` for every item, with a generator of random numbers of its own.

    What `rng` draws depends on the seed, the epoch and the item's number in it,
    on nothing else: not on other items' draws, on workers or on resumes. Behind
    `shard` or `lanes` that number is the item's in the stream of all ranks, as if
    it stood before `shard`, and no rank draws what another does. What a method of
    `rng` makes of its bits may change with the version of NumPy or torch.

    Args:
        fn: It draws what it wants from `rng` before it returns, and keeps it no longer.
        seed: An int >= 0; the same seed gives the same draws.
        generator: What `rng` is: a `numpy.random.Generator`, or a `torch.Generator` for
            functions such as `torch.rand(3, generator=rng)`.

    Raises:
        ArgumentError: torch is asked for and not installed.

    State:
        A count of items.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; an item passed over is not computed.

    Rank-invariant:
        Yes.

    Source:
        SFC64 (Doty-Humphrey, PractRand, 2010), its state hashed anew for each item; torch's
        generator is seeded anew for each.

    >>> import lazyckpt as lz
    >>> noisy = lz.source([10, 20, 30]) | lz.random_map(lambda rng, x: x + rng.random(), seed=0)
    >>> [round(x, 3) for x in noisy], round(noisy[2], 3)
    ([10.333, 20.098, 30.364], 30.364)
    """

    if generator == "torch" and importlib.util.find_spec("torch") is None:
        raise ArgumentError('random_map: generator="torch" needs pip install "lazyckpt[torch]"')
    share = upstream.share
    spare: list[np.random.Generator] = []  # making one takes longer than most draws

    def drawn(epoch: int, first: int) -> Callable[[Iterable[A]], Iterator[B]]:
        key, number = derive(seed, "random_map", epoch), share.first + first * share.every
        if generator == "torch":
            rngs = _torch_generators(key, number, share.every)
        else:
            rngs = _generators(spare, key, number, share.every)
        return lambda items: (fn(next(rngs), item) for item in items)

    return numbered("random_map", upstream, drawn)


def _torch_generators(key: int, number: int, every: int) -> Iterator[Any]:
    """One generator of torch's, in the same way."""
    rng = import_module("torch").Generator()
    while True:
        yield rng.manual_seed(hashed(key, 3 * number) >> 1)  # which takes 63 bits as they are
        number += every


def _generators(
    spare: list[np.random.Generator], key: int, number: int, every: int
) -> Iterator[np.random.Generator]:
    """One generator again and again, in the state that belongs to every so-many-th number."""
    rng = spare.pop() if spare else np.random.Generator(np.random.SFC64(0))
    bits = rng.bit_generator
    first = [hashed(key, 3 * number + i) for i in range(3)]
    vector: dict[str, Any] = {"state": [*first, 1]}  # the fourth is SFC64's counter
    state: Any = {"bit_generator": "SFC64", "state": vector, "has_uint32": 0, "uinteger": 0}
    try:
        bits.state = state
        yield rng
        number += every
        for size in itertools.chain((16, 256), itertools.repeat(1024)):
            words = np.ones((size, 4), np.uint64)
            words[:, :3] = hashes_at(key, _counters(3 * number, 3 * every, size))
            number += every * size
            for vector["state"] in words:
                bits.state = state
                yield rng
    finally:
        spare.append(rng)


def _counters(first: int, every: int, size: int) -> NDArray[np.uint64]:
    """Three counters in a row at each of `size` places, modulo 2**64."""
    places = np.arange(size, dtype=np.uint64) * np.uint64(every & _MASK) + np.uint64(first & _MASK)
    counters: NDArray[np.uint64] = np.add.outer(places, np.arange(3, dtype=np.uint64))
    return counters


def numbered(
    name: str,
    upstream: Machine[A],
    made: Callable[[int, int], Callable[[Iterable[A]], Iterator[B]]],
) -> Machine[B]:
    """What `made(epoch, number)` makes of the items from a number on."""
    alone: Any = upstream.item

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
        items = upstream.flow(before)
        results, given = counted(made(upstream.epoch(before), number)(items))
        return Flow(results, lambda: (items.snapshot(), countable(name, number + given())))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert upstream.skip is not None
        before, number = position
        after, passed = upstream.skip(before, n)
        return (after, countable(name, number + passed)), passed

    def item(position: Position, n: int) -> B:
        before, number = position
        return next(made(upstream.epoch(before), countable(name, number + n))([alone(before, n)]))

    return stateful(
        name,
        upstream,
        check=lambda number: within(name, number, MOST),
        rate=Rate(),
        step=step,
        flow=flow,
        skip=upstream.skip and skip,
        item=item,
        length=upstream.length,
    )
