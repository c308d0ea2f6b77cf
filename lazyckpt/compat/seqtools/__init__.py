"""SeqTools 1.4.1 and the DataLoader of its documentation, which also replaces torch's.

`SerializableFunc` is missing: if cloudpickle is installed, lambdas can be sent to workers.
`add_cache` has no `cache` argument, and `monitor_throughput` no stream.
"""

from lazyckpt.compat.seqtools import functions, instrument
from lazyckpt.compat.seqtools.functions import *  # noqa: F403  # its names, listed there
from lazyckpt.compat.seqtools.instrument import debug, monitor_throughput
from lazyckpt.compat.seqtools.loader import DataLoader
from lazyckpt.compat.seqtools.prefetching import prefetch
from lazyckpt.compat.seqtools.sequence import EvaluationError, LazySequence, seterr

__all__ = [
    "DataLoader", "EvaluationError", "LazySequence", "debug", "instrument", "monitor_throughput",
    "prefetch", "seterr", *functions.__all__,
]  # fmt: skip
