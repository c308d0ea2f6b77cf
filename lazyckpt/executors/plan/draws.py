"""Whether a function may draw numbers of its own: a guess, from what its code names."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from types import CodeType, ModuleType
from typing import Any

_MODULES = ("random", "uuid", "secrets", "numpy.random")
_CLOCKS = {"time", "time_ns", "perf_counter", "monotonic", "now", "today", "utcnow"}
_TORCH = {"rand", "randn", "randint", "randperm", "bernoulli", "multinomial", "normal"}
_SEEDED = {
    "Random",
    "default_rng",
    "Generator",
    "RandomState",
    "SeedSequence",
    "UUID",
    "uuid3",
    "uuid5",
}
_LOADS = {"LOAD_GLOBAL", "LOAD_NAME", "IMPORT_NAME"}
# Each Python has more of these, as LOAD_FAST_BORROW and STORE_FAST_LOAD_FAST.
_BETWEEN = ("CACHE", "PUSH_NULL", "STORE_FAST", "LOAD_FAST")


def draws(function: Any) -> str:
    """What it may draw from, such as `random.uniform`; no text where nothing is found."""
    function = getattr(function, "func", function)  # functools.partial
    if name := _drawn(function, ()):
        return name
    for each in (function, getattr(type(function), "__call__", None)):  # noqa: B004  # for its code
        each = getattr(each, "__func__", each)
        code = getattr(each, "__code__", None)
        if isinstance(code, CodeType):
            known = getattr(each, "__globals__", {})
            return next(filter(None, _all(code, known)), "")
    return ""


def _all(code: CodeType, known: dict[str, Any]) -> Iterator[str]:
    loaded: list[Any] = []  # a global, and the attributes after it
    for each in [*dis.get_instructions(code)]:
        if each.opname in _LOADS:
            yield _found(loaded, known)
            loaded = [each.argval]
        elif each.opname in ("LOAD_ATTR", "LOAD_METHOD", "IMPORT_FROM") and loaded:
            loaded.append(each.argval)
        elif not each.opname.startswith(_BETWEEN):
            yield _found(loaded, known)
            loaded = []
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _all(constant, known)


def _found(loaded: list[Any], known: dict[str, Any]) -> str:
    if not loaded:
        return ""
    name, *path = loaded
    value = known.get(name, sys.modules.get(name))
    return _drawn(value, tuple(path))


def _drawn(value: Any, path: tuple[str, ...]) -> str:
    """What is drawn from, where these attributes of a value are taken."""
    while path and isinstance(getattr(value, path[0], None), ModuleType):
        value, path = getattr(value, path[0]), path[1:]
    last = path[-1] if path else getattr(value, "__name__", "")
    if isinstance(value, ModuleType):
        module = value.__name__
        if not path or _SEEDED & {*path}:
            return ""
    else:
        owner = getattr(value, "__self__", None)
        module = getattr(value, "__module__", None) or type(owner).__module__
        is_class = isinstance(value, type) and module != "datetime"
        if is_class or _SEEDED & {last}:
            return ""
    if module in _MODULES or module.startswith("numpy.random."):
        return f"{module}.{last}"
    if module == "torch" and last in _TORCH:
        return f"torch.{last}"
    if module in ("time", "datetime") and last in _CLOCKS:
        return f"{module}.{last}"
    return ""
