"""Settings that all tests share."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# The same examples on every run, so that a red build is red again when it is looked at; `make test-long` explores.
# No deadlines: the first call of a kernel compiles it, and machines are shared.
settings.register_profile(
    "steady", derandomize=True, deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("long", parent=settings.get_profile("steady"), derandomize=False, max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# Otherwise a tenth of the time goes into looking for garbage among the cases.
gc.set_threshold(20_000)

SPARK_ROOM = Path(__file__).resolve().parents[1] / "src" / "ouzel" / "spark"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Import only the files that name the mark of `make test-quick`, because collecting all takes ten seconds."""
    if not config.option.markexpr.startswith("quick ") or collection_path.suffix != ".py":
        return None
    return "mark.quick" not in collection_path.read_text(encoding="utf-8") or None


def pytest_collection_finish() -> None:
    """The cases are not garbage before the end."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whatever takes the session of the tests starts Spark, and so may the examples in docstrings of the Spark room."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) or item.path.is_relative_to(SPARK_ROOM):
            item.add_marker(pytest.mark.spark)
