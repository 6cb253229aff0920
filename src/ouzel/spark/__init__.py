"""Ouzel on Spark: DataFrame in, DataFrame out, batch or streaming.

Names are loaded when first used, so that a Spark worker, which imports only what it runs, does not load PySpark's
driver side.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouzel.spark.launch import session as session

_HOME = {"session": "ouzel.spark.launch", "match": "ouzel.spark.matching", "matching": "ouzel.spark.matching"}

__all__ = ["session"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'ouzel.spark' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return __all__
