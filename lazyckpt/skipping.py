"""`on_error="skip"`: a pipeline in which items whose making fails are left out and counted."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Lock
from typing import Any

import numpy as np

from lazyckpt.call import Call, Chain
from lazyckpt.catalogue import registry

# These pass an item on without a look at it, so that what is left out can be so behind them.
_BLIND = {"shuffle", "block_shuffle", "repeat", "shard", "take", "skip", "gather", "cache"}
_JOINING = {"concat", "interleave", "mix"}


class _Skipped:
    """Stands for an item that is left out, until there is a stage that would look at it."""

    def __reduce__(self) -> str:
        return "SKIPPED"


SKIPPED = _Skipped()


class Tally:
    """How many items were left out: here, and by workers as far as their lots have come.

    Where it's pickled, its copy begins anew; what that counts comes back with its lots.
    """

    def __init__(self) -> None:
        self._told, self._new = 0, 0
        self._lock = Lock()

    @property
    def total(self) -> int:
        return self._told + self._new

    def add(self) -> None:
        with self._lock:
            self._new += 1

    def told(self) -> int:
        """What has been counted since this was last asked."""
        with self._lock:
            new, self._new = self._new, 0
        return new

    def take(self, count: int) -> None:
        """Count what a worker tells."""
        with self._lock:
            self._told += count

    def __reduce__(self) -> tuple[Any, ...]:
        return Tally, ()


class _Guard:
    """A function that gives `instead` where it fails, and passes on what was left out before."""

    def __init__(self, fn: Callable[..., Any], tally: Tally, instead: Any = SKIPPED) -> None:
        self.fn, self.tally, self.instead = fn, tally, instead

    def __call__(self, *args: Any) -> Any:
        if args[-1] is SKIPPED:
            return SKIPPED
        try:
            return self.made(*args)
        except Exception:
            self.tally.add()
            return self.instead

    def made(self, *args: Any) -> Any:
        return self.fn(*args)


class _Star(_Guard):
    def made(self, *args: Any) -> Any:
        return self.fn(*args[0])


class _Tap(_Guard):
    def made(self, *args: Any) -> Any:
        self.fn(*args)
        return args[0]


class _Expansion(_Guard):
    """What comes before a failure within an expansion stays."""

    def made(self, *args: Any) -> Any:
        found = self.fn(*args)
        return found if isinstance(found, (list, Chain)) else self._items(found)

    def _items(self, found: Any) -> Iterator[Any]:
        try:
            yield from found
        except Exception:
            self.tally.add()


class _Data(_Guard):
    """Data with indices, some of which fail."""

    def __len__(self) -> int:
        return len(self.fn)  # type: ignore[arg-type]

    def __getitem__(self, index: int) -> Any:
        return self(index)

    def made(self, *args: Any) -> Any:
        return self.fn[args[0]]  # type: ignore[index]


def _is_there(item: Any) -> bool:
    return item is not SKIPPED


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
                calls.append(_call("filter", call.site, _is_there))
                holes = False
            calls.append(each)
            holes = holes or makes
    if holes:
        calls.append(_call("filter", chain.calls[-1].site, _is_there))
    return type(chain)(tuple(calls))


def tally_of(chain: Chain) -> Tally | None:
    """The tally of a pipeline made by `skipping`."""
    for call in chain.calls:
        for value in call.arguments.values():
            for each in value if isinstance(value, tuple) else (value,):
                if isinstance(each, _Guard):
                    return each.tally
                if isinstance(each, Chain) and (found := tally_of(each)) is not None:
                    return found
    return None


def _guarded(call: Call, tally: Tally) -> Iterator[tuple[Call, bool, bool]]:
    """The calls in its place, each with whether it minds no holes, and whether it makes some."""
    name, arguments = call.name, call.arguments
    finish = call.combinator.finish
    if name in ("map", "random_map") and not arguments.get("vectorized"):
        yield call.replaced(fn=_Guard(arguments["fn"], tally)), True, True
    elif name in ("starmap", "tap"):
        guard = _Star if name == "starmap" else _Tap
        yield _call("map", call.site, guard(arguments["fn"], tally)), True, True
    elif name == "flat_map":
        yield call.replaced(fn=_Expansion(arguments["fn"], tally, ())), False, False
    elif name == "filter":
        guarded = _Guard(arguments["predicate"], tally, instead=False)
        yield call.replaced(predicate=guarded), False, False
    elif name == "source" and hasattr(arguments["data"], "__getitem__"):
        is_plain = isinstance(arguments["data"], (list, tuple, range, np.ndarray))
        data = arguments["data"] if is_plain else _Data(arguments["data"], tally)
        yield call.replaced(data=data), False, not is_plain
    elif name in _JOINING:
        yield (
            call.replaced(pipelines=tuple(skipping(p, tally) for p in arguments["pipelines"])),
            False,
            False,
        )
    elif finish is not None and arguments[finish] is not None:
        yield call.replaced(**{finish: None}), False, False
        yield _call("map", call.site, _Guard(arguments[finish], tally)), True, True
    else:
        yield call, name in _BLIND, False


def _call(name: str, site: str, fn: Callable[..., Any]) -> Call:
    combinator = registry[name]
    return Call(combinator, combinator.bind((fn,), {}), site)
