"""`trace`: the source items that went into an output."""

from __future__ import annotations

from collections.abc import Iterator
from numbers import Number
from typing import Any, cast, overload

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import brief, checked, natural
from lazyckpt.core.machine import Machine, entered
from lazyckpt.lineage.origins import Origin
from lazyckpt.lineage.tracing import followed
from lazyckpt.state.algebra import between, first_items, made_again, made_between
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, as_state


@overload
def trace(pipeline: Chain, at: int | AnyState) -> list[Origin]: ...
@overload
def trace(pipeline: Chain, at: AnyState, until: AnyState) -> list[list[Origin]]: ...
def trace(pipeline: Chain, at: int | AnyState, until: AnyState | None = None) -> list[Any]:
    """List the source items that make up an output, in order.

    If sources have random access and no stage looks at items, nothing is read and no function is
    called. Otherwise, or if `case` or `switch` need the deciding items, the pipeline is run: from
    a state on, or from its beginning for an output given by number. Items that a stage only looked
    at don't count, for example items that `filter` drops, earlier items that the state of `scan` or
    `flat_scan` remembers, or the control of a `multiplex`. A row of a collated batch that is taken
    apart again has the origins of the batch.

    For a combinator of your own, `@combinator` must be told what it does with items: that it
    `keeps_items`, is `pointwise` or `itemwise`, or the roles of its `functions`, or a `trace`.
    Otherwise its origins are unknown, and the error names it. The same holds for a combinator that
    joins pipelines, unless `@source_combinator` is told that it `keeps_items`.

    Args:
        pipeline: The pipeline of the items.
        at: A state, for the output after it; or the number of an output, from 0, counted from the
            pipeline's beginning. After `rebase` the two differ. Failing items are not skipped here,
            because one state doesn't describe later items.
        until: A later state of the same run; the result then has the origins of each output
            between the two, across the ends of epochs, without the items that `on_error="skip"`
            has skipped.

    Raises:
        IndexError: If there are fewer outputs.
        PipelineError: If the origins of the outputs of one of your own stages are unknown.
        InvalidState: If the outputs after the first state don't lead to `until`.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(10**9)) | lz.shuffle(seed=0) | lz.batch(3)
    >>> [origin.index for origin in lz.trace(pipeline, 10**8)]
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

        def made(skips: bool) -> Iterator[list[Origin]]:
            found = followed(chain, first.skipped, last.skipped, skips=skips)
            return map(found.origins, made_between(found.machine, first, last))

        return list(made_again(made, last.skipped))
    state = matching(as_state(cast(AnyState, at)), chain)
    entered(chain.machine, state.position)
    found = followed(chain)
    for item in first_items(found.machine, state.position):
        return found.origins(item)
    raise IndexError(f"trace: there is no item after the state of {state.items:,} items")


def _after(machine: Machine[Any], n: int) -> list[Any]:
    """Return the item n items further on, if there is one."""
    position = machine.init(0)
    if machine.skip is not None:
        position, passed = machine.skip(position, n)
        return [] if passed < n else first_items(machine, position)
    return first_items(machine, position, n)
