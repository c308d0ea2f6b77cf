"""Schemas of pyarrow: types of one column in several files, as one."""

from __future__ import annotations

from typing import Any

import numpy as np

from lazyckpt.io.mapped_arrays import short_digest
from lazyckpt.io.storage import optional_module

_ALIKE = [  # of which all have the same values in Python
    ("string_view", "string", "large_string"),
    ("binary_view", "binary", "large_binary"),
]


def schema_digest(schema: Any, more: str) -> int:
    """63 bits of names and types, and of what else tells files apart."""
    return int(short_digest(str(schema.remove_metadata()), more)[:16], 16) >> 1


def flaw_of(kind: Any) -> str | None:
    """What of a type keeps its values from being rows; None if nothing does."""
    types = optional_module("pyarrow.types", "arrow", "reading")
    fields = [kind.field(number) for number in range(kind.num_fields)]
    names = [field.name for field in fields]
    if types.is_struct(kind) and (twice := [name for name in names if names.count(name) > 1]):
        return f"two fields {twice[0]!r}"
    return next(filter(None, (flaw_of(field.type) for field in fields)), None)


def common_type(one: Any, other: Any) -> Any:
    """The type that has the values of two, none of them as another value; None if there is none.

    Types differ so where one is of missing values alone, or a dictionary of the other, by the
    width of ints, the size of offsets or of lists, and whether values may be missing; also within
    lists and structs.
    """
    arrow = optional_module("pyarrow", "arrow", "reading")
    types = arrow.types
    if one == other or types.is_null(other):
        return one
    if types.is_null(one):
        return other
    if types.is_dictionary(one) or types.is_dictionary(other):
        return common_type(*(t.value_type if types.is_dictionary(t) else t for t in (one, other)))
    if types.is_integer(one) and types.is_integer(other):
        found = np.promote_types(str(one), str(other))
        return getattr(arrow, found.name)() if found.kind in "iu" else None
    for kinds in _ALIKE:
        if str(one) in kinds and str(other) in kinds:
            return getattr(arrow, kinds[2])()
    lists = types.is_list, types.is_large_list, types.is_fixed_size_list
    if all(any(is_list(kind) for is_list in lists) for kind in (one, other)):
        value = common_type(one.value_type, other.value_type)
        if value is None or types.is_large_list(one) or types.is_large_list(other):
            return value and arrow.large_list(value)
        sizes = {getattr(kind, "list_size", -1) for kind in (one, other)}
        return arrow.list_(value, sizes.pop() if len(sizes) == 1 else -1)
    if types.is_struct(one) and types.is_struct(other):
        names = [field.name for field in one]
        if names == [field.name for field in other]:
            inner = [common_type(one.field(name).type, other.field(name).type) for name in names]
            return arrow.struct(list(zip(names, inner, strict=True))) if all(inner) else None
    return None
