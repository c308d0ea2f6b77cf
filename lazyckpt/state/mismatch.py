"""How two descriptions of pipelines differ, stage by stage."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from lazyckpt.core.call import described, former
from lazyckpt.core.checks import Check, Unfit
from lazyckpt.core.registry import registry
from lazyckpt.errors import StateMismatch

_MOST = 500  # stages of two pipelines that are compared


class Pair(NamedTuple):
    """A stage as it was and as it is: its numbers from 1, or 0 for none, and what differs."""

    old: int
    new: int
    name: str
    before: dict[str, Any]
    after: dict[str, Any]

    @property
    def met(self) -> bool:
        return bool(self.old and self.new)

    @property
    def differs(self) -> bool:
        return not self.met or bool(self.before or self.after)

    def __str__(self) -> str:
        old, new = (
            cut(f"{self.name}({', '.join(f'{k}={json.dumps(v)}' for k, v in values.items())})")
            for values in (self.before, self.after)
        )
        if self.met:
            return f"stage {self.new}: {old} -> {new}"
        return f"stage {self.new}: {new} is new" if self.new else f"stage {self.old}: {old} is gone"


def difference(old: str, new: str) -> str:
    """A line for each stage in which two descriptions of pipelines differ; none, no text."""
    if old == new:
        return ""
    stages = [[name for name, _ in json.loads(each)] for each in (old, new)]
    if stages[0] != stages[1]:
        return f"    {cut(' | '.join(stages[0]))}\n -> {cut(' | '.join(stages[1]))}\n"
    return "".join(f"    {pair}\n" for pair in paired(old, new) if pair.differs)


def paired(old: str, new: str) -> list[Pair]:
    """The stages of two descriptions, those that belong together as one."""
    stages = json.loads(old), json.loads(new)
    (first, *before), (source, *after) = (each or [["nothing", {}]] for each in stages)
    if first[0] != source[0]:
        raise StateMismatch(f"a state cannot follow this change: {cut(first[0])} -> {source[0]}")
    if len(before) * len(after) > _MOST**2:
        raise StateMismatch(f"a pipeline of {len(before) + 1:,} stages -> {len(after) + 1:,}")
    found, i, j = [_pair(1, 1, first, source)], 1, 1
    for one, other in _aligned(before, after):
        i, j = i + (one is not None), j + (other is not None)
        found.append(_pair(i if one else 0, j if other else 0, one, other))
    return found


def _pair(old: int, new: int, before: list[Any] | None, after: list[Any] | None) -> Pair:
    one, other = (stage[1] if stage else {} for stage in (before, after))
    name = (before or after or [""])[0]
    checks = registry[name].checks if name in registry else {}
    names = [
        k
        for k in {**one, **other}
        if not (k in one and k in other and _is_like(one[k], other[k], checks.get(k)))
    ]
    kept = ({k: args[k] for k in names if k in args} for args in (one, other))
    return Pair(old, new, name, *kept)


def _is_like(old: Any, new: Any, check: Check | None) -> bool:
    """Whether a value in a state is that of a pipeline, in the form it has or has had there."""
    text = _text(old)
    if text in (_text(new), _text(former(new))):
        return True
    try:
        return check is not None and _text(described(check(old))) == _text(new)
    except Unfit:
        return False


def _text(value: Any) -> str:
    """JSON, which tells 1, 1.0 and true apart."""
    return json.dumps(value, sort_keys=True)


def _aligned(
    old: list[list[Any]], new: list[list[Any]]
) -> list[tuple[list[Any] | None, list[Any] | None]]:
    """The stages that belong together, so that as little as can be differs; None for a lack."""
    best: dict[tuple[int, int], tuple[int, int, int]] = {}  # the price, and the step that led here
    for i in range(len(old) + 1):
        for j in range(len(new) + 1):
            ways = [(0, 0, 0)] * (i == j == 0)
            if i and j and old[i - 1][0] == new[j - 1][0]:
                ways.append((best[i - 1, j - 1][0] + (old[i - 1] != new[j - 1]), 1, 1))
            if i:
                ways.append((best[i - 1, j][0] + 2, 1, 0))
            if j:
                ways.append((best[i, j - 1][0] + 2, 0, 1))
            best[i, j] = min(ways, key=lambda way: way[0])
    pairs: list[tuple[list[Any] | None, list[Any] | None]] = []
    i, j = len(old), len(new)
    while i or j:
        _, one, other = best[i, j]
        i, j = i - one, j - other
        pairs.append((old[i] if one else None, new[j] if other else None))
    return pairs[::-1]


def cut(text: str) -> str:
    """What a state says, as an error may show it: in one line, and no control codes."""
    return "".join(c if c.isprintable() else "?" for c in text[:1000])
