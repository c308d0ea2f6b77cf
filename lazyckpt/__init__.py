"""Data pipelines as values: stop anywhere, save a few hundred bytes, resume exactly.

    pipeline = source(files) | shuffle(seed=0) | repeat() | flat_map(read) | batch(32)
    with run(pipeline, state) as batches:
        for batch in batches:
            ...
            save(batches.state, "data.json")

Each module imports only from those before it:

- core: secrets, iterators, cut, lines
- errors
- core: sizes, pictured, checks, values, prng, flow, machine, arrays
- core: stages, user_state, show, frames, content, registry, call, define
- machines, pictures
- failures: notes, marks, skip_log, guards, watching, skipping
- state: codec, words, mismatch, state, obstacles, rebase, walk, algebra, reshard, resume_cost
- timers
- executors: plan, ipc, pools
- stats, cursor, epochs, delivery, run, tickets, tracking
- state: saving
- pipeline, decorators, preview, combinators, explanation, monitoring, io, lineage, types
- compat: samplers
- integrations, testing, demo, compat, cli
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lazyckpt.core.registry import registry
from lazyckpt.errors import (
    ArgumentError,
    InvalidState,
    PipelineError,
    SourceChanged,
    StateMismatch,
    WorkerDied,
    WorkerTimeout,
)
from lazyckpt.executors.executor import Executor
from lazyckpt.pipeline import Pipeline, Stage, run
from lazyckpt.run import Run
from lazyckpt.state.state import State

if TYPE_CHECKING:
    from lazyckpt import errors as errors
    from lazyckpt import io as io
    from lazyckpt import types as types
    from lazyckpt.combinators.add_cu_seqlens import add_cu_seqlens
    from lazyckpt.combinators.batch import batch
    from lazyckpt.combinators.block_shuffle import block_shuffle
    from lazyckpt.combinators.bucket_batch import bucket_batch
    from lazyckpt.combinators.bucket_by_boundaries import bucket_by_boundaries
    from lazyckpt.combinators.concat import concat
    from lazyckpt.combinators.concat_then_split import concat_then_split
    from lazyckpt.combinators.count import count, random_floats, random_indices
    from lazyckpt.combinators.dedupe import dedupe
    from lazyckpt.combinators.dedupe_bloom import dedupe_bloom
    from lazyckpt.combinators.enumerate import enumerate, random_map
    from lazyckpt.combinators.exclude import exclude
    from lazyckpt.combinators.filter import filter
    from lazyckpt.combinators.flat_map import flat_map, unbatch
    from lazyckpt.combinators.flat_scan import flat_scan
    from lazyckpt.combinators.gather import gather
    from lazyckpt.combinators.group_by import group_by
    from lazyckpt.combinators.interleave import interleave
    from lazyckpt.combinators.interleave_map import interleave_map
    from lazyckpt.combinators.lanes import lanes
    from lazyckpt.combinators.local_shuffle import local_shuffle
    from lazyckpt.combinators.lru_cache import lru_cache
    from lazyckpt.combinators.machines.stacking import stack
    from lazyckpt.combinators.map import map, starmap, tap
    from lazyckpt.combinators.mix import mix, mix_counts
    from lazyckpt.combinators.multiplex import multiplex
    from lazyckpt.combinators.pack import pack_best_fit, pack_first_fit
    from lazyckpt.combinators.pack_by_plan import pack_by_plan
    from lazyckpt.combinators.plan_packing import plan_packing
    from lazyckpt.combinators.repeat import repeat
    from lazyckpt.combinators.sample import oversample, sample, sample_balanced
    from lazyckpt.combinators.scan import scan
    from lazyckpt.combinators.schedule import schedule
    from lazyckpt.combinators.shard import shard
    from lazyckpt.combinators.shard_batch import shard_batch
    from lazyckpt.combinators.shuffle import shuffle
    from lazyckpt.combinators.sliding_window import sliding_window
    from lazyckpt.combinators.source import columns, source
    from lazyckpt.combinators.split import hash_range, kfold, split
    from lazyckpt.combinators.split_batch import split_batch
    from lazyckpt.combinators.switch import case, switch
    from lazyckpt.combinators.take import skip, take
    from lazyckpt.combinators.take_tokens import take_tokens
    from lazyckpt.combinators.take_while import drop_while, take_while
    from lazyckpt.combinators.token_batch import token_batch
    from lazyckpt.combinators.unfold import from_generator, once, unfold
    from lazyckpt.combinators.zip import zip
    from lazyckpt.decorators import combinator, composite, source_combinator
    from lazyckpt.executors.device import to_device
    from lazyckpt.executors.local import inline, processes, threads
    from lazyckpt.executors.remote import futures, ray
    from lazyckpt.explanation.explain import explain
    from lazyckpt.integrations import torch as torch
    from lazyckpt.lineage.seen import seen
    from lazyckpt.lineage.trace import trace
    from lazyckpt.monitoring.metrics import metrics
    from lazyckpt.monitoring.profile import profile
    from lazyckpt.monitoring.progress import progress
    from lazyckpt.pictures.drawing import tree
    from lazyckpt.preview import head
    from lazyckpt.state.algebra import advance, diff, init, replay, state_at, step
    from lazyckpt.state.rebase import rebase
    from lazyckpt.state.reshard import reshard
    from lazyckpt.state.resume_cost import resume_cost
    from lazyckpt.state.saving import load, save
    from lazyckpt.tracking import tracked

__version__ = "0.1.0"

__all__ = [
    "ArgumentError",
    "Executor",
    "InvalidState",
    "Pipeline",
    "PipelineError",
    "Run",
    "SourceChanged",
    "Stage",
    "State",
    "StateMismatch",
    "WorkerDied",
    "WorkerTimeout",
    "add_cu_seqlens",
    "advance",
    "batch",
    "block_shuffle",
    "bucket_batch",
    "bucket_by_boundaries",
    "case",
    "columns",
    "combinator",
    "composite",
    "concat",
    "concat_then_split",
    "count",
    "dedupe",
    "dedupe_bloom",
    "diff",
    "drop_while",
    "enumerate",
    "exclude",
    "explain",
    "filter",
    "flat_map",
    "flat_scan",
    "from_generator",
    "futures",
    "gather",
    "group_by",
    "hash_range",
    "head",
    "init",
    "inline",
    "interleave",
    "interleave_map",
    "kfold",
    "lanes",
    "load",
    "local_shuffle",
    "lru_cache",
    "map",
    "metrics",
    "mix",
    "mix_counts",
    "multiplex",
    "once",
    "oversample",
    "pack_best_fit",
    "pack_by_plan",
    "pack_first_fit",
    "plan_packing",
    "processes",
    "profile",
    "progress",
    "random_floats",
    "random_indices",
    "random_map",
    "ray",
    "rebase",
    "registry",
    "repeat",
    "replay",
    "reshard",
    "resume_cost",
    "run",
    "sample",
    "sample_balanced",
    "save",
    "scan",
    "schedule",
    "seen",
    "shard",
    "shard_batch",
    "shuffle",
    "skip",
    "sliding_window",
    "source",
    "source_combinator",
    "split",
    "split_batch",
    "stack",
    "starmap",
    "state_at",
    "step",
    "switch",
    "take",
    "take_tokens",
    "take_while",
    "tap",
    "threads",
    "to_device",
    "token_batch",
    "trace",
    "tracked",
    "tree",
    "unbatch",
    "unfold",
    "zip",
]

_MODULES = {  # imported when one of its names is first used
    "combinators.add_cu_seqlens": "add_cu_seqlens",
    "combinators.batch": "batch",
    "combinators.block_shuffle": "block_shuffle",
    "combinators.bucket_batch": "bucket_batch",
    "combinators.bucket_by_boundaries": "bucket_by_boundaries",
    "combinators.lru_cache": "lru_cache",
    "combinators.concat": "concat",
    "combinators.concat_then_split": "concat_then_split",
    "combinators.count": "count random_floats random_indices",
    "combinators.dedupe": "dedupe",
    "combinators.dedupe_bloom": "dedupe_bloom",
    "combinators.enumerate": "enumerate random_map",
    "combinators.filter": "filter",
    "combinators.flat_map": "flat_map unbatch",
    "combinators.flat_scan": "flat_scan",
    "combinators.gather": "gather",
    "combinators.group_by": "group_by",
    "combinators.interleave": "interleave",
    "combinators.interleave_map": "interleave_map",
    "combinators.lanes": "lanes",
    "combinators.take_tokens": "take_tokens",
    "combinators.local_shuffle": "local_shuffle",
    "combinators.machines.stacking": "stack",
    "combinators.map": "map starmap tap",
    "combinators.mix": "mix mix_counts",
    "combinators.multiplex": "multiplex",
    "combinators.pack": "pack_best_fit pack_first_fit",
    "combinators.pack_by_plan": "pack_by_plan",
    "combinators.plan_packing": "plan_packing",
    "combinators.repeat": "repeat",
    "combinators.sample": "oversample sample sample_balanced",
    "combinators.scan": "scan",
    "combinators.schedule": "schedule",
    "combinators.shard": "shard",
    "combinators.shard_batch": "shard_batch",
    "combinators.shuffle": "shuffle",
    "combinators.sliding_window": "sliding_window",
    "combinators.source": "columns source",
    "combinators.split": "hash_range kfold split",
    "combinators.split_batch": "split_batch",
    "combinators.switch": "case switch",
    "combinators.take": "skip take",
    "combinators.take_while": "drop_while take_while",
    "combinators.token_batch": "token_batch",
    "combinators.unfold": "from_generator once unfold",
    "combinators.exclude": "exclude",
    "combinators.zip": "zip",
    "decorators": "combinator composite source_combinator",
    "executors.device": "to_device",
    "executors.local": "inline processes threads",
    "executors.remote": "futures ray",
    "explanation.explain": "explain",
    "preview": "head",
    "lineage.seen": "seen",
    "lineage.trace": "trace",
    "monitoring.metrics": "metrics",
    "monitoring.profile": "profile",
    "monitoring.progress": "progress",
    "pictures.drawing": "tree",
    "state.algebra": "advance diff init replay state_at step",
    "state.rebase": "rebase",
    "state.reshard": "reshard",
    "state.resume_cost": "resume_cost",
    "state.saving": "load save",
    "tracking": "tracked",
}
_INTEGRATIONS = "accelerate", "grain", "jax", "lightning", "prometheus", "torch", "transformers"
_PACKAGES = {  # imported on first use, because some import a framework
    **{name: f"lazyckpt.{name}" for name in ("compat", "integrations", "io", "testing", "types")},
    **{name: f"lazyckpt.integrations.{name}" for name in _INTEGRATIONS},
}

_places = {
    name: f"lazyckpt.{module}" for module, names in _MODULES.items() for name in names.split()
}
registry.locate({name: module for name, module in _places.items() if ".combinators." in module})


def __getattr__(name: str) -> Any:
    if name in _places:
        found = globals()[name] = getattr(import_module(_places[name]), name)
        return found
    if name in _PACKAGES:
        return import_module(_PACKAGES[name])
    if name == "prefetch":
        raise AttributeError(
            "lazyckpt has no prefetch stage: pass an executor to the run instead, "
            "run(pipeline, executor=threads())"
        )
    checks = import_module("lazyckpt.core.checks")
    raise checks.missing_name("lazyckpt", name, [*__all__, *_PACKAGES])


def __dir__() -> list[str]:
    return __all__
