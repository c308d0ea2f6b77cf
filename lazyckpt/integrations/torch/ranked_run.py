"""Runs on the ranks of a process group that end their epochs at the same step."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Generator, Iterator, Mapping
from itertools import islice
from typing import Any, Generic, NamedTuple, TypeVar

import torch.distributed as dist

from lazyckpt.core.call import Chain
from lazyckpt.core.content import dumps
from lazyckpt.errors import PipelineError
from lazyckpt.failures.skip_log import Skipped
from lazyckpt.integrations.torch.lookahead import Lookahead
from lazyckpt.integrations.torch.rank_positions import common_state, meeting_point, of_group
from lazyckpt.integrations.torch.ranks import Ranks
from lazyckpt.integrations.torch.reports import (
    Report,
    check_alike,
    failed,
    in_words,
    is_divided,
    pipeline_digest,
)
from lazyckpt.run import Run
from lazyckpt.state.rebase import followed
from lazyckpt.state.state import AnyState, State, flat

T = TypeVar("T")


class Agreement(NamedTuple):
    """The states of all ranks when they agreed.

    - `number`: number of earlier agreements
    - `states`: the states as JSON
    - `items`: number of items that this rank had delivered
    - `is_common`: True if the ranks' states are equal, and stay equal until the next agreement
    """

    number: int
    states: list[str]
    items: int
    is_common: bool


class RankedRun(Generic[T]):
    """A run on each rank; all ranks end their epochs at the same step.

    Each rank computes a few items ahead and reports their number to the others. The smallest of
    these numbers is the number of steps that all ranks can do. Items that a rank has left at the
    end of an epoch come first in the next one. An epoch ends when the first rank reaches its end;
    the rank that is furthest ahead determines which epoch it is.

    In an agreement all ranks learn the states of all, so a replaced rank gets its position from the
    others.

    Args:
        pipeline: Pipeline that runs.
        run: Its run on this rank.
        agree_ahead: Number of steps per agreement.
        timeout: Seconds that an agreement may take.

    Attributes:
        pipeline: Pipeline that runs.
        left: Most items that the last loop had left; None after a different state was loaded.
        state: The state after the last delivered item.
        length: Number of items per epoch, infinity if endless, None if it can't be known without
            reading the data.
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
        self._ahead = Lookahead(run)
        self.state, self._has_position = run.state, False
        self._ranks: Ranks | None = None
        self.length: float | None = None
        self._digest = pipeline_digest(pipeline)
        self._turn, self._has_changed = 0, False
        self._agreements: deque[Agreement] = deque(maxlen=2)
        self._kept: Agreement | None = None

    @property
    def skipped(self) -> Skipped:
        """The number of items that were skipped before the last delivered one."""
        return self.state.skipped

    def state_dict(self) -> dict[str, Any]:
        """Return the state for any checkpointer, equal on all ranks.

        If the ranks have different positions, it has the positions of all at the last agreement,
        and the number of steps since.
        """
        return self._dict(self.state)

    def _dict(self, state: State) -> dict[str, Any]:
        known = [each for each in (self._kept, *self._agreements) if each is not None]
        past = [each for each in known if each.items <= state.items]
        if not past or (past[-1].is_common and _is_global(self.pipeline, state)):
            return flat(state)
        return {"ranks": dumps(past[-1].states), "steps": state.items - past[-1].items}

    def load_state_dict(self, state: AnyState) -> None:
        """Move to a state; a running loop continues from there, after a new agreement."""
        assert self._ranks is not None
        self.load(state, *self._ranks.rank_and_size)

    def load(self, state: AnyState, rank: int, size: int) -> None:
        """Move to a state of this rank in a group of that size, or to one of all ranks."""
        agreements = []
        if isinstance(state, Mapping) and "ranks" in state:
            states, steps = of_group(state, size)
            if error := self._go_on(states[rank], steps):
                raise error
            agreements.append(Agreement(0, states, self.state.items - steps, False))
        else:
            self._ahead.go_to(state)
            self.state = self._ahead.end
        self._agreements.clear()
        self._agreements.extend(agreements)
        self._turn += 1
        self.left, self._kept, self._has_position = None, None, True

    def keep(self) -> None:
        """Remember the positions of all ranks, for `rewind`."""
        self._kept = self._agreements[-1] if self._agreements else None

    def rewind(self, state: State) -> None:
        """Go back to a state of this rank, and to the matching states of all ranks if known."""
        self.load_state_dict(self._dict(state))

    def change(self, pipeline: Chain, trained: State | None) -> State | None:
        """Continue as a different pipeline after the last delivered item, if all ranks can.

        Args:
            pipeline: The new pipeline.
            trained: A state of the old pipeline, or None.

        Returns:
            That state, carried over to the new pipeline.
        """
        state, error = self.state, None
        try:
            state = followed(self.state, pipeline, self.pipeline)
            trained = trained and followed(trained, pipeline, self.pipeline)
        except Exception as found:
            error = found
        reports = self._exchange("a change", state, pipeline, error=in_words(error))
        if error is not None:
            raise error
        if wrong := [rank for rank, report in enumerate(reports) if report.error]:
            raise failed(reports, wrong)
        self._ahead.go_to(self.state)
        self._ahead.change(pipeline)
        self.pipeline, self._digest = pipeline, pipeline_digest(pipeline)
        self.state, self.length = self._ahead.end, None
        self._agreements.clear()  # their states belong to the old pipeline
        self._remember(0, reports)
        self._kept = None
        self._has_changed = True
        return trained

    def epoch(
        self, size: int | None = None, least: int = 0, *, is_left: bool = False
    ) -> Iterator[T]:
        """Yield the rest of this epoch, or the next one: the same number of items on all ranks.

        Args:
            size: Number of items per epoch, across the ends of the stream.
            least: The first epoch that it may be.
            is_left: True if the last loop was left early. The next epoch is read then, unless a
                rank had reached the end of its epoch.
        """
        is_over, is_new = False, True
        while not is_over:
            self._turn += 1
            is_over = yield from self._steps(self._turn, size, least, is_left, is_new)
            least, is_left, is_new = 0, False, False  # in case a state was loaded meanwhile

    def _steps(
        self, turn: int, size: int | None, least: int, is_left: bool, is_new: bool
    ) -> Generator[T, None, bool]:
        """Yield the items up to the end of an epoch; return whether it is over."""
        ahead, room = self._ahead, self._room
        self._has_changed = False
        last, self.left = self._begin(size, least, is_left, is_new)
        while self.left:
            ahead.fill(room, last)
            most = int(min(room, self.left))
            ready = [self._epoch_at(state) for _, state in islice(ahead.items, most)]
            reports = self._agree("its next steps", size, ready=ready, error=in_words(ahead.error))
            agreed, given = min(len(report.ready) for report in reports), 0
            while given < agreed and not self._has_changed:
                ahead.fill(room, last)
                item, self.state = ahead.items.popleft()
                self.left -= 1
                yield item
                given += 1
                if turn != self._turn:
                    return False
            if self._has_changed:  # the new pipeline may have fewer items ahead
                self._has_changed = False
            elif agreed < most:
                self._end(reports, agreed)
                return True
        return True

    def _begin(
        self, size: int | None, least: int, is_left: bool, is_new: bool
    ) -> tuple[float, float]:
        """Return the last epoch of the stream to read, and the most items to deliver."""
        ahead = self._ahead
        if ahead.end.items != self.state.items + len(ahead.items):  # after an interrupt
            ahead.go_to(self.state)
        length = self.pipeline.machine.length
        reached = self._epoch_at(self.state)
        reports = self._agree("an epoch", size, epoch=ahead.epoch(), reached=reached, length=length)
        self.length = _shortest(reports)
        found = max(report.epoch for report in reports)
        before = max(report.reached for report in reports)
        if not is_new and size is None and found > before:
            return before, 0  # the state that was loaded is at the end of this epoch
        last = max(found, least, before + is_left)
        if last > found:
            ahead.begin(last, self.state)
            self.state = ahead.end
            self._agreements.clear()
            self._agree("the next epoch", size)
        if size is None:
            return last, math.inf
        return math.inf, size - max(report.items for report in reports) % size

    def _end(self, reports: list[Report], agreed: int) -> None:
        """End the epoch, or raise the error that came in place of the next item."""
        ahead = self._ahead
        first = [rank for rank, report in enumerate(reports) if len(report.ready) == agreed]
        if all(reports[rank].error for rank in first):
            if ahead.error is not None and not ahead.items:
                raise ahead.error
            raise failed(reports, first)
        # If the others have items left, a state of all ranks is before them.
        is_common = self._agreements[-1].is_common and _is_global(self.pipeline, self.state)
        if ahead.is_over and not ahead.items and not (is_common and len(first) < len(reports)):
            self.state = ahead.end

    def _epoch_at(self, state: State) -> int:
        return self.pipeline.machine.epoch(state.position)

    def join(self, group: dist.ProcessGroup, items: int | None = None) -> None:
        """Continue with a process group, whose ranks all call it; new ranks get their position.

        Args:
            group: The process group.
            items: Number of items of this rank after which to continue; None for all delivered.
        """
        if self._ranks is not None and self._ranks.rank_and_size != (group.rank(), group.size()):
            rank, size = self._ranks.rank_and_size
            raise PipelineError(
                f"join: this was rank {rank} of {size}, and is rank {group.rank()} of "
                f"{group.size()}; make a new loader, from the states converted by lz.reshard or "
                "lz.rebase"
            )
        self._ranks = Ranks(group, self._timeout)
        self._turn += 1
        reached = self.state.items if items is None else items
        past = [(each.number, reached - each.items) for each in self._agreements]
        reports = self._exchange("a position", has_position=self._has_position, past=past)
        error = self._take_position(self._ranks.rank, reports, reached)
        length = self.pipeline.machine.length
        reports = self._exchange("to begin", error=in_words(error), length=length)
        if error is not None:
            raise error
        if wrong := [rank for rank, report in enumerate(reports) if report.error]:
            raise failed(reports, wrong)
        self._has_position = True
        self.length = _shortest(reports)
        self._agreements.clear()
        self._remember(0, reports)

    def _take_position(self, rank: int, reports: list[Report], reached: int) -> Exception | None:
        """Move to the common position of all ranks; return the error that this raised."""
        point = meeting_point(reports)
        new = [n for n, report in enumerate(reports) if not report.has_position]
        states: dict[str, str] = {}
        if point is not None:
            here = next((each for each in self._agreements if each.number == point.agreement), None)
            if new:
                states = self._states_at(here, new, reports)
            if here is not None and self._has_position:
                if self.state.items == here.items + point.steps:
                    return None
                states = {str(rank): here.states[rank]}
            return self._go_on(states[str(rank)], point.steps)
        if reached != self.state.items:
            return PipelineError(
                f"loader: items={reached:,} is before the last two agreements, which is too far "
                "back; load the state of each rank"
            )
        if len(new) in (0, len(reports)):
            return None
        state = common_state(reports, new, self.pipeline)  # an error is raised on all ranks
        return self._go_on(state, 0) if rank in new else None

    def _states_at(
        self, here: Agreement | None, new: list[int], reports: list[Report]
    ) -> dict[str, str]:
        """Return the states of new ranks at an agreement, from the first rank that took part."""
        first = next(rank for rank, report in enumerate(reports) if report.has_position)
        states = None
        if here is not None and self._ranks is not None and self._ranks.rank == first:
            states = {str(rank): here.states[rank] for rank in new}
        found = self._exchange("positions of new ranks", states=states)[first].states
        assert found is not None
        return found

    def _go_on(self, state: str, steps: int) -> Exception | None:
        """Move to a number of steps after a state; return the error that this raised."""
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

    def _agree(self, asks: str, size: int | None, **facts: Any) -> list[Report]:
        """Exchange reports of all ranks; raise an error on all of them if they are out of step."""
        since = self.state.items - self._agreements[-1].items if self._agreements else None
        number = self._agreements[-1].number + 1 if self._agreements else 0
        reports = self._exchange(asks, size=size, since=since, **facts)
        self._remember(number, reports)
        return reports

    def _remember(self, number: int, reports: list[Report]) -> None:
        states = [report.state for report in reports]
        agreed = min(len(report.ready) for report in reports)
        epochs = {(report.state, *report.ready[:agreed]) for report in reports}
        self._agreements.append(Agreement(number, states, self.state.items, len(epochs) == 1))

    def _exchange(
        self,
        asks: str,
        state: State | None = None,
        pipeline: Chain | None = None,
        size: int | None = None,
        **facts: Any,
    ) -> list[Report]:
        if self._ranks is None:
            raise PipelineError("loader: it has joined no process group")
        settings = {"agree_ahead": self._room, "epoch_size": size}
        digest = self._digest if pipeline is None else pipeline_digest(pipeline)
        state = self.state if state is None else state
        mine = Report(asks, settings, digest, state.to_json(), state.items, **facts)
        found = [Report.from_bytes(each) for each in self._ranks.exchange(mine.to_bytes())]
        check_alike(found)
        return found


def _is_global(pipeline: Chain, state: State) -> bool:
    """Return whether one state applies to all ranks, as long as they are at the same item."""
    return is_divided(pipeline) and state.rank is None


def _shortest(reports: list[Report]) -> float | None:
    """Return the number of items per epoch on all ranks; None if reading is needed to know it."""
    lengths = [report.length for report in reports if report.length is not None]
    return min(lengths) if len(lengths) == len(reports) else None
