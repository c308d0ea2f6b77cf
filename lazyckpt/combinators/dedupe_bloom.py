"""`dedupe_bloom`: items that have not come before, by a Bloom filter."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, TypeVar

from lazyckpt.combinators.machines.bloom_filter import BlockFolder, BloomFilter
from lazyckpt.combinators.machines.key_hash import Key, key_hash
from lazyckpt.core.checks import Unfit, finite, function, positive
from lazyckpt.core.flow import Flow, Position
from lazyckpt.core.machine import Machine, Reread, within
from lazyckpt.core.registry import Elastic
from lazyckpt.core.stages import stateful
from lazyckpt.decorators import combinator, giving
from lazyckpt.errors import PipelineError, SourceChanged
from lazyckpt.pipeline import Keeping

A = TypeVar("A", bound=Any)  # by which pyright lets a lambda do anything with it

_NAME = "dedupe_bloom"


def _folder(value: Any) -> str:
    if not isinstance(value, (str, os.PathLike)) or not os.fspath(value):
        raise Unfit("the path of a folder")
    return os.fsdecode(value)


@giving(Keeping)
@combinator(
    checks={
        "key": function,
        "folder": _folder,
        "capacity": positive,
        "false_positive_rate": finite("between 0 and 1", lambda value: 0 < value < 1),
        "block_size": positive,
    },
    functions={"key": "look"},
    unrecorded=("folder",),
    elastic=Elastic(changes={"capacity": "any", "false_positive_rate": "any"}),
)
def dedupe_bloom(
    upstream: Machine[A],
    key: Callable[[A], Key],
    folder: str | os.PathLike[str],
    *,
    capacity: int,
    false_positive_rate: float,
    block_size: int = 65_536,
) -> Machine[A]:
    """The items whose key none before has in the epoch, but for a few that are left out too.

    A Bloom filter says which keys there were (Bloom, 1970; Kirsch and Mitzenmacher, 2008). It
    never takes a key that was there for a new one. The hashes of the keys are kept in a folder:
    after each `block_size` items a file is written, which is named by its digest, names the one
    before it, and never changes. A state names the last. So a resume from any state, the
    oldest too, sees what was seen before it and nothing else; runs at once in one
    folder don't disturb each other; and a process may be killed at any time. Behind
    `repeat()` an epoch is all that was ever seen.

    Args:
        key: What is compared, of an item: a str, bytes or an int.
        folder: Where the hashes are kept, the same after a resume. All states that name
            its files need them.
        capacity: How many items may be given in an epoch, an int >= 1; `rebase` changes it.
        false_positive_rate: The share of new items, between 0 and 1, that are left out once
            `capacity` were given; fewer before. Where 0.01 is stated, 0.0102 were measured
            then, and 0.0016 on average of a whole stream up to there; of 0.001, 0.0009.
        block_size: After how many items, given or left out, a file is written.

    Raises:
        PipelineError: More than `capacity` items are new.
        InvalidState: A file that a state names is missing or damaged; the message names it.
        TypeError: For a key that is no str, bytes or int.

    State:
        The place where the block under way began, the digest of the one before it, and a count
        of items since.

    Resume:
        Re-reads fewer than `block_size` items, and 8 bytes from `folder` for each item given,
        in about a tenth of the time that these took.

    Random access:
        No.

    Rank-invariant:
        No.

    Memory:
        `capacity` times 1.44 log2(1 / `false_positive_rate`) bits: 1.2 bytes an item for 0.01.

    >>> import lazyckpt as lz
    >>> from tempfile import mkdtemp
    >>> letters = lz.source([*"mississippi"])
    >>> once = lz.dedupe_bloom(str, mkdtemp(), capacity=100, false_positive_rate=1e-6)
    >>> "".join(letters | once)
    'misp'
    """
    blocks = BlockFolder(_NAME, str(folder))

    def flow(position: Position) -> Flow[A]:
        anchor, digest, passed = position
        blocks.check(digest)
        before = upstream.flow(anchor)
        since, ready = passed, False

        def items() -> Iterator[A]:
            nonlocal anchor, digest, since, ready
            seen = _Seen(BloomFilter(capacity, false_positive_rate), capacity)
            seen.restore(blocks, digest)
            stream = iter(before)
            count = len([seen.add(key(item)) for item in islice(stream, passed)])
            if count < passed:
                raise SourceChanged(
                    f"{_NAME}: the state has read {passed} items since its place, "
                    f"where there are {count}"
                )
            ready = True
            for item in stream:
                is_new = seen.add(key(item))
                since += 1
                if since == block_size:
                    digest = blocks.put(digest, seen.total, seen.hashes)
                    anchor, since = before.snapshot(), 0
                    seen.hashes = []
                if is_new:
                    yield item

        return Flow(items(), lambda: (anchor, digest, since) if ready else position)

    def check(digest: Any, passed: Any) -> None:
        within(_NAME, digest, (1 << 64) - 1)
        within(_NAME, passed, block_size - 1)

    return stateful(
        _NAME,
        upstream,
        first=(0, 0),
        check=check,
        rereads=lambda at: [Reread(at[0], at[2])],
        flow=flow,
    )


class _Seen:
    """The keys that there were, and apart from these the hashes of the block under way."""

    def __init__(self, found: BloomFilter, capacity: int) -> None:
        self._filter, self._capacity = found, capacity
        self.total, self.hashes = 0, list[int]()

    def restore(self, blocks: BlockFolder, digest: int) -> None:
        """Add what is kept up to a block."""
        for number, block in enumerate(blocks.blocks(digest)):
            self.total = self.total if number else block.total
            self._filter.add_all(block.hashes)

    def add(self, key: Any) -> bool:
        """Add a key, and say whether it is new."""
        value = key_hash(_NAME, "key", key)
        if not self._filter.add(value):
            return False
        self.total += 1
        if self.total > self._capacity:
            raise PipelineError(
                f"{_NAME}: more than capacity={self._capacity:,} items are new; go on with "
                "lazyckpt.rebase(state, pipeline) and a pipeline of more capacity"
            )
        self.hashes.append(value)
        return True
