"""Which items of the sources went into an output: `trace`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from lazyckpt.combinators.flat_map import flat_map, unstacked
from lazyckpt.combinators.generate import count
from lazyckpt.combinators.join import zip as zipped
from lazyckpt.combinators.map import map as mapped
from lazyckpt.combinators.source import source
from lazyckpt.combinators.transform import enumerate as numbered
from lazyckpt.core.call import Call, Chain, runnable
from lazyckpt.core.checks import brief, checked, natural
from lazyckpt.core.machine import Machine
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline, Stage

_CODES = "which item each token is from"


@dataclass(frozen=True, slots=True)
class Origin:
    """An item of a source.

    - `stage`: the source's, `1`, or `1[0].1` within pipeline 0 of stage 1
    - `place`: the item's number in its epoch, from 0: its index, in data with indices
    """

    stage: str
    place: int


class _Told:
    """An item with its origins; where nothing is read, it is None."""

    __slots__ = ("origins", "value")

    def __init__(self, value: Any, origins: Iterable[Origin]) -> None:
        self.value, self.origins = value, tuple(dict.fromkeys(origins))


def plain(item: Any) -> Any:
    """An item without its origins."""
    if isinstance(item, _Told):
        return item.value
    if type(item) is dict:
        return {name: plain(each) for name, each in item.items()}
    return type(item)(map(plain, item)) if type(item) in (list, tuple) else item


def origins(item: Any) -> Iterator[Origin]:
    """The origins of an item, and of those in it."""
    if isinstance(item, _Told):
        yield from item.origins
    elif type(item) in (list, tuple, dict):
        for each in item.values() if type(item) is dict else item:
            yield from origins(each)


def trace(pipeline: Chain, n: int) -> list[Origin]:
    """Which items of the sources went into output n, in the order in which they stand there.

    - `n`: the number of an output, from 0

    Where the pipeline has random access, nothing is read and no function called.
    Elsewhere, and where `case` or `switch` have to see what they choose by, it
    is run from its beginning. What a stage only looked at, as `filter` does at
    items that it leaves out, doesn't count; nor what the state of `scan` and
    `flat_scan` remembers of items before, nor the control of a `multiplex`. A
    row of a collated batch that is taken apart again is told as the batch is.

    `IndexError` if there are fewer outputs. `ArgumentError` at a stage from elsewhere;
    and, where the pipeline has no random access, at a stage that wants it behind a
    `block_shuffle` of `random_floats` or `random_indices`.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(10**9)) | lz.shuffle(seed=0) | lz.batch(3)
    >>> [origin.place for origin in lz.trace(pipeline, 10**8)]
    [810775110, 507087939, 945658273]
    """
    n = checked("trace", "n", n, natural)
    chain: Chain = runnable("trace", pipeline)
    reads = chain.machine.skip is None or _chooses(chain)
    item = next(islice(iter(told(chain, reads=reads)[n:]), 1), _Told)
    if item is _Told:
        raise IndexError(f"trace: n={brief(n)}, but the pipeline has fewer items")
    return list(dict.fromkeys(origins(item)))


def _chooses(chain: Chain) -> bool:
    names = {call.name for call in chain.calls}
    return bool(names & {"case", "switch"}) or any(map(_chooses, chain.calls[0].chains))


def told(chain: Chain, *, reads: bool, prefix: str = "") -> Pipeline[Any]:
    """The pipeline, whose items come with their origins."""
    first, *rest = chain.calls
    pipeline = _source(first, reads, f"{prefix}1")
    for call in rest:
        stage = (_seeing if reads else _blind)(_known(call))
        try:
            pipeline = pipeline | stage
        except ArgumentError as error:  # a random source has lost its random access
            raise ArgumentError(f"trace: no way through {call!r} here: {error}") from None
    return pipeline


def _source(call: Call, reads: bool, stage: str) -> Pipeline[Any]:
    if call.combinator.parts is None:
        return _numbered(call, reads, stage)
    _known(call)
    numbers = iter(range(len(call.chains)))

    def inner(value: Any) -> Any:
        if isinstance(value, Chain):
            return told(value, reads=reads, prefix=f"{stage}[{next(numbers)}].")
        return tuple(map(inner, value)) if isinstance(value, tuple) else value

    arguments = {name: inner(value) for name, value in call.arguments.items()}
    if call.name not in ("case", "switch", "multiplex"):
        return Pipeline((call.replaced(**arguments),))
    chooser = next(iter(arguments))  # their first argument
    choosing = arguments[chooser]
    arguments[chooser] = choosing | mapped(plain)
    chosen: Pipeline[Any] = Pipeline((call.replaced(**arguments),))
    if call.name == "multiplex":
        return chosen
    both = zipped(choosing, chosen)
    return both | mapped(lambda pair: _Told(plain(pair[1]), origins(pair)))


def _numbered(call: Call, reads: bool, stage: str) -> Pipeline[Any]:
    machine = Pipeline[Any]((call,)).machine
    length = math.inf if machine.length is None else machine.length
    pairs: Pipeline[Any]
    if not reads or call.name == "count":  # whose items are known by their numbers
        read = machine.view.table.get if reads and machine.view else lambda number: None
        numbers = count() if length == math.inf else source(range(int(length)))
        pairs = numbers | mapped(lambda number: (number, read(number)))
    elif call.name in ("source", "columns", "once") and machine.skip is not None:
        pairs = source(_Placed(machine))
    else:
        pairs = Pipeline((call,)) | numbered()
    return pairs | mapped(lambda pair: _Told(pair[1], [Origin(stage, pair[0])]))


class _Placed:
    """Data with indices, whose items come with theirs."""

    def __init__(self, machine: Machine[Any]) -> None:
        self.machine = machine

    def __len__(self) -> int:
        return int(self.machine.length or 0)

    def __getitem__(self, index: int) -> tuple[int, Any]:
        assert self.machine.view is not None
        return index, self.machine.view.table.get(index)


def _known(call: Call) -> Call:
    if not call.combinator.build.__module__.startswith("lazyckpt.combinators."):
        raise ArgumentError(f"trace: {call!r} is none of the stages that it can see through")
    return call


def _blind(call: Call) -> Stage[Any, Any]:
    """A stage that keeps random access, without its functions."""
    if call.name in ("map", "starmap", "tap", "random_map", "split_batch"):
        return mapped(lambda item: _Told(None, origins(item)))
    finish = call.combinator.finish
    if finish is not None and call.arguments[finish] is not None:
        call = call.replaced(**{finish: lambda items: _Told(None, origins(items))})
    return Stage((call,))


def _seeing(call: Call) -> Stage[Any, Any]:
    """A stage whose functions are given what they expect, and whose items keep their origins."""
    name, arguments = call.name, call.arguments
    finish = call.combinator.finish
    if name in ("map", "starmap", "split_batch"):
        return mapped(partial(_made, Stage((call,))))
    if name == "tap":
        return mapped(lambda item: item)
    if name == "unbatch":
        return flat_map(_rows)
    if name in ("concat_then_split", "pack_first_fit"):
        known: list[tuple[Origin, ...]] = []
        return mapped(partial(_marked, known)) | Stage((call,)) | mapped(partial(_found, known))
    if name == "random_map":
        call = call.replaced(fn=partial(_drawn, arguments["fn"]))
    elif name in ("flat_map", "interleave_map"):
        call = call.replaced(fn=partial(_expanded, arguments["fn"]))
    elif name == "scan":
        call = call.replaced(step=partial(_scanned, arguments["step"]))
    elif name == "flat_scan":
        call = call.replaced(step=partial(_moved, arguments["step"]))
    elif finish is not None:
        if arguments[finish] is not None:
            call = call.replaced(**{finish: partial(_collated, arguments[finish])})
    else:  # functions that only look at items
        looks = {k: _looking(value) for k, value in arguments.items() if callable(value)}
        call = call.replaced(**looks)
    return Stage((call,))


def _looking(fn: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda item: fn(plain(item))


def _made(stage: Stage[Any, Any], item: Any) -> _Told:
    """What a stage makes of one item alone."""
    (made,) = source([plain(item)]) | stage
    return _Told(made, origins(item))


def _drawn(fn: Callable[[Any, Any], Any], rng: np.random.Generator, item: Any) -> _Told:
    return _Told(fn(rng, plain(item)), origins(item))


def _collated(collate: Callable[[Any], Any], items: Any) -> _Told:
    return _Told(collate(plain(items)), origins(items))


def _scanned(step: Callable[[Any, Any], Any], state: Any, item: Any) -> tuple[Any, _Told]:
    state, output = step(state, plain(item))
    return state, _Told(output, origins(item))


def _moved(step: Callable[[Any, Any], Any], state: Any, item: Any) -> tuple[Any, Any]:
    state, outputs = step(state, plain(item))
    return state, _all_told(outputs, origins(item))


def _expanded(fn: Callable[[Any], Any], item: Any) -> Any:
    return _all_told(fn(plain(item)), origins(item))


def _all_told(items: Any, whence: Iterable[Origin]) -> Any:
    mine = tuple(whence)
    if isinstance(items, Pipeline):
        return items | mapped(lambda each: _Told(each, mine))
    return (
        [_Told(each, mine) for each in items]
        if isinstance(items, list)
        else (_Told(each, mine) for each in items)
    )


def _rows(batch: Any) -> Iterable[Any]:
    if type(batch) is list:
        return batch
    items = plain(batch)
    rows = items if type(items) is list else unstacked(items)
    return [_Told(row, origins(batch)) for row in rows]


def _marked(known: list[tuple[Origin, ...]], item: Any) -> Any:
    """A sequence of tokens with one feature more: a number for the origins of each."""
    value = plain(item)
    features = value if isinstance(value, dict) else {"tokens": value}
    sizes = [len(each) for each in map(np.asarray, features.values()) if each.ndim]
    known.append(tuple(origins(item)))
    return {**features, _CODES: np.full(sizes[0], len(known))} if sizes else value


def _found(known: list[tuple[Origin, ...]], row: dict[str, Any]) -> _Told:
    codes = [code for code in row[_CODES].tolist() if code]
    value = {name: each for name, each in row.items() if name != _CODES}
    return _Told(value, (origin for code in codes for origin in known[code - 1]))
