"""Laws of pipelines whose controls are changed while they run."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, TypeAlias

from lazyckpt.executors.executor import Executor
from lazyckpt.executors.local import inline
from lazyckpt.pipeline import Pipeline, run
from lazyckpt.provenance import trace
from lazyckpt.run import Run
from lazyckpt.state.algebra import init, replay, step
from lazyckpt.state.state import State
from lazyckpt.state.steering import steered
from lazyckpt.testing.traces import Trace, same
from lazyckpt.testing.traces import lanes as all_lanes

Setting: TypeAlias = tuple[int, str, Any]  # after how many items a control becomes what


def steer(made: Run[Any], settings: Sequence[Setting], limit: int) -> list[tuple[Any, State]]:
    """The items of a run up to some number, with the states after them, as it is steered.

    Args:
        made: The run.
        settings: After how many of its items which control becomes what, in that order.
        limit: How many items its state may count.
    """
    found: list[tuple[Any, State]] = []
    left = [each for each in settings if each[0] >= made.state.items]
    while True:
        while left and left[0][0] == made.state.items:
            made.set(*left.pop(0)[1:])
        until = min(left[0][0], limit) if left else limit
        some = list(islice(made.with_state(), until - made.state.items))
        found += some
        if not some or made.state.items == limit:
            return found


def check_steering(
    pipeline: Pipeline[Any],
    settings: Sequence[Setting],
    *,
    limit: int = 40,
    executors: Sequence[Executor] = (),
    traces: bool = True,
) -> None:
    """Check the laws of a pipeline that is steered.

    - Before the first change the items are those of the pipeline, and where controls are set
      to what they are they stay them.
    - A resume at any cut, before or after the changes there, gives the rest.
    - A run from the beginning, to which all changes are known, gives the same in every lane
      and with every executor, and so do `replay`, `step` and `trace`.

    Args:
        pipeline: One with controls.
        settings: After how many of its items which control becomes what, in that order.
        limit: How many items to look at.
        executors: Those that are to give the same.
        traces: Whether its combinators can be traced.
    """
    settings = [each for each in settings if each[0] < limit]
    straight = steer(Run(pipeline), settings, limit)
    items, states = [item for item, _ in straight], [init(pipeline), *(s for _, s in straight)]
    first = min((at for at, *_ in settings), default=limit)
    same("items before the first change", items[:first], list(islice(pipeline, min(first, limit))))
    last = steer(Run(pipeline, states[-1]), settings, limit)
    same("after the last item", [item for item, _ in last], [])
    _resumes(pipeline, settings, limit, items, states)
    _lanes(pipeline, limit, items, states, traces=traces)
    _unmoved(pipeline, states)
    for executor in (inline(), *executors):
        with run(pipeline, executor=executor) as made:
            found = steer(made, settings, limit)
        same(f"items of {executor}", [item for item, _ in found], items)
        same(f"states of {executor}", [state for _, state in found], states[1:])


def _resumes(
    pipeline: Pipeline[Any],
    settings: Sequence[Setting],
    limit: int,
    items: list[Any],
    states: list[State],
) -> None:
    cuts = {0, len(items) // 2, len(items), *(at for at, *_ in settings)}
    for cut in sorted(cut for cut in cuts if cut < len(states)):
        before = states[cut].to_json()
        rest = steer(Run(pipeline, before), settings, limit)
        same(f"resumed at {cut}", [item for item, _ in rest], items[cut:])
        same(f"states after {cut}", [state for _, state in rest], states[cut + 1 :])
        again: Run[Any] = Run(pipeline, before)
        for at, name, value in settings:
            if at == cut:
                again.set(name, value)
        later = steer(Run(pipeline, again.state.to_json()), settings, limit)
        same(f"resumed behind the changes at {cut}", [item for item, _ in later], items[cut:])


def _lanes(
    pipeline: Pipeline[Any], limit: int, items: list[Any], states: list[State], *, traces: bool
) -> None:
    known = steered(pipeline, states[-1])
    whole = Trace(known.machine, 0, len(items))
    same("steps of the pipeline with its changes", whole.items, items)
    same("its positions", whole.positions, [state.position for state in states])
    all_lanes(known, min(limit, len(items)))
    same("replayed", replay(pipeline, states[0], until=states[-1]), items)
    for cut in range(0, len(items), max(1, len(items) // 4)):
        same(f"replayed from {cut}", replay(pipeline, states[cut], states[-1]), items[cut:])
        state = State.from_dict(states[cut].to_dict())
        if states[cut].changes == states[-1].changes:
            after, item = step(pipeline, state)
            same(f"a step from {cut}", (item, after), (items[cut], states[cut + 1]))
            if traces:
                told = trace(pipeline, states[cut], states[-1])
                same(f"origins from {cut}", told[:1], [trace(pipeline, states[cut])])


def _unmoved(pipeline: Pipeline[Any], states: list[State]) -> None:
    for state in states[:: max(1, len(states) // 4)]:
        made: Run[Any] = Run(pipeline, state)
        for name, value in made.controls.items():
            made.set(name, value)
        same("the state where nothing changes", made.state, state)
