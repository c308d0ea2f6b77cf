"""Several pipelines as one, by weight: `mix`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from typing import Any, TypeVar

from lazyckpt.combinators.machines.join import joined, named, several
from lazyckpt.combinators.machines.mixture import Mixture, Stop
from lazyckpt.combinators.machines.proportions import weights_of
from lazyckpt.combinators.mix_rebase import rebased
from lazyckpt.core.call import Chain
from lazyckpt.core.checks import boolean, brief, natural, one_of, optional, whole
from lazyckpt.core.machine import Machine, entered
from lazyckpt.decorators import source_combinator
from lazyckpt.errors import ArgumentError
from lazyckpt.pipeline import Pipeline
from lazyckpt.state.positions import places
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import State, as_state

A = TypeVar("A")


def _weighing(value: Any) -> Any:
    if callable(value):
        return value
    is_empty = isinstance(value, Sized) and not len(value)  # too few, which `_fitting` says
    return () if is_empty else tuple(map(whole, weights_of(value)))


def _fitting(
    pipelines: tuple[Any, ...], weights: Any, seed: int | None, stop: str, deterministic: bool
) -> None:
    joined("mix", pipelines)
    if deterministic and callable(weights):
        raise ArgumentError("mix: deterministic=True wants fixed weights, got a function")
    if not deterministic and seed is None:
        raise ArgumentError("mix: seed must be given; only deterministic=True does without")
    if not callable(weights) and len(weights) != len(pipelines):
        raise ArgumentError(
            f"mix: as many weights as pipelines are needed, got {len(weights)} weights "
            f"for {len(pipelines)} pipelines"
        )
    for number, pipeline in enumerate(pipelines):
        used = callable(weights) or weights[number]
        if stop != "first_exhausted" and used and pipeline.machine.length == 0:
            raise ArgumentError(
                f"mix: {named(number)} is empty and can't begin again, stop={stop!r}"
            )


@source_combinator(
    checks={
        "pipelines": several,
        "weights": _weighing,
        "seed": optional(natural),
        "stop": one_of("first_exhausted", "all_exhausted", "never"),
        "deterministic": boolean,
    },
    validate=_fitting,
    rebasable={"pipelines": "here", "weights": "here", "seed": "here"},
    rebase=rebased,
)
def mix(
    pipelines: Sequence[Pipeline[A]],
    weights: Sequence[float] | Callable[[int], Sequence[float]],
    *,
    seed: int | None = None,
    stop: Stop = "first_exhausted",
    deterministic: bool = False,
) -> Machine[A]:
    """Items of several pipelines, each item's chosen by weight.

    Args:
        pipelines: A state knows them by their data's lengths and their stages;
            `source(data, name=...)` tells like ones apart.
        weights: A number >= 0 for each, of any sum; or a function from the number of
            items so far to such numbers, a schedule; or a `control` of such numbers.
        seed: An int >= 0; not needed with `deterministic`.
        stop: "first_exhausted" ends the stream when a pipeline is chosen that has ended.
            With "all_exhausted" and "never" that pipeline begins again, in its next epoch,
            until each (of a weight that isn't 0) has ended once, or forever.
        deterministic: By exact proportions instead of chance: after n items every pipeline
            has given its share of n, to within less than one item.

    Raises:
        ArgumentError: A pipeline to begin again is empty.
        PipelineError: A schedule's weights are negative, NaN, all 0 or of another number.

    State:
        That of each pipeline, a count of items of each (`mix_counts` reads them),
        and whether the end was reached; with a `control`, also a count of all items.

    Resume:
        Re-reads what each pipeline does.

    Random access:
        With `deterministic`, where all have it and the shares have a common
        denominator up to 65,536.

    Rank-free:
        Where all are.

    Memory:
        With `deterministic`, one pattern of as many ints as that denominator.

    Source:
        The proportions are described at `lazyckpt.combinators.machines.proportions`.

    >>> import lazyckpt as lz
    >>> web, books = lz.source(range(100)), lz.source(list("abcdefgh"))
    >>> list(lz.mix([web, books], [3, 1], deterministic=True) | lz.take(8))
    [0, 1, 'a', 2, 3, 4, 'b', 5]
    """
    machines = [pipeline.machine for pipeline in pipelines]
    given = weights if callable(weights) else tuple(weights)
    return Mixture(machines, given, seed, stop, deterministic).machine()


def mix_counts(pipeline: Chain, state: State | str | bytes | Mapping[str, Any]) -> tuple[int, ...]:
    """How many items each pipeline of a `mix` has given, as a state has it.

    With a stage behind that holds a window, such as a shuffle with a buffer,
    they are those where a resume reads on, behind what you have; a `shuffle` without
    one keeps none. Put such a stage into each of the pipelines for exact counts.

    Args:
        pipeline: One that begins with `mix`.
        state: One of its states, as a `State`, its JSON text or its dict.

    Raises:
        ArgumentError: The pipeline doesn't begin with `mix`, or a stage keeps no counts.

    >>> import lazyckpt as lz
    >>> both = lz.mix([lz.source(range(9)), lz.source(range(9))], [3, 1], deterministic=True)
    >>> pairs = both | lz.batch(2)
    >>> lz.mix_counts(pairs, lz.state_at(pairs, 2))
    (3, 1)
    """
    found = matching(as_state(state), pipeline)
    entered(pipeline.machine, found.position)
    if pipeline.calls[0].name != "mix":
        raise ArgumentError(f"mix_counts: the pipeline must begin with mix, got {brief(pipeline)}")
    for call, machine in zip(pipeline.calls, pipeline.machines, strict=True):
        if machine.rate.whole_epoch:
            raise ArgumentError(f"mix_counts: {call!r} keeps no counts of what comes before it")
    first = places(found.stages, found.position)[0]
    assert first.own is not None
    counts: tuple[int, ...] = first.own[0]
    return counts[: len(first.children)]
