"""Where ranks go on when some of them are new."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from lazyckpt.core.call import Chain
from lazyckpt.errors import PipelineError, StateMismatch
from lazyckpt.integrations.torch.reports import Report, is_divided, listed
from lazyckpt.state.reshard import reshard


class Point(NamedTuple):
    """A place of all ranks: so many steps after an agreement, by its number."""

    agreement: int
    steps: int


def meeting_point(reports: Sequence[Report]) -> Point | None:
    """Where all ranks with a place can go on: after the last agreement that all of them remember.

    It is the step that the last of them has come to. None where they remember none.
    """
    pasts = [dict(report.past) for report in reports if report.has_place]
    known = [
        Point(number, min(past[number] for past in pasts))
        for number in (pasts[0] if pasts else ())
        if all(past.get(number, -1) >= 0 for past in pasts)
    ]
    return max(known, default=None)


def common_place(reports: Sequence[Report], new: Sequence[int], pipeline: Chain) -> str:
    """The state of the ranks that are not new, where it is that of every rank."""
    states = {report.state for report in reports if report.has_place}
    if len(states) == 1 and is_divided(pipeline):
        with suppress(StateMismatch):
            reshard([*states], pipeline)
            return states.pop()
    raise PipelineError(
        f"loader: {listed(new)} came without a state, and the others' is not that of all ranks, "
        "nor have they agreed since they have theirs; load the state of each rank"
    )
