"""What `import lazyckpt` costs a program that imports NumPy anyway."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial

from harness import Row, paired

INSIDE = """
import numpy
from time import perf_counter
begun = perf_counter()
import lazyckpt
print(perf_counter() - begun)
"""


def imports(rounds: int) -> Iterator[Row]:
    """Fresh processes in turn, and the import alone, timed within one."""
    with tempfile.TemporaryDirectory() as cache:
        ours = partial(fresh, "import numpy, lazyckpt", cache)
        theirs = partial(fresh, "import numpy", cache)
        added = [(a - b) * 1e3 for a, b in paired(ours, theirs, 4 * rounds)]
        yield Row("W7", "processes: import numpy, lazyckpt less import numpy", added, "ms", 15)
        inside = [float(fresh(INSIDE, cache)) * 1e3 for _ in range(4 * rounds)]
        yield Row("W7", "import lazyckpt alone, after numpy", inside, "ms", 15)


def fresh(code: str, cache: str) -> str:
    """What a new interpreter prints, that has compiled modules cached as an installed one has."""
    command = [sys.executable, "-P", "-c", code]
    env = {**os.environ, "PYTHONPYCACHEPREFIX": cache, "PYTHONDONTWRITEBYTECODE": ""}
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    return done.stdout
