"""What happens to tasks that is no error of the user's."""

from __future__ import annotations


class TaskLost(Exception):
    """The workers that had a task, or the tasks before it, are gone: submit it again."""
