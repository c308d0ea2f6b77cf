"""`enumerate`, `random_map`: stages that use the number of each item."""

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

A = TypeVar("A", bound=Any)  # bound to Any, so that pyright doesn't check the body of a lambda
B = TypeVar("B")

_MASK = (1 << 64) - 1


@giving(Numbering)
@combinator(checks={"start": integer}, pointwise=True)
def enumerate(upstream: Machine[A], start: int = 0) -> Machine[tuple[int, A]]:
    """Yield each item with its number in the epoch: `(number, item)`.

    Before `shard` the numbers are those of the global stream; after it, each rank counts its own
    items.

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
    elastic=Elastic(changes={"seed": "blind", "generator": "blind"}, counts_all=True),
    pointwise=True,
)
def random_map(
    upstream: Machine[A],
    fn: Callable[[Any, A], B],
    *,
    seed: int,
    generator: Literal["numpy", "torch"] = "numpy",
) -> Machine[B]:
    """Yield `fn(rng, item)` for each item, with a random generator of its own for each.

    The draws of `rng` depend only on the seed, the epoch and the number of the item in it. They
    don't depend on the draws for other items, on workers or on resumes. After `shard` or
    `lanes`, the number is that of the item in the global stream: the item has the same draws as
    it would before `shard`, also after the number of ranks has changed (`rebase`), and different
    ranks have different draws. In a pipeline that the function of a `flat_map` returns, numbers
    begin at 0 for each input, so make the seed from the input. A new version of NumPy or torch may
    change the numbers that a method of `rng` computes from its bits.

    Args:
        fn: Function of a generator and an item. It must use `rng` only during the call.
        seed: An int >= 0; the same seed gives the same draws.
        generator: Kind of `rng`: "numpy" for a `numpy.random.Generator`, or "torch" for a
            `torch.Generator`, as in `torch.rand(3, generator=rng)`.

    Raises:
        ArgumentError: If torch is asked for and not installed.

    State:
        The number of the next item; after `shard`, that of rank 0.

    Resume:
        Re-reads nothing.

    Random access:
        Kept; skipped items are not computed.

    Rank-invariant:
        Yes.

    Source:
        SFC64 (Doty-Humphrey, PractRand, 2010), with its state hashed from scratch for each item;
        torch's generator is seeded for each item.

    >>> import lazyckpt as lz
    >>> noisy = lz.source([10, 20, 30]) | lz.random_map(lambda rng, x: x + rng.random(), seed=0)
    >>> [round(x, 3) for x in noisy], round(noisy[2], 3)
    ([10.333, 20.098, 30.364], 30.364)
    """

    if generator == "torch" and importlib.util.find_spec("torch") is None:
        raise ArgumentError('random_map: generator="torch" needs pip install "lazyckpt[torch]"')
    first, every = upstream.share.first, upstream.share.every
    spare: list[np.random.Generator] = []  # creating one takes longer than most draws

    def drawn(epoch: int, number: int) -> Callable[[Iterable[A]], Iterator[B]]:
        key = derive(seed, "random_map", epoch)
        if generator == "torch":
            rngs = _torch_generators(key, first + number, every)
        else:
            rngs = _generators(spare, key, first + number, every)
        return lambda items: (fn(next(rngs), item) for item in items)

    return numbered("random_map", upstream, drawn, every)


def _torch_generators(key: int, number: int, every: int) -> Iterator[Any]:
    """Yield one torch generator over and over, seeded for every `every`-th number."""
    rng = import_module("torch").Generator()
    while True:
        yield rng.manual_seed(hashed(key, 3 * number) >> 1)  # uses all 63 bits
        number += every


def _generators(
    spare: list[np.random.Generator], key: int, number: int, every: int
) -> Iterator[np.random.Generator]:
    """Yield one NumPy generator over and over, in the state for every `every`-th number."""
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
    """Return three consecutive counters at each of `size` numbers, modulo 2**64."""
    places = np.arange(size, dtype=np.uint64) * np.uint64(every & _MASK) + np.uint64(first & _MASK)
    counters: NDArray[np.uint64] = np.add.outer(places, np.arange(3, dtype=np.uint64))
    return counters


def numbered(
    name: str,
    upstream: Machine[A],
    made: Callable[[int, int], Callable[[Iterable[A]], Iterator[B]]],
    every: int = 1,
) -> Machine[B]:
    """Build the machine that applies `made(epoch, number)` to the items from a number on.

    Each number is the last one plus `every`.
    """
    alone: Any = upstream.item

    def step(position: Position) -> tuple[Position, B]:
        before, number = position
        try:
            after, item = upstream.step(before)
        except End as end:
            raise End((end.position, number)) from None
        position = after, countable(name, number + every)
        return position, next(made(upstream.epoch(before), number)([item]))

    def flow(position: Position) -> Flow[B]:
        before, number = position
        items = upstream.flow(before)
        results, given = counted(made(upstream.epoch(before), number)(items))
        return Flow(results, lambda: (items.snapshot(), countable(name, number + given() * every)))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        assert upstream.skip is not None
        before, number = position
        after, passed = upstream.skip(before, n)
        return (after, countable(name, number + passed * every)), passed

    def item(position: Position, n: int) -> B:
        before, number = position
        wanted = countable(name, number + n * every)
        return next(made(upstream.epoch(before), wanted)([alone(before, n)]))

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
