"""A run on each rank of a process group, which end their epochs at the same step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import torch.distributed as dist

from lazyckpt.core.call import Chain
from lazyckpt.core.content import dumps
from lazyckpt.errors import PipelineError
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.integrations.torch.lookahead import Lookahead
from lazyckpt.integrations.torch.places import common_place, meeting_point, of_group
from lazyckpt.integrations.torch.ranks import Ranks
from lazyckpt.integrations.torch.reports import (
    Report,
    check_alike,
    failed,
    is_divided,
    pipeline_digest,
    told,
)
from lazyckpt.run import Run
from lazyckpt.state.state import AnyState, State, flat

T = TypeVar("T")


class Agreement(NamedTuple):
    """The states of all ranks when they agreed.

    - `number`: how many agreements came before it
    - `states`: theirs, as JSON
    - `items`: how many items this rank had delivered
    """

    number: int
    states: list[str]
    items: int


class RankedRun(Generic[T]):
    """A run on each rank, which all end their epochs at the same step.

    Each makes a few items ahead, and all tell each other how many those are: the
    least of these numbers is how many steps all can do. What a rank has left when
    an epoch ends comes first in the next one. An epoch ends where the first rank has
    come to the end of it: the rank that is furthest ahead says which epoch it is.

    In an agreement all ranks learn the states of all, so that one that is
    replaced has its place from the others.

    Args:
        pipeline: What runs.
        run: Its run on this rank.
        agree_ahead: For how many steps to agree at once.
        timeout: How many seconds an agreement may take.

    Attributes:
        pipeline: What runs.
        left: How many items the last loop had left at most; None after another state was loaded.
        state: The state after the last delivered item.
        length: How many items an epoch has, infinity if endless, None if only reading tells.
    """

    def __init__(
        self,
        pipeline: Chain,
        run: Run[T],
        agree_ahead: int,
        timeout: float,
    ) -> None:
        self.pipeline, self._room, self._timeout = pipeline, agree_ahead, timeout
        self.left: float | None = None
        self._last = 0
        self._ahead = Lookahead(run)
        self.state, self._has_place = run.state, False
        self._ranks: Ranks | None = None
        self.length: float | None = None
        self._digest = pipeline_digest(pipeline)
        self._turn, self._has_changed = 0, False
        self._agreements: deque[Agreement] = deque(maxlen=2)
        self._kept: Agreement | None = None

    @property
    def skipped(self) -> Skipped:
        """How many items were left out before the last delivered one."""
        return self.state.skipped

    def state_dict(self) -> dict[str, Any]:
        """The state for any checkpointer, equal on all ranks.

        Where each rank is at a place of its own, those of all when they agreed last, and
        the steps since.
        """
        return self._dict(self.state)

    def _dict(self, state: State) -> dict[str, Any]:
        known = [each for each in (self._kept, *self._agreements) if each is not None]
        past = [each for each in known if each.items <= state.items]
        if not past or (is_divided(self.pipeline) and state.rank is None):
            return flat(state)
        return {"ranks": dumps(past[-1].states), "steps": state.items - past[-1].items}

    def load_state_dict(self, state: AnyState) -> None:
        """Go to a state. A loop under way goes on from there, after another agreement."""
        assert self._ranks is not None
        self.load(state, *self._ranks.who)

    def load(self, state: AnyState, rank: int, size: int) -> None:
        """Go to a state of this rank of a group of that size, or of all of them."""
        agreements = []
        if isinstance(state, Mapping) and "ranks" in state:
            states, steps = of_group(state, size)
            if error := self._go_on(states[rank], steps):
                raise error
            agreements.append(Agreement(0, states, self.state.items - steps))
        else:
            self._ahead.go_to(state)
            self.state = self._ahead.end
        self._agreements.clear()
        self._agreements.extend(agreements)
        self._turn += 1
        self.left, self._kept, self._has_place = None, None, True

    def keep(self) -> None:
        """Remember where all ranks are, for `rewind`."""
        self._kept = self._agreements[-1] if self._agreements else None

    def rewind(self, state: State) -> None:
        """Go back to a state of this rank, and with it to those of all ranks, if they are known."""
        self.load_state_dict(self._dict(state))

    def change(self, pipeline: Chain) -> None:
        """Go on as another pipeline after the item delivered last; the ranks then agree anew."""
        self._ahead.go_to(self.state)
        self._ahead.change(pipeline)
        self.pipeline, self._digest = pipeline, pipeline_digest(pipeline)
        self.state, self.length = self._ahead.end, None
        self._agreements.clear()  # whose states are of another pipeline
        self._kept = None
        self._has_changed = True

    def epoch(
        self, size: int | None = None, least: int = 0, *, is_left: bool = False
    ) -> Iterator[T]:
        """The rest of this epoch, or the next one: on all ranks as many items.

        Args:
            size: How many items an epoch has, across the ends of the stream.
            least: The first epoch that it may be.
            is_left: Whether the last loop was left: it is the next one then, unless a rank had
                come to the end of its own.
        """
        is_over = False
        while not is_over:
            self._turn += 1
            is_over = yield from self._steps(self._turn, size, least, is_left)
            least, is_left = 0, False  # for a state that was loaded meanwhile

    def _steps(
        self, turn: int, size: int | None, least: int, is_left: bool
    ) -> Generator[T, None, bool]:
        """The items up to the end of an epoch; whether it is over."""
        ahead, room = self._ahead, self._room
        self._has_changed = False
        last, self.left = self._begin(size, least, is_left)
        while self.left:
            ahead.fill(room, last)
            most = int(min(room, self.left))
            ready = min(len(ahead.items), most)
            reports = self._agree("its next steps", size, ready=ready, error=told(ahead.error))
            agreed, given = min(report.ready for report in reports), 0
            while given < agreed and not self._has_changed:
                ahead.fill(room, last)
                item, self.state = ahead.items.popleft()
                self.left -= 1
                yield item
                given += 1
                if turn != self._turn:
                    return False
            if self._has_changed:  # so that others are ahead, and perhaps fewer
                self._has_changed = False
            elif agreed < most:
                self._end(reports, agreed)
                return True
        return True

    def _begin(self, size: int | None, least: int, is_left: bool) -> tuple[float, float]:
        """The last epoch of the stream to read of, and how many items there are at most."""
        ahead = self._ahead
        if ahead.end.items != self.state.items + len(ahead.items):  # after an interrupt
            ahead.go_to(self.state)
        length = self.pipeline.machine.length
        reports = self._agree("an epoch", size, epoch=ahead.epoch(), length=length)
        self.length = _shortest(reports)
        found = max(report.epoch for report in reports)
        last = max(found, least, self._last + is_left)
        if last > found:
            ahead.begin(last, self.state)
            self.state = ahead.end
            self._agreements.clear()
            self._agree("the next epoch", size)
        self._last = last
        if size is None:
            return last, math.inf
        return math.inf, size - max(report.items for report in reports) % size

    def _end(self, reports: list[Report], agreed: int) -> None:
        """End the epoch, or raise the error that came in place of the next item."""
        ahead = self._ahead
        first = [rank for rank, report in enumerate(reports) if report.ready == agreed]
        if all(reports[rank].error for rank in first):
            if ahead.error is not None and not ahead.items:
                raise ahead.error
            raise failed(reports, first)
        if ahead.is_over and not ahead.items:
            self.state = ahead.end

    def join(self, group: dist.ProcessGroup, items: int | None = None) -> None:
        """Go on with a process group, whose ranks all call it. New ones get their place of it.

        Args:
            group: The process group.
            items: After how many items of this rank to go on; None for all delivered.
        """
        if self._ranks is not None and self._ranks.who != (group.rank(), group.size()):
            rank, size = self._ranks.who
            raise PipelineError(
                f"join: this was rank {rank} of {size}, and is rank {group.rank()} of "
                f"{group.size()}; make a loader for it, from what lz.reshard or lz.rebase makes "
                "of the states"
            )
        self._ranks = Ranks(group, self._timeout)
        self._turn += 1
        reached = self.state.items if items is None else items
        past = [(each.number, reached - each.items) for each in self._agreements]
        reports = self._tell("a place", has_place=self._has_place, past=past)
        error = self._take_place(self._ranks.rank, reports, reached)
        length = self.pipeline.machine.length
        reports = self._tell("to begin", error=told(error), length=length)
        if error is not None:
            raise error
        if wrong := [rank for rank, report in enumerate(reports) if report.error]:
            raise failed(reports, wrong)
        self._has_place = True
        self.length = _shortest(reports)
        self._agreements.clear()
        self._remember(0, reports)

    def _take_place(self, rank: int, reports: list[Report], reached: int) -> Exception | None:
        """Go to where all ranks go on; the error that came of it on this one."""
        point, new = meeting_point(reports), [n for n, r in enumerate(reports) if not r.has_place]
        states: dict[str, str] = {}
        if point is not None:
            here = next((each for each in self._agreements if each.number == point.agreement), None)
            if new:
                states = self._places(here, new, reports)
            if here is not None and self._has_place:
                if self.state.items == here.items + point.steps:
                    return None
                states = {str(rank): here.states[rank]}
            return self._go_on(states[str(rank)], point.steps)
        if reached != self.state.items:
            return PipelineError(
                f"loader: items={reached:,} is before the last two agreements, so it can't go "
                "back there; load the state of each rank"
            )
        if len(new) in (0, len(reports)):
            return None
        state = common_place(reports, new, self.pipeline)  # or an error, on all ranks
        return self._go_on(state, 0) if rank in new else None

    def _places(
        self, here: Agreement | None, new: list[int], reports: list[Report]
    ) -> dict[str, str]:
        """The states of new ranks at an agreement, of the first rank that was there."""
        first = next(rank for rank, report in enumerate(reports) if report.has_place)
        states = None
        if here is not None and self._ranks is not None and self._ranks.rank == first:
            states = {str(rank): here.states[rank] for rank in new}
        found = self._tell("places of new ranks", states=states)[first].states
        assert found is not None
        return found

    def _go_on(self, state: str, steps: int) -> Exception | None:
        """Go to so many steps after a state; the error that came of it."""
        try:
            self._ahead.go_to(state)
            self.state = self._ahead.end
            if steps:
                self._ahead.epoch()
                self._ahead.fill(steps, math.inf)
        except Exception as error:
            return error
        for _ in range(min(steps, len(self._ahead.items))):
            self.state = self._ahead.items.popleft()[1]
        return self._ahead.error

    def _agree(self, asks: str, size: int | None, **said: Any) -> list[Report]:
        """What all ranks say; an error on all of them where they don't go in step."""
        since = self.state.items - self._agreements[-1].items if self._agreements else None
        number = self._agreements[-1].number + 1 if self._agreements else 0
        reports = self._tell(asks, size, since=since, **said)
        self._remember(number, reports)
        return reports

    def _remember(self, number: int, reports: list[Report]) -> None:
        states = [report.state for report in reports]
        self._agreements.append(Agreement(number, states, self.state.items))

    def _tell(self, asks: str, size: int | None = None, **said: Any) -> list[Report]:
        if self._ranks is None:
            raise PipelineError("loader: it has joined no process group")
        settings = {"agree_ahead": self._room, "epoch_size": size}
        state = self.state.to_json()
        mine = Report(asks, settings, self._digest, state, self.state.items, **said)
        found = [Report.from_bytes(each) for each in self._ranks.exchange(mine.to_bytes())]
        check_alike(found)
        return found


def _shortest(reports: list[Report]) -> float | None:
    """How many items an epoch of all ranks has; None if only reading tells."""
    lengths = [report.length for report in reports if report.length is not None]
    return min(lengths) if len(lengths) == len(reports) else None
