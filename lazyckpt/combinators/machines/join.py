"""Checks of stages that join pipelines."""

from __future__ import annotations

from typing import Any

from lazyckpt.core.checks import Unfit, brief
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline


def joined(name: str, pipelines: tuple[Any, ...]) -> None:
    """Refuse arguments that aren't one or more pipelines."""
    if not pipelines:
        raise ArgumentError(f"{name}: at least one pipeline is needed, got none")
    for number, pipeline in enumerate(pipelines):
        if not isinstance(pipeline, Pipeline):
            raise ArgumentError(
                f"{name}: argument {number + 1} must be a pipeline, got {brief(pipeline)} "
                f"({type(pipeline).__name__}); wrap data in source(...)"
            )


def several(value: Any) -> tuple[Any, ...]:
    """Return a list or tuple as a tuple."""
    if not isinstance(value, (list, tuple)):
        raise Unfit("a list of pipelines")
    return tuple(value)


def named(number: int) -> str:
    """Return the name of one of several pipelines for errors."""
    return f"pipelines[{number}]"
