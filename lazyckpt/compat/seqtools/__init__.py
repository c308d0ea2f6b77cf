"""SeqTools 1.4.1 and the DataLoader of its documentation, which stands in for torch's as well.

`SerializableFunc` isn't here: where cloudpickle is installed, lambdas go to workers as they are.
"""

from lazyckpt.compat.seqtools import instrument
from lazyckpt.compat.seqtools.arranging import (
    arange,
    batch,
    case,
    collate,
    concatenate,
    cycle,
    gather,
    interleave,
    repeat,
    split,
    switch,
    take,
    unbatch,
)
from lazyckpt.compat.seqtools.caching import add_cache, uniter
from lazyckpt.compat.seqtools.errors import EvaluationError, seterr
from lazyckpt.compat.seqtools.instrument import debug, monitor_throughput
from lazyckpt.compat.seqtools.loader import DataLoader
from lazyckpt.compat.seqtools.mapping import smap, starmap
from lazyckpt.compat.seqtools.prefetching import prefetch
from lazyckpt.compat.seqtools.sequence import LazySequence

__all__ = [
    "DataLoader", "EvaluationError", "LazySequence", "add_cache", "arange", "batch", "case",
    "collate", "concatenate", "cycle", "debug", "gather", "instrument", "interleave",
    "monitor_throughput", "prefetch", "repeat", "seterr", "smap", "split", "starmap", "switch",
    "take", "unbatch", "uniter",
]  # fmt: skip
