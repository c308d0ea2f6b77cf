"""Positions at which ranks continue if some of them are new."""

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
    """A common position of all ranks: a number of steps after an agreement."""

    agreement: int
    steps: int


def meeting_point(reports: Sequence[Report]) -> Point | None:
    """Return the point at which all ranks with a position can continue.

    It comes after the last common agreement, at the step of the slowest rank. None
    if there is no common agreement.
    """
    pasts = [dict(report.past) for report in reports if report.has_position]
    known = [
        Point(number, min(past[number] for past in pasts))
        for number in (pasts[0] if pasts else ())
        if all(past.get(number, -1) >= 0 for past in pasts)
    ]
    return max(known, default=None)


def of_group(found: Mapping[str, Any], size: int) -> tuple[list[str], int]:
    """Parse the `state_dict` of a group: the states of all ranks, and the steps after them."""
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
            f"loader: the state has the positions of {len(states)} ranks, and the group has "
            f"{size}: if the pipeline can change ranks, pass the state of each rank to lz.reshard; "
            "it is lz.advance(pipeline, each, state['steps']) for each in "
            "json.loads(state['ranks'])"
        )
    return states, steps


def common_state(reports: Sequence[Report], new: Sequence[int], pipeline: Chain) -> str:
    """Return the state of the ranks that are not new, if it applies to every rank."""
    states = {report.state for report in reports if report.has_position}
    if len(states) == 1 and is_divided(pipeline):
        with suppress(StateMismatch):
            reshard([*states], pipeline)
            return states.pop()
    raise PipelineError(
        f"loader: {listed(new)} came without a state, and the others have no common state and "
        "no common agreement; load the state of each rank"
    )
