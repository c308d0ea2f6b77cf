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
        lines for long ones; and a warning where the first items of a shuffled epoch
        are taken, which are others in each epoch.

    >>> import lazyckpt as lz
    >>> pipeline = lz.source(range(9)) | lz.map(str) | lz.filter(str.isdigit) | lz.batch(2)
    >>> print(lz.explain(pipeline, lz.threads(4)))
    source(range(0, 9)) | map(str)  in 4 threads, each item from its own state
    filter(str.isdigit) | batch(2)  in one thread beside the consumer
    """
    chain: Chain = runnable("explain", pipeline)
    parts = (as_executor(executor) or Executor(explain, {})).explain(chain)
    return "\n".join([laid_out(parts), *warnings(chain)])
