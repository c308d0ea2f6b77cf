"""Errors of tasks that aren't errors of the user's code."""

from __future__ import annotations


class TaskLost(Exception):
    """The workers that had a task, or had the tasks before it, are gone: submit it again."""
