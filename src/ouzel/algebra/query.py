"""Algebra expressions as queries: with a name and parameter values, ready to be bound to any input."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ouzel.algebra.binding import bind
from ouzel.algebra.model import BoundAlgebra
from ouzel.algebra.streams import Stream, bases, decode, encode
from ouzel.bind.model import Catalog


@dataclass(frozen=True)
class AlgebraQuery:
    """An expression with a name."""

    name: str
    expression: Stream
    params: Mapping[str, Any] = field(default_factory=dict)
    types: None = None

    @property
    def text(self) -> str:
        return repr(self.expression)

    @property
    def event_types(self) -> set[str]:
        """The event types that it names."""
        return {base.type for base in bases(self.expression) if base.type is not None}

    def bind(self, catalog: Catalog, *, time: str | None = None, type: str | None = None) -> BoundAlgebra:
        """Bind the expression to an input whose columns are known."""
        return bind(self.expression, catalog, name=self.name, time=time, type=type, params=self.params)

    def encoded(self) -> dict[str, Any]:
        """As plain JSON values, including its parameters."""
        return {"name": self.name, "expression": encode(self.expression), "params": dict(self.params)}

    @classmethod
    def decoded(cls, body: Mapping[str, Any]) -> AlgebraQuery:
        return cls(body["name"], decode(body["expression"]), dict(body["params"]))
