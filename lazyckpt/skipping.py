"""`on_error="skip"`: a pipeline in which items whose making fails are left out and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from lazyckpt.call import Call, Chain
from lazyckpt.catalogue import registry

# These pass an item on without a look at it, so that what is left out can be so behind them.
_BLIND = {"shuffle", "block_shuffle", "repeat", "shard", "take", "skip", "gather", "cache"}
_JOINING = {"concat", "interleave", "lanes", "mix"}


_FIRST = 8  # of what was left out that are told


class Skipped(int):
    """How many items were left out, and of the `first` 8 the stage and the error, as text."""

    first: tuple[str, ...]

    def __new__(cls, count: int = 0, first: tuple[str, ...] = ()) -> Skipped:
        self = super().__new__(cls, count)
        self.first = first
        return self

    def and_then(self, more: Skipped) -> Skipped:
        """These, and those that were left out after them."""
        return Skipped(self + more, (self.first + more.first)[:_FIRST])


class _Hole:
    """Stands for an item that is left out, until there is a stage that would look at it."""

    def __init__(self, what: str) -> None:
        self.what = what


class Tally:
    """What was left out: in the order in which the stream was gone through, wherever that was.

    Where it's pickled, its copy begins anew; what that counts comes back with its lots.
    """

    def __init__(self) -> None:
        self.known = Skipped()  # up to the lot at hand
        self.of_lot: Callable[[], Skipped] = Skipped  # of the items of it that were delivered
        self.is_here = False  # whether nothing is made ahead, so that all is of items delivered
        self._new = Skipped()

    def now(self) -> Skipped:
        """What was left out before the item that was delivered last."""
        return self.known.and_then(self._new if self.is_here else self.of_lot())

    def add(self, what: str) -> None:
        self.more(Skipped(1, (what,)))

    def more(self, some: Skipped) -> None:
        self._new = self._new.and_then(some)

    def told(self) -> Skipped:
        """What has been counted since this was last asked."""
        new, self._new = self._new, Skipped()
        return new

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally, ()


class _Guard:
    """A function that gives a hole where it fails, and passes on those that there are."""

    def __init__(self, fn: Callable[..., Any], stage: str, tally: Tally) -> None:
        self.fn, self.stage, self.tally = fn, stage, tally

    def __call__(self, *args: Any) -> Any:
        if isinstance(args[-1], _Hole):
            return args[-1]
        try:
            return self.made(*args)
        except Exception as error:
            return self.instead(f"{self.stage}: {_short(error)}")

    def made(self, *args: Any) -> Any:
        return self.fn(*args)

    def instead(self, what: str) -> Any:
        return _Hole(what)


def _short(error: Exception) -> str:
    """Its type and message, in one line."""
    try:
        text = f"{type(error).__name__}: {error}"
    except Exception:
        text = type(error).__name__
    return " ".join(text.split())[:120]


class _Sieve:
    """A predicate that holes don't meet. In a stream one comes after another, so they are counted.

    All before it may be done in any order, by any worker.
    """

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def __call__(self, item: Any) -> bool:
        if isinstance(item, _Hole):
            self.tally.add(item.what)
            return False
        return True


class _Star(_Guard):
    def made(self, *args: Any) -> Any:
        return self.fn(*args[0])


class _Tap(_Guard):
    def made(self, *args: Any) -> Any:
        self.fn(*args)
        return args[0]


class _Predicate(_Guard):
    """One that is false where it fails."""

    def instead(self, what: str) -> Any:
        self.tally.add(what)
        return False


class _Expansion(_Guard):
    """What comes before a failure within an expansion stays."""

    def made(self, *args: Any) -> Any:
        found = self.fn(*args)
        return found if isinstance(found, (list, Chain)) else self._items(found)

    def _items(self, found: Any) -> Iterator[Any]:
        try:
            yield from found
        except Exception as error:
            self.instead(f"{self.stage}: {_short(error)}")

    def instead(self, what: str) -> Any:
        self.tally.add(what)
        return ()


class _Data(_Guard):
    """Data with indices, some of which fail."""

    def __len__(self) -> int:
        return len(self.fn)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        return self(index)

    def made(self, *args: Any) -> Any:
        return self.fn[args[0]]  # type: ignore[index]


def skipping(chain: Chain, tally: Tally) -> Chain:
    """The pipeline without the items that fail, whose states are those of the pipeline.

    An item is left out where the function of a `map`, `starmap`, `random_map`,
    `tap`, `filter` or `flat_map` fails, or a `collate`, or data at an index; also
    in the parts of a `concat`, `interleave` or `mix`. Other errors are raised:
    what is left out of one part of a `zip` would shift it against the others.
    """
    calls: list[Call] = []
    holes = False  # whether items may stand for such that are left out
    for call in chain.calls:
        for each, is_blind, makes in _guarded(call, tally):
            if holes and not is_blind:
                calls.append(_call("filter", call.site, _Sieve(tally)))
                holes = False
            calls.append(each)
            holes = holes or makes
    if holes:
        calls.append(_call("filter", chain.calls[-1].site, _Sieve(tally)))
    return type(chain)(tuple(calls))


def tally_of(chain: Chain) -> Tally | None:
    """The tally of a pipeline made by `skipping`."""
    for call in chain.calls:
        for value in call.arguments.values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, (_Guard, _Sieve)):
                    return each.tally
                if isinstance(each, Chain) and (found := tally_of(each)) is not None:
                    return found
    return None


def _guarded(call: Call, tally: Tally) -> Iterator[tuple[Call, bool, bool]]:
    """The calls in its place, each with whether it minds no holes, and whether it makes some."""
    name, arguments, stage = call.name, call.arguments, repr(call)
    finish = call.combinator.finish
    if name in ("map", "random_map") and not arguments.get("vectorized"):
        yield call.replaced(fn=_Guard(arguments["fn"], stage, tally)), True, True
    elif name in ("starmap", "tap"):
        guard = _Star if name == "starmap" else _Tap
        yield _call("map", call.site, guard(arguments["fn"], stage, tally)), True, True
    elif name == "flat_map":
        yield call.replaced(fn=_Expansion(arguments["fn"], stage, tally)), False, False
    elif name == "filter":
        guarded = _Predicate(arguments["predicate"], stage, tally)
        yield call.replaced(predicate=guarded), False, False
    elif name == "source" and hasattr(arguments["data"], "__getitem__"):
        is_plain = isinstance(arguments["data"], (list, tuple, range, np.ndarray))
        data = arguments["data"] if is_plain else _Data(arguments["data"], stage, tally)
        yield call.replaced(data=data), False, not is_plain
    elif name in _JOINING:
        yield (
            call.replaced(pipelines=tuple(skipping(p, tally) for p in arguments["pipelines"])),
            False,
            False,
        )
    elif finish is not None and arguments[finish] is not None:
        yield call.replaced(**{finish: None}), False, False
        yield _call("map", call.site, _Guard(arguments[finish], stage, tally)), True, True
    else:
        yield call, name in _BLIND, False


def _call(name: str, site: str, fn: Callable[..., Any]) -> Call:
    combinator = registry[name]
    return Call(combinator, combinator.bind((fn,), {}), site)
