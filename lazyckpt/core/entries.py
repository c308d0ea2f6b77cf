"""Stages as a state has them: name, the arguments that decide the order, digests of long ones."""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from lazyckpt.core.secrets import MASK, is_secret, masked
from lazyckpt.core.show import is_function

ROOM = 640  # characters of the kilobyte that a state may fill, for its stages
_SHORT = 120  # characters of a user's own dict that a state has as they are
NAME = 16  # characters of a source's name beside a digest
_DIGEST = 11  # characters of an argument that is a digest


class Entry(NamedTuple):
    """A stage as a state has it.

    - `name`: its combinator's
    - `arguments`: those that decide the order, as JSON
    - `owns`: whether it has a place of its own
    - `pipelines`: those that it joins, each as entries or as a digest
    """

    name: str
    arguments: str
    owns: bool
    pipelines: tuple[Described, ...] = ()

    @property
    def known(self) -> dict[str, Any]:
        """The arguments by name."""
        found: dict[str, Any] = json.loads(self.arguments)
        return found

    def with_arguments(self, arguments: Mapping[str, Any]) -> Entry:
        """The same stage with other arguments."""
        return self._replace(arguments=dumps(arguments))


Entries: TypeAlias = tuple[Entry, ...]
Described: TypeAlias = "Entries | str"


# JSON in its one form here, which tells 1, 1.0 and true apart.
dumps = json.JSONEncoder(separators=(",", ":"), sort_keys=True, allow_nan=False).encode


def size(described: Described) -> int:
    """Characters that entries take in a state, without digests of pipelines."""
    if isinstance(described, str):
        return 0
    return sum(
        len(each.name) + len(each.arguments) + 6 + sum(map(size, each.pipelines))
        for each in described
    )


def summary(entries: Entries) -> str:
    """A pipeline's digest, behind its source's name if it has one."""
    name = entries[0].known.get("name", "")
    return f"{name[:NAME] if isinstance(name, str) else ''}#{digest(entries)}"


def shortened(value: Any) -> Any:
    """An argument, or its digest if that is shorter."""
    text = dumps(value)
    return value if len(text) <= _DIGEST else f"#{digest(text)}"


def alike(old: Described, new: Described) -> bool:
    """Whether two descriptions are of one pipeline, whichever has more in detail."""
    if isinstance(old, str) or isinstance(new, str):
        one, other = (each if isinstance(each, str) else summary(each) for each in (old, new))
        return one == other
    return len(old) == len(new) and all(map(alike_stages, old, new))


def alike_stages(old: Entry, new: Entry) -> bool:
    """Whether two entries are of one stage."""
    return old == new or (
        (old.name, old.owns, len(old.pipelines)) == (new.name, new.owns, len(new.pipelines))
        and not changed(old, new)
        and all(map(alike, old.pipelines, new.pipelines))
    )


def changed(old: Entry, new: Entry) -> list[str]:
    """The names of the arguments that differ, or that one of them lacks."""
    before, after = old.known, new.known
    return [
        name
        for name in before | after
        if name not in before or name not in after or not _same(before[name], after[name])
    ]


def _same(old: Any, new: Any) -> bool:
    before, after = dumps(old), dumps(new)
    return before == after or dumps(shortened(old)) == after or before == dumps(shortened(new))


def described(value: Any) -> Any:
    """An argument as JSON, with no secret in it; what is large is a digest."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) is int and abs(value) >= 1 << 53:
        return hex(value)  # JSON readers take it for a float
    if type(value) is float and not math.isfinite(value):
        return repr(value)  # JSON has none of these
    if value is None or type(value) in (bool, int, float):
        return value
    if isinstance(value, str):
        value = masked(value)
        if len(value) <= 40:
            return value
    if isinstance(value, (tuple, list)) and len(value) <= 16:
        return [None if is_function(v) else described(v) for v in value]
    if isinstance(value, range):
        return repr(value)
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}#{zlib.crc32(value.tobytes()):08x}"
    if isinstance(value, (str, bytes, tuple, list)):
        return f"{type(value).__name__}[{len(value)}]#{digest([described(v) for v in value])}"
    own = getattr(value, "digest", None)  # of what tells itself apart
    return f"{type(value).__name__}#{own}" if isinstance(own, str) else type(value).__name__


def described_whole(value: Any) -> Any:
    """An argument that `rebase` may change, which no digest stands for."""
    if isinstance(value, (tuple, list)):
        return [described(each) for each in value]
    return described(value)


def described_state(value: Any, name: Any = "") -> Any:
    """A user's own first state, with the kinds of its containers, by its name if it has one."""
    if is_secret(name, value):
        return MASK
    if isinstance(value, dict):
        pairs = [[described_state(k), described_state(v, k)] for k, v in value.items()]
        if len(repr(pairs)) <= _SHORT:
            return {"dict": pairs}
        return f"dict[{len(value)}]#{digest(pairs)}"
    if isinstance(value, (tuple, list)):
        kind = "list" if isinstance(value, list) else "tuple"
        items = [described_state(each) for each in value]
        return {kind: items} if len(items) <= 16 else f"{kind}[{len(items)}]#{digest(items)}"
    return described(value)


def digest(value: Any) -> str:
    """Eight hexadecimal digits that stand for a value."""
    return f"{zlib.crc32(repr(value).encode()):08x}"
