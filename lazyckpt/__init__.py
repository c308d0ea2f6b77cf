"""Data pipelines as values: build, stop anywhere, keep a few hundred bytes, resume exactly.

    pipeline = source(files) | shuffle(seed=0) | repeat() | flat_map(read) | batch(32)
    with run(pipeline, state) as batches:
        for batch in batches:
            ...
            save(batches.state, "data.json")

The rooms, each of which imports only from those before it: errors, checks,
noise, machine, frozen, catalogue, call, blame and diagram, tally, skipping,
state, layers and windows, comparing, rebasing, algebra, resharding, costs, executors,
run, saving, pipeline, combinators, tracing, integrations, testing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lazyckpt.algebra import Difference, Move, advance, diff, init, replay, state_at, step
from lazyckpt.catalogue import registry
from lazyckpt.combinators.boundaries import bucket_by_boundaries
from lazyckpt.combinators.bucketing import bucket_batch
from lazyckpt.combinators.choosing import case, switch
from lazyckpt.combinators.expanding import flat_map, unbatch
from lazyckpt.combinators.gathering import gather
from lazyckpt.combinators.generating import choices, count, once, unfold, uniform
from lazyckpt.combinators.grouping import batch, stack
from lazyckpt.combinators.interleaving import interleave, interleave_map
from lazyckpt.combinators.joining import concat, multiplex, zip
from lazyckpt.combinators.laning import lanes
from lazyckpt.combinators.mapping import map, scan, starmap, tap
from lazyckpt.combinators.mixing import mix, mix_counts
from lazyckpt.combinators.ordering import block_shuffle, repeat, shuffle
from lazyckpt.combinators.packing import concat_then_split, pack_first_fit
from lazyckpt.combinators.selecting import drop_while, filter, skip, take, take_while
from lazyckpt.combinators.sharding import shard
from lazyckpt.combinators.sources import columns, source
from lazyckpt.combinators.transforming import cache, enumerate, random_map, transition
from lazyckpt.combinators.windowing import group_by, shards, sliding_window
from lazyckpt.costs import Reread, ResumeCost, resume_cost
from lazyckpt.errors import (
    ArgumentError,
    Exhausted,
    InvalidState,
    PipelineError,
    SourceChanged,
    StateMismatch,
    WorkerDied,
    WorkerTimeout,
)
from lazyckpt.executors.device import to_device
from lazyckpt.executors.executor import Executor, explain
from lazyckpt.executors.local import inline, processes, threads
from lazyckpt.executors.remote import futures, ray
from lazyckpt.pipeline import Pipeline, Stage, combinator, producer, run
from lazyckpt.rebasing import rebase
from lazyckpt.resharding import reshard
from lazyckpt.run import Run
from lazyckpt.saving import load, save
from lazyckpt.state import State
from lazyckpt.tracing import Origin, trace

if TYPE_CHECKING:
    from lazyckpt.integrations import torch as torch

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Difference",
    "Executor",
    "Exhausted",
    "InvalidState",
    "Move",
    "Origin",
    "Pipeline",
    "PipelineError",
    "Reread",
    "ResumeCost",
    "Run",
    "SourceChanged",
    "Stage",
    "State",
    "StateMismatch",
    "WorkerDied",
    "WorkerTimeout",
    "advance",
    "batch",
    "block_shuffle",
    "bucket_batch",
    "bucket_by_boundaries",
    "cache",
    "case",
    "choices",
    "columns",
    "combinator",
    "concat",
    "concat_then_split",
    "count",
    "diff",
    "drop_while",
    "enumerate",
    "explain",
    "filter",
    "flat_map",
    "futures",
    "gather",
    "group_by",
    "init",
    "inline",
    "interleave",
    "interleave_map",
    "lanes",
    "load",
    "map",
    "mix",
    "mix_counts",
    "multiplex",
    "once",
    "pack_first_fit",
    "processes",
    "producer",
    "random_map",
    "ray",
    "rebase",
    "registry",
    "repeat",
    "replay",
    "reshard",
    "resume_cost",
    "run",
    "save",
    "scan",
    "shard",
    "shards",
    "shuffle",
    "skip",
    "sliding_window",
    "source",
    "stack",
    "starmap",
    "state_at",
    "step",
    "switch",
    "take",
    "take_while",
    "tap",
    "threads",
    "to_device",
    "trace",
    "transition",
    "unbatch",
    "unfold",
    "uniform",
    "zip",
]


_INTEGRATIONS = {"grain", "jax", "torch", "transformers"}


def __getattr__(name: str) -> Any:
    if name in _INTEGRATIONS:  # which bring their framework along
        return import_module(f"lazyckpt.integrations.{name}")
    if name == "prefetch":
        raise AttributeError(
            "lazyckpt has no prefetch stage: how a pipeline is run is not part of it"
        )
    raise AttributeError(f"module 'lazyckpt' has no attribute {name!r}")
