"""Ouzel: complex event processing for Spark, tables and live streams.

This is the public API, imported lazily. All other names are private.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ouzel import algebra, datasets, loss, spark
    from ouzel.engines.kleene.compressed import expand
    from ouzel.errors import (
        EmptyAnswerWarning,
        InputError,
        LimitError,
        ManyMatchesWarning,
        ModelWarning,
        OrderWarning,
        OuzelError,
        ProblemWarning,
        QueryError,
        StateError,
        TypesWarning,
    )
    from ouzel.insight.timeline import plot
    from ouzel.insight.why import Why, why
    from ouzel.loss import LossModel
    from ouzel.prepared import Query, explain, queries, query
    from ouzel.query_set.api import QuerySet
    from ouzel.runtime.engine import Engine, match, stream
    from ouzel.runtime.recognize import match_recognize
    from ouzel.statements import sql

__version__ = "0.1.0"

_HOMES = {
    "EmptyAnswerWarning": "ouzel.errors",
    "Engine": "ouzel.runtime.engine",
    "InputError": "ouzel.errors",
    "LimitError": "ouzel.errors",
    "LossModel": "ouzel.loss",
    "ManyMatchesWarning": "ouzel.errors",
    "ModelWarning": "ouzel.errors",
    "OrderWarning": "ouzel.errors",
    "OuzelError": "ouzel.errors",
    "ProblemWarning": "ouzel.errors",
    "Query": "ouzel.prepared",
    "QuerySet": "ouzel.query_set.api",
    "QueryError": "ouzel.errors",
    "StateError": "ouzel.errors",
    "TypesWarning": "ouzel.errors",
    "Why": "ouzel.insight.why",
    "expand": "ouzel.engines.kleene.compressed",
    "explain": "ouzel.prepared",
    "match": "ouzel.runtime.engine",
    "match_recognize": "ouzel.runtime.recognize",
    "plot": "ouzel.insight.timeline",
    "queries": "ouzel.prepared",
    "query": "ouzel.prepared",
    "sql": "ouzel.statements",
    "stream": "ouzel.runtime.engine",
    "why": "ouzel.insight.why",
}
_PACKAGES = ("algebra", "datasets", "learning", "loss", "spark")

__all__ = [
    "EmptyAnswerWarning",
    "Engine",
    "InputError",
    "LimitError",
    "LossModel",
    "ManyMatchesWarning",
    "ModelWarning",
    "OrderWarning",
    "OuzelError",
    "ProblemWarning",
    "Query",
    "QueryError",
    "QuerySet",
    "StateError",
    "TypesWarning",
    "Why",
    "algebra",
    "datasets",
    "expand",
    "explain",
    "loss",
    "match",
    "match_recognize",
    "plot",
    "queries",
    "query",
    "spark",
    "sql",
    "stream",
    "why",
]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        value = getattr(import_module(_HOMES[name]), name)
    elif name in _PACKAGES:
        value = import_module(f"ouzel.{name}")
    else:
        raise AttributeError(f"module 'ouzel' has no attribute '{name}'")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])
