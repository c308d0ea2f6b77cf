"""Signatures of functions whose annotations may name what is there for type checkers alone."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any

if sys.version_info >= (3, 14):
    from annotationlib import Format


def signature_of(function: Callable[..., Any]) -> inspect.Signature:
    """The signature of a function; from Python 3.14 on no annotation of it is evaluated."""
    if sys.version_info >= (3, 14):
        return inspect.signature(function, annotation_format=Format.STRING)
    return inspect.signature(function)


def is_starred(parameter: inspect.Parameter) -> bool:
    """Whether it takes any number of arguments by place, as `*args` does."""
    return parameter.kind is parameter.VAR_POSITIONAL
