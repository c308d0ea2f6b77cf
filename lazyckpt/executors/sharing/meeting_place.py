"""The place where ranks meet: a thread of one of them, which tells each where the others are."""

from __future__ import annotations

import socket
import threading
import warnings
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import chain
from time import monotonic, strftime
from typing import Any, NamedTuple

from lazyckpt.core.content import dumps
from lazyckpt.executors.sharing.door import Countdown, Door
from lazyckpt.executors.sharing.link import least
from lazyckpt.executors.sharing.presence import REWINDS, WAITS, WORKS, Present
from lazyckpt.executors.sharing.wire import ANSWER, WAIT, send_json

_SETTLED = 1.0  # seconds between two looks; ranks that then wait with unlike settings get an error
_PARTING = 3.0  # seconds for a wait that was given up to end, once the same rank comes again
_TICK = 0.1  # seconds between two looks whether it has
_SHOWN = 8  # ranks in a text
_GONE = {"error": "shared: rank 0, where ranks meet, has ended its run", "missing": [0]}


class _Rank(NamedTuple):
    """A rank that waits.

    Attributes:
        caller: The connection on which it waits for the answer.
        address: Its own address.
        reach: Its reach.
        shards: The number of shards and the index of each of its stages that deal items.
    """

    caller: socket.socket
    address: Any
    reach: Sequence[int]
    shards: Sequence[tuple[int, int]]

    @property
    def is_gone(self) -> bool:
        """Whether it has hung up: it waits no longer, or its process has ended."""
        timeout = self.caller.gettimeout()
        self.caller.setblocking(False)
        try:
            return not self.caller.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return False
        except OSError:
            return True
        finally:
            self.caller.settimeout(timeout)


class _Gathering:
    """Ranks that wait for others with equal settings.

    Attributes:
        told: The settings that are equal on these ranks.
        size: The number of ranks that are to come.
        ranks: Those that are there, by number.
        answer: The final answer to all of these ranks.
        began: When the first one came, by the clock.
        looked: When it was last looked what the others do.
        left: By rank, the time until it is missing; it begins again each time that it is busy.
        until_told: The time until a warning that busy ranks are waited for.
    """

    def __init__(self, told: Mapping[str, Any], size: int, timeout: float) -> None:
        self.told, self.size = told, size
        self.ranks: dict[int, _Rank] = {}
        self.answer: dict[str, Any] | None = None
        self.began, self.looked = strftime("%H:%M:%S"), monotonic()
        self.left = {rank: Countdown(timeout) for rank in range(size)}
        self.until_told: Countdown | None = Countdown(timeout)

    @property
    def missing(self) -> list[int]:
        """The ranks that aren't there."""
        return [each for each in range(self.size) if each not in self.ranks]

    def let_go(self, numbers: Sequence[int]) -> None:
        """Wait no longer with those of some ranks that have hung up."""
        for number in numbers:
            if number in self.ranks and self.ranks[number].is_gone:
                del self.ranks[number]


