"""The laws over pipelines that are long enough for inner blocks and windows to change."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

import lazyckpt as lz
from lazyckpt import testing

LAWS = ["meaning", "modes", "resume", "exhaustion", "codec"]
LENGTHS = st.sampled_from([0, 1, 255, 256, 257, 511, 513, 700, 1024, 1500])


def keep_laws(pipeline: lz.Pipeline[Any]) -> None:
    for name in LAWS:
        testing.LAWS[name](pipeline, 4000)
