"""For authors of combinators: functions that build machines, and the types that describe them."""

from __future__ import annotations

from lazyckpt.core.flow import Flow, Position, Table, View, counted
from lazyckpt.core.machine import End, Machine, Rate, Reread, Share, begun, within
from lazyckpt.core.stages import joining, sourced, stateful, stateless
from lazyckpt.core.user_state import freeze, storable, thaw

__all__ = [
    "End",
    "Flow",
    "Machine",
    "Position",
    "Rate",
    "Reread",
    "Share",
    "Table",
    "View",
    "begun",
    "counted",
    "freeze",
    "joining",
    "sourced",
    "stateful",
    "stateless",
    "storable",
    "thaw",
    "within",
]
