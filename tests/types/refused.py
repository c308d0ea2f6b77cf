"""Ill-typed pipes, which mypy and pyright both have to refuse; nothing here runs.

Both are set to call it an error if a line is ignored that has none.
"""

from __future__ import annotations

import lazyckpt as lz
from tests.types.pipelines import is_long, longest, noisy, numbers, several, words, written


def refused() -> None:
    _ = words | lz.map(abs)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.map(str.upper) | lz.map(abs)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = lz.map(str.upper) | lz.map(abs)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.flat_map(len)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = words | lz.filter(abs)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.take_while(abs)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = numbers | lz.drop_while(str.isupper)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = numbers | lz.scan(longest, 0)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.scan(longest, "0")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = numbers | lz.flat_scan(several, 0)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = numbers | lz.random_map(noisy, seed=0)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.random_map(noisy)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    _ = lz.unfold(written, "0")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = lz.random_indices("ab", seed=0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = lz.columns(x=words)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = words | lz.gather("0")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = words | lz.batch("2")  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    _ = words | lz.batch(2) | lz.map(str.upper)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = numbers | lz.batch(2, collate="".join)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.sliding_window(2) | lz.map(str.upper)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.group_by(abs)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.group_by(len) | lz.map(len) | lz.map(len)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = numbers | lz.bucket_batch(2, key=len, window_size=9, seed=0)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = numbers | lz.bucket_by_boundaries([2], 2, key=len)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.interleave_map(len, cycle_length=2)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = words | lz.shuffle(8)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    _ = words | words  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = words | len  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = lz.shard(2, 0)  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    _ = lz.zip([1], [2])  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType, reportCallIssue]
    _ = lz.case(words, words)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = lz.multiplex(words, [words])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = lz.mix(words, [1], seed=0)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = lz.run([1])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    lz.save(words, "state.json")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = lz.run(lz.take(2))  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = list(lz.take(2))  # type: ignore[call-overload]  # pyright: ignore[reportArgumentType]
    _ = words | lz.tap(abs)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.filter(is_long, "3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    _ = numbers | lz.filter(is_long, 3)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.enumerate() | lz.map(str.upper)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.take_tokens(3, key=abs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportOperatorIssue]
    _ = words | lz.dedupe(abs, window=3)  # type: ignore[arg-type]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.token_batch(3, key=abs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportOperatorIssue]
    _ = words | lz.batch(2) | lz.unbatch() | lz.map(abs)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.batch(2) | lz.shard_batch(num_shards=2, index=0, key=abs)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType, reportOperatorIssue]
    _ = numbers | lz.shard_batch(num_shards=2, index=0, key=int)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = lz.zip(words, numbers) | lz.map(str.upper)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
    _ = lz.batch(2) | len  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = ["a"] | lz.filter(abs)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = ["a"] | lz.group_by(abs)  # type: ignore[operator]  # pyright: ignore[reportOperatorIssue]
    _ = words | lz.split([0.5], seed=0)[0] | lz.map(abs)  # type: ignore[arg-type, call-arg]  # pyright: ignore[reportOperatorIssue]
