"""Items that stay with the rank that made them, until a rank needs one of them after `shard`."""

from __future__ import annotations

import pickle
import threading
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import count
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple, TypeAlias, cast

from lazyckpt.core.cut import Cut
from lazyckpt.core.iterators import Walk
from lazyckpt.errors import RankMissing
from lazyckpt.executors.plan.errors import TaskLost
from lazyckpt.executors.plan.handlers import Outcome
from lazyckpt.executors.pools.pool import get_within
from lazyckpt.executors.pools.progress import say_alive
from lazyckpt.executors.sharing.link import Link
from lazyckpt.executors.sharing.outcomes import (
    KEY_BYTES,
    key_of,
    outcome_of,
    packed,
    packed_items,
)
from lazyckpt.failures.notes import Failure

TOLD_BYTES = 25  # bytes of an item that stays with its maker, in the message to all readers
SMALL_BYTES = 192  # bytes of an item up to which it travels itself
_UNTOLD, _UNTOLD_BYTES = 32, 1 << 20  # the most outcomes that makers keep in vain, and their bytes
_ALL = 1 << 60  # tokens: up to the end of a sequence
_TICK = 0.25  # seconds between two looks whether a rank that is waited for is alive

# The kinds of messages, in the first half of their keys; a number is in the other half.
_ASKS, _GIVES, _PASSES, _LEAVES = b"they ask", b"we give ", b"we pass ", b"we leave"
_HALF = KEY_BYTES // 2


class Left(NamedTuple):
    """A stand-in for the items of an outcome, to be sent to all ranks.

    Attributes:
        maker: The rank that keeps them.
        number: Its number for them.
        size: How many there are.
        nbytes: The approximate size of one.
        lengths: Their lengths, each an unsigned int, if they are needed before the items.
    """

    maker: int
    number: int
    size: int
    nbytes: int
    lengths: bytes


def has_left(found: Any) -> bool:
    """Return whether the items of an outcome are with their maker."""
    return isinstance(found, Outcome) and bool(found.items) and type(found.items[0]) is Left


class _Reference:
    """A reference of this rank to the items of an outcome; their maker is told when it ends."""

    __slots__ = ("_tell", "maker", "number")

    def __init__(self, left: Left, tell: Callable[[Left], None]) -> None:
        self.maker, self.number = left.maker, left.number
        self._tell = partial(tell, left)

    def __del__(self) -> None:
        self._tell()  # takes no lock, as this may run anywhere


class Elsewhere:
    """An item that its maker keeps. A part of a sequence is a `Cut` of it.

    Attributes:
        outcome: The reference to the items of its outcome.
        place: Its index among them.
        nbytes: Its approximate size.
    """

    __slots__ = ("_payloads", "nbytes", "outcome", "place")

    def __init__(self, payloads: Payloads, outcome: _Reference, place: int, nbytes: int) -> None:
        self._payloads, self.outcome, self.place, self.nbytes = payloads, outcome, place, nbytes

    def __call__(self) -> Any:
        """Return the features of a sequence, for an error that shows some."""
        return next(self._payloads.ask([Cut(self, 0, _ALL)]).wait())


class _Handles:
    """The items of an outcome that its maker keeps. Each `Elsewhere` is made when it is read.

    Thousands of them would make the garbage collector search the whole process again and again.
    """

    def __init__(self, payloads: Payloads, left: Left, outcome: _Reference) -> None:
        self._payloads, self._left, self._outcome = payloads, left, outcome
        self._lengths = array("I", left.lengths)

    def __len__(self) -> int:
        return self._left.size

    def __iter__(self) -> Iterator[Any]:
        return Walk(cast("Sequence[Any]", self))

    def __getitem__(self, place: int) -> Any:
        item = Elsewhere(self._payloads, self._outcome, place, self._left.nbytes)
        return Cut(item, 0, self._lengths[place]) if self._lengths else item


def is_elsewhere(item: Any) -> bool:
    """Return whether its maker keeps an item, or the sequence of which it is a part."""
    return type(item) is Elsewhere or (type(item) is Cut and type(item.whole) is Elsewhere)


_Part: TypeAlias = tuple[int, int, int, int]  # an outcome, a place in it, and the tokens there


def _part(item: Any) -> tuple[int, _Part]:
    """Return the maker of an item, and what to ask it for."""
    each: Any
    each, begin, end = item if type(item) is Cut else (item, 0, _ALL)
    return each.outcome.maker, (each.outcome.number, each.place, begin, end)


