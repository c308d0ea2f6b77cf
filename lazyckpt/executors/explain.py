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
        A line for each segment of the pipeline, its stages and where they run, or more
        lines for long ones; those of pipelines that are joined come before, indented.
        Of `processes`, the process that reads what workers make may make it by itself
        where that costs less than sending it. And a warning where the first items of a
        shuffled epoch are taken, which are others in each epoch.

    >>> import lazyckpt as lz
    >>> words = lz.source(["a b", "c 1"]) | lz.flat_map(str.split) | lz.filter(str.isalpha)
    >>> pipeline = lz.mix([words, lz.source(range(9)) | lz.map(str)], [1, 2], seed=0)
    >>> print(lz.explain(pipeline | lz.batch(2), lz.threads(4)))
      source(['a b', 'c 1']) | flat_map(str.split)
      | filter(str.isalpha)              in 4 threads, each item with what comes of it
      source(range(0, 9)) | map(str)     in 4 threads, each item from its own state
    mix(..., (1, 2), seed=0) | batch(2)  in one thread beside the consumer
    """
    chain: Chain = runnable("explain", pipeline)
    parts = (as_executor(executor) or Executor(explain, {})).explain(chain)
    return "\n".join([laid_out(parts), *warnings(chain)])
