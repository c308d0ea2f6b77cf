"""What all stages that join pipelines have in common."""

from __future__ import annotations

from typing import Any

from lazyckpt.core.checks import Unfit, brief
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline


def joined(name: str, pipelines: tuple[Any, ...]) -> None:
    """Refuse what is not one pipeline or more."""
    if not pipelines:
        raise ArgumentError(f"{name}: at least one pipeline is needed, got none")
    for number, pipeline in enumerate(pipelines):
        if not isinstance(pipeline, Pipeline):
            raise ArgumentError(
                f"{name}: argument {number + 1} must be a pipeline, got {brief(pipeline)} "
                f"({type(pipeline).__name__}); wrap data in source(...)"
            )


def several(value: Any) -> tuple[Any, ...]:
    """A list or tuple as a tuple."""
    if not isinstance(value, (list, tuple)):
        raise Unfit("a list of pipelines")
    return tuple(value)


def named(number: int) -> str:
    """How errors call one of a list of pipelines."""
    return f"pipelines[{number}]"
