"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE, and a watchdog.

dev is the default; ci and brief find the same each time; deep takes long.
"""

import faulthandler
import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("dev", max_examples=60, deadline=None, suppress_health_check=_slow)
settings.register_profile("brief", settings.get_profile("dev"), derandomize=True)
settings.register_profile(
    "ci", max_examples=200, deadline=None, suppress_health_check=_slow, derandomize=True
)
settings.register_profile("deep", max_examples=5000, deadline=None, suppress_health_check=_slow)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))

_stderr = 2


def pytest_configure() -> None:
    global _stderr
    _stderr = os.dup(2)  # not captured yet
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell, for what runs behind it
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def patience() -> float:
    """Seconds until `watchdog` ends a test; a folder or a file may have its own."""
    return 120.0


@pytest.fixture
def watchdog(patience: float) -> Iterator[None]:
    """Ends a test run that hangs, and shows where."""
    faulthandler.dump_traceback_later(patience, exit=True, file=_stderr)
    yield
    faulthandler.cancel_dump_traceback_later()
