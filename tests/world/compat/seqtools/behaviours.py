"""A row of the tables of what torch's and torchdata's own tests pin of a loader, test by test.

For each behaviour the test of ours that holds it, or why it is meant not to be.
"""

from __future__ import annotations

from typing import NamedTuple


class Behaviour(NamedTuple):
    """A row: `theirs` are the tests, classes or files that pin it, if any does by itself.

    Of ours, `held`, each is `file::function`. Several have blanks between.
    """

    behaviour: str
    theirs: str = ""
    held: str = ""
    reason: str = ""
