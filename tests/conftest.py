"""Settings that all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The same examples on every run, so that a red build is red again when it is looked at; `make test-long` explores.
# No deadlines: the first call of a kernel compiles it, and machines are shared.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("long", parent=settings.get_profile("steady"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))
