"""Where ranks go on when some of them are new."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

from lazyckpt.core.call import Chain
from lazyckpt.core.checks import brief
from lazyckpt.errors import InvalidState, PipelineError, StateMismatch
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


def of_group(found: Mapping[str, Any], size: int) -> tuple[list[str], int]:
    """The states of all ranks of a group, out of its `state_dict`, and the steps since."""
    try:
        states, steps = json.loads(found["ranks"]), operator.index(found["steps"])
    except (TypeError, KeyError, ValueError):
        raise InvalidState(f"not a state of all ranks: {brief(found)}") from None
    if not isinstance(states, list) or not all(isinstance(each, str) for each in states):
        raise InvalidState(f"not states of ranks: {brief(states)}")
    if steps < 0:
        raise InvalidState(f"steps must be an int >= 0, got {brief(steps)}")
    if len(states) != size:
        raise StateMismatch(
            f"loader: the state has the places of {len(states)} ranks, and the group has {size}: "
            "if the pipeline can change ranks, lz.reshard takes the state of each rank, which is "
            "lz.advance(pipeline, place, state['steps']) of its place in json.loads(state['ranks'])"
        )
    return states, steps


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
