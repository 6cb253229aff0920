"""Ouzel on Spark: DataFrame in, DataFrame out, batch or streaming.

Names are loaded when first used, so that a Spark worker, which imports only what it runs, does not load PySpark's
driver side.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouzel.spark.batch import Matches
    from ouzel.spark.checkpoint import state
    from ouzel.spark.dataframes import explain, match, matching
    from ouzel.spark.empty import why_empty
    from ouzel.spark.failures import clear_errors
    from ouzel.spark.launch import session
    from ouzel.spark.listener import Listener
    from ouzel.spark.listing import expand
    from ouzel.spark.query_sets import match_set
    from ouzel.spark.sql import register

_HOMES = {
    "Listener": "ouzel.spark.listener",
    "Matches": "ouzel.spark.batch",
    "clear_errors": "ouzel.spark.failures",
    "expand": "ouzel.spark.listing",
    "explain": "ouzel.spark.dataframes",
    "match": "ouzel.spark.dataframes",
    "match_set": "ouzel.spark.query_sets",
    "matching": "ouzel.spark.dataframes",
    "register": "ouzel.spark.sql",
    "session": "ouzel.spark.launch",
    "state": "ouzel.spark.checkpoint",
    "why_empty": "ouzel.spark.empty",
}

__all__ = [
    "Listener",
    "Matches",
    "clear_errors",
    "expand",
    "explain",
    "match",
    "match_set",
    "matching",
    "register",
    "session",
    "state",
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
