"""Hypothesis profiles: dev (default), ci, deep; chosen by HYPOTHESIS_PROFILE."""

import os

from hypothesis import HealthCheck, settings

_slow = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]

settings.register_profile("dev", max_examples=60, deadline=None, suppress_health_check=_slow)
settings.register_profile(
    "ci", max_examples=300, deadline=None, suppress_health_check=_slow, derandomize=True
)
settings.register_profile("deep", max_examples=5000, deadline=None, suppress_health_check=_slow)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
