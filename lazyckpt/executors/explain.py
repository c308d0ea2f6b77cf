"""What an executor would do where, in words."""

from __future__ import annotations

from lazyckpt.core.call import Chain, runnable
from lazyckpt.executors.executor import Executor, as_executor
from lazyckpt.executors.plan.report import laid_out, warnings


def explain(pipeline: Chain, executor: Executor | None = None) -> str:
    """Say what will run where. Starts nothing.

    Args:
        pipeline: The pipeline to run.
        executor: The executor to run it with; None is `inline()`.

    Returns:
        A line for each segment of the pipeline, its stages, where they run and how many
        items are held there that were made, or are being made, before they are asked for;
        or more lines for long ones. Those of pipelines that are joined come before,
        indented. Behind them what small items, and what comes of an item, take.
        Of `processes`, the process that reads what workers make may make it by itself
        where that costs less than sending it. And a warning where the first items of a
        shuffled epoch are taken, which are others in each epoch.

    >>> import lazyckpt as lz
    >>> words = lz.source(["a b", "c 1"]) | lz.flat_map(str.split) | lz.filter(str.isalpha)
    >>> pipeline = lz.mix([words, lz.source(range(9)) | lz.map(str)], [1, 2], seed=0)
    >>> print(lz.explain(pipeline, lz.threads(4)))
      source(['a b', 'c 1'])
      | flat_map(str.split)
      | filter(str.isalpha)           in 4 threads, each item with what comes of it; 6 items ahead
      source(range(0, 9)) | map(str)  in 4 threads, each item from its own state; 6 items ahead
    mix(..., (1, 2), seed=0)          in one thread beside the consumer; 3 items ahead
    memory: stages have their own buffers; items below 256 KiB come in chunks of 256 KiB and
      4,096 items at most, 3 for each worker and 2 more, and 2 items besides; what comes of an
      item, in parts of 1 MiB or one item, with 2.5 MiB for each worker; pipelines that are
      joined share what is ahead, and have one item each
    """
    chain: Chain = runnable("explain", pipeline)
    chosen = as_executor(executor) or Executor(explain, {})
    return "\n".join([laid_out(chosen.explain(chain)), *chosen.memory(chain), *warnings(chain)])
