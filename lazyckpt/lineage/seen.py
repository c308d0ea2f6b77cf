"""`seen`: the items of all sources that the model was given, up to a state."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, cast

import numpy as np

from lazyckpt.core.call import Chain, runnable
from lazyckpt.core.checks import at_least, brief, checked, is_integer, natural, optional
from lazyckpt.core.machine import entered
from lazyckpt.errors import ArgumentError, InvalidState
from lazyckpt.lineage.columns import Block, Column, blocks_of
from lazyckpt.lineage.parquet import write_parquet
from lazyckpt.lineage.tracing import Followed, followed
from lazyckpt.state.algebra import init, made_again, state_at
from lazyckpt.state.rebase import matching
from lazyckpt.state.state import AnyState, State, as_state
from lazyckpt.state.walk import Flowing, Viewed, Walk, check


class Seen:
    """The origins of a run's items between two states, as returned by `lazyckpt.seen`.

    Iterating yields blocks of some 65,000 rows, one row per output and origin. Nothing is kept:
    each iteration starts from the beginning.
    """

    def __init__(self, pipeline: Chain, begin: State, end: State) -> None:
        self._pipeline, self._begin, self._end = pipeline, begin, end
        if begin.skipped == end.skipped:
            self._followed(skips=bool(end.skipped))  # refuses unknown origins

    def __iter__(self) -> Iterator[Block]:
        return made_again(self._blocks, self._end.skipped)

    def _blocks(self, skips: bool) -> Iterator[Block]:
        found = self._followed(skips)
        machine, block_of = found.machine, blocks_of(found)
        is_viewed = found.codes is not None and machine.view and machine.skip
        walk = Walk(machine, Viewed(machine) if is_viewed else Flowing(machine))
        number = self._begin.items
        for items in walk.between(self._begin, self._end):
            block = block_of(items, number)
            yield block
            number += len(items)
            walk.fit(len(items), len(block))

    def _followed(self, skips: bool) -> Followed:
        return followed(self._pipeline, self._begin.skipped, self._end.skipped, skips=skips)

    def counts(self) -> Counter[tuple[str, str | None]]:
        """Return the number of rows per source and file; None for data without files.

        Add the counts of several ranks, or from before and after a rebase, with `+`.
        """
        found: Counter[tuple[str, str | None]] = Counter()
        for block in self:
            width = len(block.files) + 1
            pairs, rows = _counted(block.stage * width + block.file + 1)
            for pair, count in zip(pairs.tolist(), rows.tolist(), strict=True):
                stage, file = divmod(pair, width)
                found[block.stages[stage], block.files[file - 1] if file else None] += count
        return found

    def times(
        self,
        index: int | None = None,
        *,
        stage: str | None = None,
        file: str | os.PathLike[str] | Callable[[str], Any] | None = None,
        record: int | None = None,
    ) -> list[int]:
        """Return the numbers of the outputs that contain an item, or a file.

        The list is empty if it was never seen; its length is the number of times.

        Args:
            index: The item's number in its source's epoch, an int >= 0.
            stage: The source, such as `1` or `1[0].1`; None for any.
            file: The full path of a file, as its reader knows it; or a function of a path that is
                true for the files in question.
            record: The row's number in its file, an int >= 0.

        >>> import lazyckpt as lz
        >>> pipeline = lz.source(range(100)) | lz.shuffle(seed=0) | lz.repeat() | lz.batch(8)
        >>> lz.seen(pipeline, lz.state_at(pipeline, 50)).times(42)
        [12, 23, 27, 45]
        """
        return self._outputs("Seen.times", index, stage, file, record)

    def _outputs(
        self,
        caller: str,
        index: int | None,
        stage: str | None,
        file: str | os.PathLike[str] | Callable[[str], Any] | None,
        record: int | None,
    ) -> list[int]:
        """Return the result of `times`; errors name the caller."""
        whole = optional(natural)
        index = checked(caller, "index", index, whole)
        record = checked(caller, "record", record, whole)
        path = file if file is None or callable(file) else os.fspath(file)
        if index is None and path is None:
            raise ArgumentError(f"{caller}: pass index= or file=, with record= for one of its rows")
        if record is not None and path is None:
            raise ArgumentError(f"{caller}: record={record} is a row of a file; pass file= too")
        if stage is not None and stage not in (known := [*_sources(self._pipeline)]):
            raise ArgumentError(
                f"{caller}: stage {brief(stage)} is not a source; sources: {', '.join(known[:20])}"
            )
        found: list[int] = []
        for block in self:
            mine = np.ones(len(block), bool)
            for column, value in ((block.index, index), (block.record, record)):
                mine &= True if value is None else column == value
            for column, texts, text in (
                (block.stage, block.stages, stage),
                (block.file, block.files, path),
            ):
                mine &= True if text is None else np.isin(column, _meant(texts, text))
            found += dict.fromkeys(block.item[mine].tolist())
        return found

    def ranges(
        self,
        index: int | None = None,
        *,
        stage: str | None = None,
        file: str | os.PathLike[str] | Callable[[str], Any] | None = None,
        record: int | None = None,
    ) -> list[tuple[int, int]]:
        """Return the outputs of `times` for these arguments as ranges, for `lazyckpt.exclude`.

        >>> import lazyckpt as lz
        >>> steps = lz.source(range(100)) | lz.shuffle(seed=0) | lz.repeat() | lz.batch(8)
        >>> found = lz.seen(steps, 50).ranges(42)
        >>> found
        [(12, 13), (23, 24), (27, 28), (45, 46)]
        >>> lz.seen(steps | lz.exclude(found), 46).times(42)
        []
        """
        found: list[tuple[int, int]] = []
        for number in self._outputs("Seen.ranges", index, stage, file, record):
            start = found.pop()[0] if found and found[-1][1] == number else number
            found.append((start, number + 1))
        return found

    def to_parquet(self, path: str | os.PathLike[str], *, row_group: int = 1 << 20) -> int:
        """Write the rows to a Parquet file, a row group at a time; needs pyarrow.

        The columns are those of `Block`, with `stage` and `file` as strings. `file` and `record`
        are null if the data don't provide them. The file appears only when it is complete.

        Args:
            path: The file.
            row_group: Smallest number of rows per row group, an int >= 1.

        Returns:
            The number of rows.
        """
        least = checked("Seen.to_parquet", "row_group", row_group, at_least(1))
        return write_parquet(self, path, least)

    def __repr__(self) -> str:
        return (
            f"Seen(items {self._begin.items:,} to {self._end.items:,} of {brief(self._pipeline)})"
        )


def _sources(chain: Chain, prefix: str = "") -> Iterator[str]:
    """Yield the stages that are sources, as named by `Origin.stage`."""
    pipelines = chain.calls[0].chains
    if not pipelines:
        yield f"{prefix}1"
    for number, each in enumerate(pipelines):
        yield from _sources(each, f"{prefix}1[{number}].")


def _meant(texts: list[str], which: str | Callable[[str], Any]) -> list[int]:
    """Return the numbers of the strings that equal one, or for which a function is true."""
    says = which if callable(which) else which.__eq__
    return [number for number, text in enumerate(texts) if says(text)]


def _counted(numbers: Column) -> tuple[Column, Column]:
    """Return the distinct numbers, and how often each occurs."""
    most = int(numbers.max(initial=0))
    if most >= 1 << 16:
        return np.unique(numbers, return_counts=True)
    counts = np.bincount(numbers)
    found = np.flatnonzero(counts)
    return found, counts[found]


def seen(pipeline: Chain, state: int | AnyState, since: AnyState | None = None) -> Seen:
    """Return the origins of all items up to a state: exactly what the model was given.

    There is one row per output and origin, as from `trace`. A document that is in a batch twice is
    listed once for that batch.

    If sources have random access and no stage looks at items, nothing is read and no function is
    called, as for `trace`; this includes buffers and random mixtures. Otherwise, as after `filter`,
    `flat_map` and packing, or if `on_error="skip"` has skipped items, the data are read once, from
    the beginning or from `since` on, and functions are called again; they must return what they
    returned then.

    The outputs are those of one run. After `rebase`, a state doesn't describe what the earlier
    pipeline yielded: use that pipeline for the time before, and this one with the carried state as
    `since=` for the time after. After `shard`, the outputs are this rank's; add the counts of all
    ranks, each from its own pipeline and state.

    Args:
        pipeline: The pipeline of the state, with unchanged data.
        state: The last state; or a number of items, as for `state_at`, also in the future.
        since: An earlier state of the same run; None for its beginning.

    Returns:
        A `Seen`: an iterable of blocks, with `counts`, `times`, `ranges` and `to_parquet`.

    Raises:
        IndexError: If there are fewer items than the given number.
        PipelineError: If the origins of the outputs of one of your own stages are unknown.
        StateMismatch: If a state belongs to a different pipeline.
        InvalidState: If the later state comes first, was carried over by `rebase` after the items
            begin, or isn't where its number of items leads; the last is found immediately with
            random access, otherwise at the end.

    >>> import lazyckpt as lz
    >>> chat, code = lz.source(range(1000)), lz.source(range(50)) | lz.repeat()
    >>> pipeline = lz.mix([chat, code], [2, 1], seed=0) | lz.batch(32)
    >>> run = lz.run(pipeline)
    >>> for _, batch in zip(range(20), run):
    ...     pass
    >>> lz.seen(pipeline, run.state).counts()
    Counter({('1[0].1', None): 410, ('1[1].1', None): 230})
    """
    chain: Chain = runnable("seen", pipeline)
    whole = state_at(chain, cast(int, state)) if is_integer(state) else cast(AnyState, state)
    end = matching(as_state(whole), chain)
    begin = init(chain) if since is None else matching(as_state(since), chain)
    if end.rebased != begin.rebased:
        assert end.rebased is not None or begin.rebased is not None
        raise InvalidState(_carried(begin, end))
    if end.items < begin.items:
        raise InvalidState(
            f"seen: since is after {begin.items:,} items, the state after {end.items:,}; "
            "since must be the earlier one"
        )
    entered(chain.machine, begin.position), entered(chain.machine, end.position)
    if end.skipped == begin.skipped:
        check(chain.machine, begin, end)
    return Seen(chain, begin, end)


def _carried(begin: State, end: State) -> str:
    """Return why two states can't be used together if one was carried over to the pipeline."""
    if end.rebased is None:
        return "seen: since was carried over to the pipeline by rebase, and the state was not"
    return (
        f"seen: the state was carried over to the pipeline by rebase after "
        f"{end.rebased.items:,} items of a different pipeline; call seen with that one for these, "
        "and pass since=lz.rebase(its last state, pipeline) for those since then"
    )
