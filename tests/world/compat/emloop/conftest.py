"""Fixtures of these tests."""

from tests.compat.emloop.conftest import _ends_its_workers

__all__ = ["_ends_its_workers"]
