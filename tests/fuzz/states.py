"""Bytes as states, guided by the code they reach, to find foreign errors and hangs.

`pip install -e ".[test]" atheris && python tests/fuzz/states.py -max_total_time=600`
"""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from tempfile import TemporaryDirectory

import atheris

with atheris.instrument_imports(include=["lazyckpt"]):
    import lazyckpt as lz

sys.path.append(str(Path(__file__).parents[2]))
tests = import_module("tests.state.test_hostile_states")

PIPELINES = tests.table()


def one(data: bytes) -> None:
    """The first byte says which pipeline; the rest is a state, whose checksum is mended."""
    pipeline = PIPELINES[data[0] % len(PIPELINES)] if data else PIPELINES[0]
    text: str | bytes = data[1:]
    with suppress(ValueError, RecursionError):
        found = json.loads(text)
        if isinstance(found, dict):
            text = tests.signed(found)
    with suppress(lz.PipelineError):
        lz.State.from_json(text)
    tests.used(pipeline, text)


if __name__ == "__main__":
    with TemporaryDirectory() as corpus:
        for number, pipeline in enumerate(PIPELINES):
            text = lz.state_at(pipeline, 1).to_json()
            Path(corpus, str(number)).write_bytes(bytes([number]) + text.encode())
        options = ["-timeout=10", "-rss_limit_mb=2048", "-max_len=4096"]
        atheris.Setup([sys.argv[0], *options, *sys.argv[1:], corpus], one)
        atheris.Fuzz()