class Asked:
    """Items that this rank has asked for.

    Attributes:
        parts: The requests, by maker.
        silent: The makers that have not answered.
    """

    def __init__(self, items: list[Any], look_after: Callable[[Asked], None]) -> None:
        self._items, self._look_after = items, look_after  # the items are held, so they are kept
        self.parts: dict[int, list[_Part]] = {}
        for maker, part in map(_part, items):
            self.parts.setdefault(maker, []).append(part)
        self.silent = {*self.parts}
        self._answers: SimpleQueue[tuple[int, memoryview | RankMissing]] = SimpleQueue()

    def take(self, maker: int, answer: memoryview | RankMissing) -> None:
        self.silent.discard(maker)
        self._answers.put((maker, answer))

    def wait(self) -> Iterator[Any]:
        """Wait for the items, and return them in order; the first that can't be had raises."""
        answers: dict[int, Iterator[Any]] = {}
        while len(answers) < len(self.parts):
            try:
                maker, found = get_within(self._answers, _TICK)
            except Empty:
                say_alive()  # where this is a process of which others wait for items
                self._look_after(self)
            else:
                answers[maker] = _items_of(found)
        return (next(answers[_part(item)[0]]) for item in self._items)


def _items_of(answer: memoryview | RankMissing) -> Iterator[Any]:
    if isinstance(answer, RankMissing):
        raise answer
    found = outcome_of(answer)
    assert isinstance(found, Outcome)
    yield from found.items
    if found.failure is not None:
        raise found.failure.error


class _Kept(NamedTuple):
    """Items that this rank has made.

    Attributes:
        items: The items; of a sequence whose length was told, a `Cut` of all of it.
        ranks: The ranks that may still ask for them.
    """

    items: list[Any]
    ranks: set[int]


