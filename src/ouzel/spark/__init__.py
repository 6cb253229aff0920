"""Ouzel on Spark: DataFrame in, DataFrame out, batch or streaming.

Names are imported when they are first used. So a Spark worker does not load the parts of PySpark that only the driver
needs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouzel.spark.api import expand, explain, match, match_recognize, matching, recognizing, why_empty
    from ouzel.spark.batch import Matches
    from ouzel.spark.inspect import Listener, state
    from ouzel.spark.launch import session
    from ouzel.spark.query_set import match_set
    from ouzel.spark.statements import sql
    from ouzel.spark.tasks import unwrap_errors

_HOMES = {
    "Listener": "ouzel.spark.inspect",
    "Matches": "ouzel.spark.batch",
    "unwrap_errors": "ouzel.spark.tasks",
    "expand": "ouzel.spark.api",
    "explain": "ouzel.spark.api",
    "match": "ouzel.spark.api",
    "match_recognize": "ouzel.spark.api",
    "match_set": "ouzel.spark.query_set",
    "matching": "ouzel.spark.api",
    "recognizing": "ouzel.spark.api",
    "session": "ouzel.spark.launch",
    "sql": "ouzel.spark.statements",
    "state": "ouzel.spark.inspect",
    "why_empty": "ouzel.spark.api",
}

__all__ = [
    "Listener",
    "Matches",
    "expand",
    "explain",
    "match",
    "match_recognize",
    "match_set",
    "matching",
    "recognizing",
    "session",
    "sql",
    "state",
    "unwrap_errors",
    "why_empty",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'ouzel.spark' has no attribute '{name}'")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
