"""The parts of messages."""

from __future__ import annotations

import pytest

from lazyckpt.core.checks import plural


@pytest.mark.parametrize(
    ("count", "what", "said"),
    [
        (0, "item", "0 items"),
        (1, "item", "1 item"),
        (1_234, "more part", "1,234 more parts"),
        (1, "process", "1 process"),
        (2, "process", "2 processes"),
    ],
)
def test_a_count_is_said_in_words(count: int, what: str, said: str) -> None:
    assert plural(count, what) == said
