"""Controls: values that stages take, and who refuses them."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import lazyckpt as lz
from lazyckpt.testing import check_pipeline
from tests.helpers import wants


def at_least(least: int, item: int) -> bool:
    return item >= least


def plus(more: int, item: int) -> int:
    return item + more


def mixed(weights: Any, **options: Any) -> lz.Pipeline[int]:
    return lz.mix([lz.count(), lz.count(100)], weights, **options)


def test_a_control_is_a_value() -> None:
    one, other = (lz.control([1, 2], name="weights") for _ in range(2))
    assert one == other != lz.control([1, 3], name="weights")
    assert hash(one) == hash(other)
    pipeline = mixed(one, seed=0)
    assert pipeline == pickle.loads(pickle.dumps(pipeline)) == mixed(other, seed=0)
    assert "control([1, 2], name='weights')" in repr(pipeline)


@pytest.mark.parametrize(
    "pipeline",
    [
        mixed(lz.control([1, 1], name="weights"), seed=0) | lz.take(9),
        lz.source(range(9)) | lz.filter(at_least, lz.control(2, name="least")) | lz.batch(2),
        lz.source(range(9)) | lz.map(plus, lz.control(2, name="more")) | lz.repeat(2),
        lz.source(range(9)) | lz.take_while(plus, lz.control(-4, name="more")),
        lz.source(["a", "bc"]) | lz.token_batch(lz.control(2, name="budget"), key=len),
    ],
)
def test_a_stage_that_takes_one_keeps_the_laws(pipeline: lz.Pipeline[Any]) -> None:
    check_pipeline(pipeline)


def test_arguments_come_before_the_item() -> None:
    assert list(lz.source([1, 2]) | lz.map(divmod, 7)) == [(7, 0), (3, 1)]
    assert list(lz.source([1, 5]) | lz.filter(at_least, 3)) == [5]
    assert list(lz.source([1, 0, 2]) | lz.take_while(plus, 0)) == [1]
    numbers = lz.source(np.arange(4)) | lz.map(np.add, 10, vectorized=True)
    (batch,) = numbers | lz.batch(4, collate=lz.stack)
    assert batch.tolist() == [10, 11, 12, 13]
    skipping = lz.source([0, 3]) | lz.map(divmod, 7)
    assert list(lz.run(skipping, on_error="skip")) == [(2, 1)]


def test_random_access_stays() -> None:
    pipeline = lz.source(range(10**9)) | lz.map(plus, lz.control(1, name="more"))
    assert (len(pipeline), pipeline[-1], list(pipeline[7:9])) == (10**9, 10**9, [8, 9])
    run = lz.run(pipeline, lz.state_at(pipeline, 10**8))
    run.set("more", 0)
    assert lz.replay(pipeline, lz.advance(pipeline, run.state, 10**8)) == 2 * 10**8


def test_what_takes_no_control_says_so() -> None:
    size = lz.control(2, name="size")
    wants("batch: batch_size takes no control, got .*name='size'", lambda: lz.batch(size))
    wants(
        "token_batch: key takes no .*; max_tokens may be one", lambda: lz.token_batch(3, key=size)
    )
    wants(
        "mix: weights takes no control with these arguments",
        lambda: mixed(lz.control([1, 1], name="weights"), deterministic=True),
    )


def test_a_first_value_is_checked_as_the_argument_is() -> None:
    wants("weights must be finite", lambda: mixed(lz.control([1, -1], name="weights"), seed=0))
    wants("as many weights", lambda: mixed(lz.control([1], name="weights"), seed=0))
    wants("initial must be made of None, bool", lambda: lz.control({1, 2}, name="set"))  # type: ignore[arg-type]
    wants("name must be a str of 1 to 40", lambda: lz.control([1], name=""))


def test_one_name_has_one_first_value() -> None:
    more, other = lz.control(1, name="more"), lz.control(2, name="more")
    both = lz.source([1]) | lz.map(plus, more) | lz.map(plus, lz.control(1, name="more"))
    assert list(both) == [3]
    wants("the control 'more' is 1 in .* and 2 in", lambda: both | lz.map(plus, other))
    inner = [lz.source([1]) | lz.map(plus, each) for each in (more, other)]
    wants("the control 'more' is 1 in .* and 2 in", lambda: lz.zip(*inner))
    wants("the control 'more' is 1 in", lambda: lz.source([1]) | lz.map(max, more, other))


def test_a_control_stands_where_a_change_can_hold() -> None:
    moved = lz.source(range(9)) | lz.map(plus, lz.control(1, name="more"))
    wants("shuffle: it takes items from anywhere in an epoch", lambda: moved | lz.shuffle(seed=0))
    wants("lanes: .* put what takes one behind", lambda: lz.lanes([moved], num_shards=1, index=0))
    assert next(lz.run(lz.source(range(9)) | lz.shuffle(seed=0) | lz.map(plus, 1))) >= 1
