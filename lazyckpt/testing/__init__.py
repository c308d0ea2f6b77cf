"""The laws, for the library's own combinators and for yours.

    from lazyckpt import testing

    testing.check_resume(pipeline)
    testing.check_combinator(my_stage(3), examples=[1, 2, 3, 4, 5])

`lazyckpt.testing.strategies` draws random pipelines with Hypothesis, and
`lazyckpt.testing.models` has a naive model of every combinator.
"""

from lazyckpt.testing.checks import check_combinator, check_pipeline, check_resume
from lazyckpt.testing.laws import LAWS
from lazyckpt.testing.traces import equal

__all__ = [
    "LAWS",
    "check_combinator",
    "check_pipeline",
    "check_resume",
    "equal",
]
