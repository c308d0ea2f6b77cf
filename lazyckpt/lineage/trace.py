"""`trace`: which items of the sources went into an output."""

from __future__ import annotations

from numbers import Number
from typing import Any, cast, overload

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import brief, checked, natural
from lazyckpt.core.machine import Machine, entered
from lazyckpt.lineage.origins import Origin
from lazyckpt.lineage.tracing import followed
from lazyckpt.state.algebra import between, first_items, made_between
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, as_state


@overload
def trace(pipeline: Chain, at: int | AnyState) -> list[Origin]: ...
@overload
def trace(pipeline: Chain, at: AnyState, until: AnyState) -> list[list[Origin]]: ...
def trace(pipeline: Chain, at: int | AnyState, until: AnyState | None = None) -> list[Any]:
    """Which items of the sources went into an output, in the order in which they stand there.

    Where sources have random access and no stage looks at items, nothing is read
    and no function called. Elsewhere, and where `case` or `switch` have to see what
    they choose by, the pipeline is run: from a state on, or from its beginning to an
    output that is given by its number. What a stage only looked at, as `filter` does at
    items that it leaves out, doesn't count; nor what the state of `scan` and `flat_scan`
    remembers of items before, nor the control of a `multiplex`. A row of a
    collated batch that is taken apart again is told as the batch is.

    A combinator of your own says what it does with items: `@combinator` is told that it
    `keeps_items`, is `pointwise` or `itemwise`, or the roles of its `functions`, or is given
    a `trace`. Of any other nothing tells, and it is named. So is what joins pipelines, unless
    `@source_combinator` is told that it `keeps_items`.

    Args:
        pipeline: One of which the items are.
        at: A state, for the output that comes next; or the number of an output, from 0, as
            the pipeline counts from its beginning. Behind `rebase` the two differ. What fails
            isn't left out here, as one state doesn't tell of what comes.
        until: A later state of the same run; the origins of each output between the two are
            told, across the ends of epochs, and without what `on_error="skip"` has left out.

    Raises:
        IndexError: There are fewer outputs.
        PipelineError: Nothing tells what goes into the outputs of a stage of your own.
        InvalidState: The outputs after the first state lead to another place than `until`.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(10**9)) | lz.shuffle(seed=0) | lz.batch(3)
    >>> [origin.place for origin in lz.trace(pipeline, 10**8)]
    [810775110, 507087939, 945658273]
    """
    chain: Chain = runnable("trace", pipeline)
    if at is None or isinstance(at, Number):
        found = followed(chain)
        following = _after(found.machine, checked("trace", "at", at, natural))
        if not following:
            raise IndexError(f"trace: at={brief(at)}, but the pipeline has fewer items")
        return found.origins(following[0])
    if until is not None:
        first, last = between(chain, cast(AnyState, at), until)
        found = followed(chain, last.skipped if last.skipped > first.skipped else None)
        return [found.origins(item) for item in made_between(found.machine, first, last)]
    state = matching(as_state(cast(AnyState, at)), chain)
    entered(chain.machine, state.position)
    found = followed(chain)
    for item in first_items(found.machine, state.position):
        return found.origins(item)
    raise IndexError(f"trace: there is no item after the state of {state.items:,} items")


def _after(machine: Machine[Any], n: int) -> list[Any]:
    """The item behind n others, if there is one."""
    position = machine.init(0)
    if machine.skip is not None:
        position, passed = machine.skip(position, n)
        return [] if passed < n else first_items(machine, position)
    return first_items(machine, position, n)
