"""Types that functions return, for annotations."""

from __future__ import annotations

from lazyckpt.combinators.machines.schedules import Schedule
from lazyckpt.combinators.plan_packing import PackingPlan
from lazyckpt.core.machine import Rank
from lazyckpt.explanation.explain import ExplainedStage, Explanation
from lazyckpt.lineage.origins import Origin
from lazyckpt.lineage.seen import Seen
from lazyckpt.monitoring.report import Profile
from lazyckpt.preview import Head
from lazyckpt.state.algebra import Difference, Move
from lazyckpt.state.resume_cost import ResumeCost, StageCost
from lazyckpt.state.state import TrackedState
from lazyckpt.stats import Stats
from lazyckpt.tickets import Ticket
from lazyckpt.tracking import Tracked

__all__ = [
    "Difference",
    "ExplainedStage",
    "Explanation",
    "Head",
    "Move",
    "Origin",
    "PackingPlan",
    "Profile",
    "Rank",
    "ResumeCost",
    "Schedule",
    "Seen",
    "StageCost",
    "Stats",
    "Ticket",
    "Tracked",
    "TrackedState",
]