class MeetingPlace:
    """The listener of a meeting: a thread of one of the ranks.

    It answers a rank once all have come. Until then it says each second that it is there, and asks
    the ranks that have not come whether they are busy.

    Attributes:
        port: The port where it listens.
    """

    def __init__(self, host: str, secret: bytes, timeout: float) -> None:
        """Start to listen."""
        self._timeout = timeout
        self._changed = threading.Condition()
        self._gatherings: dict[str, _Gathering] = {}
        self._present: dict[int, Present] = {}
        self._door = Door(host, secret, timeout, self._serve)
        self.port = self._door.port

    def close(self) -> None:
        """Stop listening, and tell waiting ranks."""
        self._door.close()
        with self._changed:
            self._end([*self._gatherings.values()], _GONE)
            for each in self._present.values():
                each.close()

    def _serve(self, caller: socket.socket, asked: Mapping[str, Any]) -> None:
        if "present" in asked:
            self._note(asked["present"], Present(caller))
            return
        with caller:
            answer = self._answer(caller, **asked)
            caller.sendall(ANSWER)
            send_json(caller, answer)

    def _note(self, rank: int, present: Present) -> None:
        with self._changed:
            if (former := self._present.get(rank)) is not None:
                former.close()
            self._present[rank] = present
            if self._door.is_closed:
                present.close()

    def _answer(
        self,
        caller: socket.socket,
        rank: int,
        size: int,
        told: Mapping[str, Any],
        reach: Sequence[int],
        address: Any,
        shards: Sequence[tuple[int, int]] = (),
    ) -> dict[str, Any]:
        name = dumps(told)
        with self._changed:
            parting = Countdown(min(_PARTING, self._timeout / 2))
            while True:
                if self._door.is_closed:
                    return _GONE
                if name not in self._gatherings:
                    self._gatherings[name] = _Gathering(told, size, self._timeout)
                gathering = self._gatherings[name]
                gathering.let_go([rank])
                if rank not in gathering.ranks:
                    break
                if not parting.left():
                    return {"error": f"shared: two processes say that they are rank {rank}"}
                self._changed.wait(_TICK)
            mine = gathering.ranks[rank] = _Rank(caller, address, reach, shards)
            if len(gathering.ranks) == size:
                gathering.let_go(range(size))
            if len(gathering.ranks) == size:
                del self._gatherings[name]
                addresses = [gathering.ranks[each].address for each in range(size)]
                reach = least(each.reach for each in gathering.ranks.values())
                missing = _missing([each.shards for each in gathering.ranks.values()])
                answer = {"addresses": addresses, "reach": reach}
                gathering.answer = {"error": f"shared: {missing}"} if missing else answer
            self._changed.notify_all()
            return self._wait(gathering, rank, mine)

    def _wait(self, gathering: _Gathering, rank: int, mine: _Rank) -> dict[str, Any]:
        """Wait for the answer to a rank, in its own thread; look after all ranks meanwhile."""
        looked = monotonic()
        while gathering.answer is None:
            is_settled = not self._changed.wait(_SETTLED)
            if not is_settled and monotonic() - looked < _SETTLED:
                continue
            looked = monotonic()
            gathering.let_go([rank])
            if gathering.ranks.get(rank) is not mine:
                if not gathering.ranks:
                    self._end([gathering], _GONE)
                return _GONE  # nobody reads it
            with suppress(OSError):  # it is stopped, or gone
                mine.caller.send(WAIT, socket.MSG_DONTWAIT)
            if is_settled:
                self._tell_difference()
            if gathering.answer is None and looked - gathering.looked > _SETTLED / 2:
                self._look_after(gathering)  # which no other thread has done meanwhile
        return gathering.answer

    def _look_after(self, gathering: _Gathering) -> None:
        """Ask what the ranks do: busy ones are waited for, and those that have ended are not."""
        before, gathering.looked = gathering.looked, monotonic()
        for present in self._present.values():
            present.ask()
        does = {rank: each.does_since(before) for rank, each in self._present.items()}
        missing, there = gathering.missing, _ranks(sorted(gathering.ranks))
        if gone := [rank for rank in missing if rank in does and self._present[rank].is_gone]:
            text = f"{_ranks(gone)} ended, or dropped the executor, while {there} waited"
            self._end([gathering], {"error": f"shared: {text}", "missing": gone})
            return
        rewinds = any(does.get(rank) == REWINDS for rank in gathering.ranks)
        for rank in missing:
            if does.get(rank) == WORKS and not rewinds:
                gathering.left[rank] = Countdown(self._timeout)
        if late := [rank for rank in missing if not gathering.left[rank].left()]:
            waiting = [rank for rank in late if does.get(rank) in (WAITS, REWINDS)]
            self._end([gathering], self._late(gathering, late, waiting))
        elif gathering.until_told is not None and not gathering.until_told.left():
            gathering.until_told = None
            text = (
                f"shared: {_ranks(missing)} {_are(missing)} busy with something else, and waited "
                f"for since {gathering.began} by {there}: all ranks must open the same pipelines"
            )
            with suppress(RuntimeWarning):  # if it is an error, nobody could catch it here
                warnings.warn(text, RuntimeWarning, stacklevel=1)

    def _end(self, gatherings: Sequence[_Gathering], answer: dict[str, Any]) -> None:
        for each in gatherings:
            each.answer = answer
        known = self._gatherings.items()
        self._gatherings = {name: each for name, each in known if each.answer is None}
        self._changed.notify_all()

    def _tell_difference(self) -> None:
        """If every rank waits in one gathering or another, report how the gatherings differ."""
        waiting = [each for each in self._gatherings.values() if each.ranks]
        counts = Counter(rank for each in waiting for rank in each.ranks)
        least_size = min([each.size for each in waiting], default=0)
        if len(waiting) < 2 or len(counts) < least_size or set(counts.values()) != {1}:
            return
        self._end(waiting, {"error": f"shared: {_differing(*waiting[:2])}"})

    def _late(self, gathering: _Gathering, late: list[int], waiting: list[int]) -> dict[str, Any]:
        there = sorted(gathering.ranks)
        text = (
            f"shared: within {self._timeout:g} s {_ranks(late)} did not come to where "
            f"{_ranks(there)} {_are(there)}: all ranks open the same pipelines, and begin anew "
            "together; pass a larger timeout if a rank takes longer before that"
        )
        elsewhere = {each for other in self._gatherings.values() for each in other.ranks}
        if known := sorted(elsewhere & {*late}):
            text += f" ({_ranks(known)} {_are(known)} at another pipeline or position)"
        elif waiting:
            text += f" ({_ranks(waiting)} {_are(waiting)} waiting for an item)"
        return {"error": text, "missing": late}


def _differing(one: _Gathering, other: _Gathering) -> str:
    """Return the differences of two gatherings as a sentence."""
    told, others = one.told, other.told
    names = [name for name in {**told, **others} if told.get(name) != others.get(name)]
    if "on_error" in names:
        names = ["on_error"]  # stages differ as a consequence
    shown = "; ".join(
        f"{name}: {told.get(name, 'nothing')} and {others.get(name, 'nothing')}"
        for name in names[:3]
    )
    remedy = (
        "make settings and data equal, and the functions before shard with their bound values, and "
        "begin runs in the same order on all ranks"
    )
    if names == ["position"]:
        remedy = "begin on all ranks from one state"
    ranks = f"ranks {min(one.ranks)} and {min(other.ranks)}"
    return f"{ranks} differ, and share no work: {shown}; {remedy}"


def _missing(shards: Sequence[Sequence[tuple[int, int]]]) -> str:
    """Return which items would be lost, as no rank has their index; "" if none would be."""
    there: dict[int, set[int]] = {}
    for size, index in chain.from_iterable(shards):
        there.setdefault(size, set()).add(index)
    for size, found in there.items():
        if missing := sorted({*range(size)} - found):
            shown = ", ".join(map(str, missing[:3])) + ", ..." * (len(missing) > 3)
            return (
                f"no rank has index={shown} of num_shards={size}, so their items would be lost; "
                "give each rank its own index, and set num_shards to the number of ranks"
            )
    return ""


def _ranks(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN]))
    more = f", ... ({len(ranks):,} in all)" if len(ranks) > _SHOWN else ""
    return f"rank{'s' * (len(ranks) > 1)} {shown}{more}"


def _are(ranks: list[int]) -> str:
    return "are" if len(ranks) > 1 else "is"
