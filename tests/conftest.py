"""Hypothesis profiles, chosen by HYPOTHESIS_PROFILE.

dev is the default. It tries the same examples each time, as ci and brief do, so that the README's
command passes or fails for everyone. brief is for the second Python and later ones. deep takes
long, and looks for new examples.
"""

import gc
import os
import signal

from hypothesis import HealthCheck, settings

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile(
    "dev", max_examples=60, deadline=None, suppress_health_check=_slow, derandomize=True
)
settings.register_profile("brief", settings.get_profile("dev"), max_examples=10)
settings.register_profile("ci", settings.get_profile("dev"), max_examples=100)
settings.register_profile(
    "deep", max_examples=5000, deadline=None, suppress_health_check=_slow, derandomize=False
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))


def pytest_configure() -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # by a shell, for jobs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.pop("COLUMNS", None)  # of pytest's workers; results are shown as in a file


def pytest_collection_finish() -> None:
    gc.freeze()  # thousands of tests, among which each collection would search for garbage
