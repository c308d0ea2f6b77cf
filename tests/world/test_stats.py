"""`run.stats` of a run whose items are moved to a device."""

from __future__ import annotations

from itertools import islice
from typing import Any

import lazyckpt as lz


def test_to_a_device_too() -> None:
    run: Any
    executor = lz.to_device(lz.threads(2), "cpu")
    with lz.run(lz.source(range(9)), executor=executor) as run:
        assert run.stats.items == 0
        assert len([*islice(run, 4)]) == 4
        assert (run.stats.items, run.stats.restarts) == (4, 0)
        assert 0 <= run.stats.waiting <= 1
