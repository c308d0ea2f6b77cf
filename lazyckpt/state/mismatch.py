"""Differences between the stages of two pipelines."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import zip_longest
from typing import Any, NamedTuple

from lazyckpt.core.checks import cut
from lazyckpt.core.content import Entries, Entry, alike, alike_stages, changed, dumps
from lazyckpt.errors import StateMismatch

_MOST = 500  # stages of two pipelines that are compared
_LINES = 8  # lines shown per difference


class Pair(NamedTuple):
    """A stage before and after a change: its numbers from 1, or 0 if it was inserted or removed.

    A state doesn't show which functions differ, so `functions` names them. For joined pipelines,
    `inner` has the requirements of their differing functions for later stages.
    """

    old: int
    new: int
    was: Entry | None
    now: Entry | None
    functions: tuple[str, ...] = ()
    inner: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        found = self.was or self.now
        return found.name if found is not None else ""

    @property
    def met(self) -> bool:
        return bool(self.old and self.new)

    @property
    def changed(self) -> list[str]:
        """The arguments that differ, without functions; "pipelines" if it joins different ones."""
        if self.was is None or self.now is None:
            return []
        pipelines = self.was.pipelines, self.now.pipelines
        is_same = len(pipelines[0]) == len(pipelines[1]) and all(map(alike, *pipelines))
        return changed(self.was, self.now) + ["pipelines"] * (not is_same)

    @property
    def differs(self) -> bool:
        return not self.met or bool(self.changed or self.functions or self.inner)

    def value(self, name: str) -> Any:
        """Return the old value of an argument; None if it had its default."""
        return None if self.was is None else self.was.known.get(name)

    def lines(self, prefix: str = "") -> Iterator[str]:
        """Yield the differences, one line per stage."""
        if self.was is None or self.now is None:
            what = self._shown(self.now or self.was)
            done = "added" if self.new else "removed"
            yield f"stage {prefix}{self.new or self.old}: {what} was {done}"
            return
        if changed(self.was, self.now):
            yield f"stage {prefix}{self.new}: {self._shown(self.was)} -> {self._shown(self.now)}"
        for name in self.functions:
            yield f"stage {prefix}{self.new}: {self.name}({name}) is a different function"
        if self.inner:
            what = f"stage {prefix}{self.new}: {self.name}"
            yield f"{what} joins pipelines with a different function"
        if "pipelines" in self.changed:
            pairs = zip_longest(self.was.pipelines, self.now.pipelines)
            for number, (one, other) in enumerate(pairs):
                yield from _inner(one, other, f"{prefix}{self.new}[{number}]")

    def __str__(self) -> str:
        return cut("; ".join(_few(self.lines())), in_data=True)

    def _shown(self, entry: Entry | None) -> str:
        assert entry is not None
        known = entry.known
        names = changed(self.was, self.now) if self.was and self.now else [*known]
        given = ", ".join(f"{name}={dumps(known[name])}" for name in names if name in known)
        return cut(f"{entry.name}({given})", in_data=True)


def _inner(old: Entries | None, new: Entries | None, label: str) -> Iterator[str]:
    if old is None or new is None:
        yield f"pipeline {label}: {_brief(old or new)} was {'added' if old is None else 'removed'}"
    elif not alike(old, new):
        if _names(old) != _names(new):
            name = cut(str(new[0].known.get("name", "")))
            yield f"pipeline {label}{name and ' '}{name}: {_brief(old)} -> {_brief(new)}"
        else:
            for pair in paired(old, new):
                yield from pair.lines(f"{label}.")


def _brief(entries: Entries | None) -> str:
    return cut(" | ".join(_names(entries or ())))


def _names(entries: Entries) -> list[str]:
    return [each.name for each in entries]


def _few(lines: Iterator[str]) -> list[str]:
    found = list(lines)
    more = len(found) - _LINES
    return found if more <= 1 else [*found[:_LINES], f"... and {more:,} more"]


def difference(old: Entries, new: Entries) -> str:
    """Describe how two pipelines differ, one line per stage; empty if they don't."""
    if old == new:
        return ""
    if _names(old) != _names(new):
        return f"    {_brief(old)}\n -> {_brief(new)}\n"
    lines = (line for pair in paired(old, new) if pair.differs for line in pair.lines())
    return "".join(f"    {line}\n" for line in _few(lines))


def paired(old: Entries, new: Entries) -> list[Pair]:
    """Pair the corresponding stages of two pipelines."""
    (first, *before), (source, *after) = old, new
    if first.name != source.name:
        raise StateMismatch(
            f"a state cannot follow this change: {cut(first.name)} -> {source.name}"
        )
    if len(before) * len(after) > _MOST**2:
        raise StateMismatch(f"a pipeline of {len(before) + 1:,} stages -> {len(after) + 1:,}")
    found, i, j = [Pair(1, 1, first, source)], 1, 1
    for one, other in _aligned(before, after):
        i, j = i + (one is not None), j + (other is not None)
        found.append(Pair(i if one else 0, j if other else 0, one, other))
    return found


def _aligned(old: list[Entry], new: list[Entry]) -> list[tuple[Entry | None, Entry | None]]:
    """Align stages with the fewest differences; None stands for a missing stage."""
    best: dict[tuple[int, int], tuple[int, int, int]] = {}  # the cost, and the step that led here
    for i in range(len(old) + 1):
        for j in range(len(new) + 1):
            ways = [(0, 0, 0)] * (i == j == 0)
            if i and j and old[i - 1].name == new[j - 1].name:
                price = best[i - 1, j - 1][0] + (not alike_stages(old[i - 1], new[j - 1]))
                ways.append((price, 1, 1))
            if i:
                ways.append((best[i - 1, j][0] + 2, 1, 0))
            if j:
                ways.append((best[i, j - 1][0] + 2, 0, 1))
            best[i, j] = min(ways, key=lambda way: way[0])
    pairs: list[tuple[Entry | None, Entry | None]] = []
    i, j = len(old), len(new)
    while i or j:
        _, one, other = best[i, j]
        i, j = i - one, j - other
        pairs.append((old[i] if one else None, new[j] if other else None))
    return pairs[::-1]