class Payloads:
    """The items that ranks keep for each other, in one opening.

    The maker of an outcome keeps its items until each rank has told it that it refers to none of
    them any more, or has left. A rank that leaves sends the items to those that still do.
    """

    def __init__(self, link: Link, patience: float) -> None:
        """Begin with no items.

        Args:
            link: The link of the opening.
            patience: Seconds of silence after which an awaited rank is lost.
        """
        self._link, self._patience = link, patience
        self._lock = threading.RLock()
        self._numbers = count()
        self._kept: dict[int, _Kept] = {}
        self._inherited: dict[tuple[int, int], list[bytes]] = {}  # from ranks that have left
        self._asked: dict[int, tuple[Asked, int]] = {}
        self._gone: dict[int, str] = {}
        self._passed: deque[Left] = deque()
        self._untold: list[Left] = []  # of these, not yet told to their makers
        self.is_closed = False

    # A rank that makes items.

    def keep(self, found: Outcome, stays: Callable[[Any], Any]) -> Outcome:
        """Keep the items of an outcome, unless they are small, and return what travels.

        Raises:
            TaskLost: This rank leaves, and the others make the outcome again.
        """
        if len(self._link.makers) == 1 or found.item_bytes <= SMALL_BYTES or not found.items:
            return found
        try:
            items = [*map(stays, found.items)]
            lengths = array("I", [each.end for each in items if type(each) is Cut])
        except Exception:  # raised again by the stage that needs their lengths
            return found
        with self._lock:
            if self.is_closed:  # what this rank keeps is sent already
                raise TaskLost
            number = next(self._numbers)
            self._kept[number] = _Kept(items, {*self._link.makers} - self._gone.keys())
        nbytes, told = int(found.item_bytes), lengths.tobytes()
        left = Left(self._link.rank, number, len(items), nbytes, told)
        return found._replace(items=[left])

    def _answer(
        self, number: int, parts: Iterable[_Part], item_at: Callable[[int, int], Any]
    ) -> bytes:
        found: list[Any] = []
        failure = None
        try:
            for outcome, place, begin, end in parts:
                item = item_at(outcome, place)
                is_part = type(item) is Cut
                found.append(Cut(item.whole, begin, end).features if is_part else item)
        except Exception as error:
            failure = Failure(error, "")
        return packed(_key(_GIVES, number), Outcome(found, failure))

    def _own(self, number: int, place: int) -> Any:
        if (kept := self._kept.get(number)) is None:
            raise self._given_up(self._link.rank)
        return kept.items[place]

    def _given_up(self, maker: int) -> RankMissing:
        text = f"rank {maker} took this rank for lost, and keeps no items for it any more"
        return RankMissing(text, [maker])

    def _let_go(self, rank: int, numbers: Iterable[int]) -> None:
        """Keep items no longer for a rank."""
        with self._lock:
            for number in numbers:
                kept = self._kept.get(number)
                if kept is not None:
                    kept.ranks.discard(rank)
                    if not kept.ranks:
                        del self._kept[number]

    def close(self) -> None:
        """Send kept items to the ranks that may ask for them, as this rank leaves. Idempotent."""
        self.tell_passed(soon=True)
        with self._lock:
            kept = {} if self.is_closed else {**self._kept}
            self.is_closed = True
        for number, (items, ranks) in kept.items():
            if others := ranks - {self._link.rank}:
                message = _key(_LEAVES, number) + pickle.dumps(packed_items(items))
                for rank in others:
                    self._link.send(rank, message)

    # A rank that needs items.

    def opened(self, found: Any) -> Any:
        """Return an outcome with `Elsewhere` items, or cuts of these, in place of what travelled.

        To be called once for each outcome that comes, also if it isn't needed.
        """
        if not has_left(found):
            return found
        left = found.items[0]
        return found._replace(items=_Handles(self, left, _Reference(left, self._passed.append)))

    def ask(self, items: list[Any]) -> Asked:
        """Ask the makers of items for them."""
        self.tell_passed()
        asked = Asked(items, self._look_after)
        with self._lock:
            for maker in asked.parts:
                self._ask(asked, maker)
        return asked

    def _ask(self, asked: Asked, maker: int) -> None:
        parts, why = asked.parts[maker], self._gone.get(maker)
        if maker == self._link.rank:
            asked.take(maker, memoryview(self._answer(0, parts, self._own)))
        elif why:
            text = f"rank {maker}, which has a part of the items, {why}"
            asked.take(maker, RankMissing(text, [maker]))
        elif why is not None:
            asked.take(maker, memoryview(self._answer(0, parts, partial(self._heir, maker))))
        else:
            number = next(self._numbers)
            self._asked[number] = asked, maker
            self._link.send(maker, _key(_ASKS, number) + pickle.dumps(parts))

    def _heir(self, maker: int, number: int, place: int) -> Any:
        if (items := self._inherited.get((maker, number))) is None:
            raise self._given_up(maker)
        return next(_items_of(memoryview(items[place])))

    def _look_after(self, asked: Asked) -> None:
        """Note that an awaited rank is lost, if it is silent."""
        if self.is_closed:
            raise TaskLost
        for maker in tuple(asked.silent):
            if self._link.silence(maker) > self._patience:
                self.leave(maker, f"has said nothing for {self._patience:g} s")

    def tell_passed(self, *, soon: bool = False) -> None:
        """Tell makers to which of their items this rank doesn't refer any more.

        Unless it has to be `soon`, not before it is worth a message.
        """
        found: dict[int, list[int]] = {}
        with self._lock:
            while self._passed:
                self._untold.append(self._passed.popleft())
            nbytes = sum(each.size * each.nbytes for each in self._untold)
            if not soon and nbytes < _UNTOLD_BYTES and len(self._untold) < _UNTOLD:
                return
            while self._untold:
                maker, number, *_ = self._untold.pop()
                found.setdefault(maker, []).append(number)
                self._inherited.pop((maker, number), None)
        for maker, numbers in found.items():
            if maker == self._link.rank:
                self._let_go(maker, numbers)
            else:
                message = _key(_PASSES, 0) + array("Q", numbers).tobytes()
                self._link.send(maker, message)

    # Messages, in the thread of the link.

    def receive(self, rank: int, message: memoryview) -> bool:
        """Take a message in, if it is about items that ranks keep; return whether it is."""
        key, body = key_of(message), message[KEY_BYTES:]
        kind, number = key[:_HALF], int.from_bytes(key[_HALF:], "big")
        if kind == _ASKS:
            self._link.send(rank, self._answer(number, pickle.loads(body), self._own))
        elif kind == _GIVES:
            with self._lock:
                asked, _ = self._asked.pop(number, (None, rank))
            if asked is not None:
                asked.take(rank, message)
        elif kind == _PASSES:
            self._let_go(rank, array("Q", bytes(body)))
        elif kind == _LEAVES:
            self._inherited[rank, number] = pickle.loads(body)
        else:
            return False
        return True

    def leave(self, rank: int, why: str) -> None:
        """Note that a rank is gone: why, or "" if it has left."""
        with self._lock:
            self._gone.setdefault(rank, why)
            self._let_go(rank, [*self._kept])
            for number in [n for n, (_, maker) in self._asked.items() if maker == rank]:
                asked, _ = self._asked.pop(number)
                self._ask(asked, rank)


def _key(kind: bytes, number: int) -> bytes:
    return kind + number.to_bytes(_HALF, "big")
