"""`pack_by_plan`: rows of tokens with random access, according to a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lazyckpt.combinators.machines.random_access import table_length
from lazyckpt.combinators.machines.token_rows import (
    REPADDED,
    Features,
    Pad,
    cutting,
    filled_row,
    padding,
    size_of,
)
from lazyckpt.combinators.plan_packing import PackingPlan
from lazyckpt.core.call import Call
from lazyckpt.core.checks import Unfit, optional
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import End, Machine, Rate, begun, within
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator
from lazyckpt.errors import ArgumentError, InvalidState, SourceChanged
from lazyckpt.pipeline import Stage

Part: TypeAlias = tuple[int, int, int]  # as from `PackingPlan.parts`


_REMEDY = (
    "; put it before the stage that removes random access, and leave documents that fail out of "
    'the plan, because on_error="skip" would shift the documents after them'
)


def _plan(value: Any) -> PackingPlan:
    if not isinstance(value, PackingPlan):
        raise Unfit("a PackingPlan from plan_packing(lengths, length, seed=...)")
    return value


def _traced(call: Call, tracing: Any) -> Stage[Any, Any]:
    """The stage on documents with their origins; documents are only read if the tracing reads."""

    plan: PackingPlan = call.arguments["plan"]
    row_of = partial(_row, plan, call.arguments["pad"])

    def made(parts: list[Part], documents: list[Any]) -> Any:
        row = row_of(parts, [*map(tracing.plain, documents)]) if tracing.reads else None
        return tracing.traced(row, [each for item in documents for each in tracing.origins(item)])

    return _origins(plan, made)


@combinator(checks={"plan": _plan, "pad": optional(padding)}, elastic=REPADDED, trace=_traced)
def pack_by_plan(
    upstream: Machine[Any], plan: PackingPlan, *, pad: Pad | None = None
) -> Machine[Features]:
    """Pack documents into rows of tokens according to a plan from `plan_packing`.

    The items before it are documents with random access. A document is a sequence of tokens: a
    list, an array of shape `(n, ...)`, or a mapping of several features of the same length n,
    such as tokens and a loss mask. Only the documents of requested rows are read and computed.
    So `shuffle` and `shard` after this stage deal equally full rows, and a rank doesn't compute
    the rows of other ranks.

    A row is a dict as for `pack_first_fit`: the padded features, or `tokens`; `segment_ids` and
    `positions`. Each piece of a document that is cut is a separate segment.

    Args:
        plan: A plan that `plan_packing` made from the lengths of these documents.
        pad: Padding by feature, such as `{"labels": -100}`; zeros for the others.

    Raises:
        ArgumentError: If upstream has no random access, or a different number of documents.
        SourceChanged: If a document of a row has a different number of tokens than in the plan;
            it names the document.
        TypeError: If a document is not a sequence of tokens, or a mapping of such.
        ValueError: If features have unequal lengths, other names than those before them in the
            row, or the names of added features; or if a `pad` doesn't fit them.

    State:
        A count of rows; a digest of the plan.

    Resume:
        Re-reads nothing.

    Random access:
        Kept.

    Rank-invariant:
        Yes.

    Memory:
        The plan: at most 12 bytes per document and 8 per row.

    >>> import lazyckpt as lz
    >>> documents = [[5, 5, 5], [6], [7, 7], [8, 8]]
    >>> plan = lz.plan_packing([3, 1, 2, 2], 4, seed=0)
    >>> rows = documents | lz.pack_by_plan(plan)
    >>> [row["tokens"].tolist() for row in rows], rows[1]["segment_ids"].tolist()
    ([[5, 5, 5, 6], [7, 7, 8, 8]], [1, 1, 2, 2])
    """
    return _planned(upstream, plan, partial(_row, plan, pad))


@combinator(registered=False)
def _origins(upstream: Machine[Any], plan: PackingPlan, made: Callable[..., Any]) -> Machine[Any]:
    """Apply `made` to the documents of each row."""
    return _planned(upstream, plan, made)


def _row(plan: PackingPlan, pad: Pad | None, parts: list[Part], documents: list[Any]) -> Features:
    items, length = [], plan.length
    for (number, part, known), document in zip(parts, documents, strict=True):
        size = size_of("pack_by_plan", document)
        if size != known:
            raise SourceChanged(
                f"pack_by_plan: document {number} has {size} tokens, but the plan was made "
                f"for {known}; make a new plan"
            )
        if size > length:
            cut = cutting("pack_by_plan", document)
            document = cut(part * length, min((part + 1) * length, size))
        items.append(document)
    return filled_row("pack_by_plan", pad, (items, length))


def _planned(
    upstream: Machine[Any], plan: PackingPlan, made: Callable[[list[Part], list[Any]], Any]
) -> Machine[Any]:
    """Build the rows of a plan with `made`, from parts of documents and the documents."""
    count = table_length("pack_by_plan", upstream, _REMEDY)
    if count != len(plan.lengths):
        raise ArgumentError(
            f"pack_by_plan: {count} documents, but the plan is for {len(plan.lengths)}"
        )
    length, alone, view = len(plan), upstream.item, upstream.view
    assert alone is not None

    def fetched(begin: Position, numbers: list[int]) -> list[Any]:
        if view is None or view.table.rows is None:
            return [alone(begin, number) for number in numbers]
        return view.table.rows(view.ahead(begin, np.array(numbers, np.int64)))

    def row(begin: Position, index: int) -> Any:
        parts = [*plan.parts(index)]
        return made(parts, fetched(begin, [number for number, _, _ in parts]))

    def step(position: Position) -> tuple[Position, Any]:
        begin, index = position
        if index >= length:
            raise End(position)
        return (begin, index + 1), row(begin, index)

    def flow(position: Position) -> Flow[Any]:
        begin, index = position

        def items() -> Iterator[Any]:
            nonlocal index
            while index < length:
                found = row(begin, index)
                index += 1
                yield found

        return Flow(items(), lambda: (begin, index))

    def skip(position: Position, n: int) -> tuple[Position, int]:
        begin, index = position
        passed = min(n, length - index)
        return (begin, index + passed), passed

    found = stateful(
        "pack_by_plan",
        upstream,
        check=lambda index: within("pack_by_plan", index, length),
        rate=Rate(plan.most_pieces, whole_epoch=True),
        step=step,
        skip=skip,
        flow=flow,
        item=lambda position, n: row(position[0], position[1] + n),
        length=length,
    )

    def fits(position: Position) -> None:
        found.check(position)
        if begun(upstream, position[0]):
            raise InvalidState("pack_by_plan: the state's epoch doesn't begin at its first item")

    return found._replace(check=fits)
