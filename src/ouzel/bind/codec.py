"""Bound queries as JSON and back, so that workers and snapshots need neither a parser nor pickle.

Decoding makes only the classes of `model`: names in the JSON select from a fixed table.
"""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Mapping
from decimal import Decimal
from enum import Enum
from typing import Any

from ouzel.bind import model
from ouzel.errors import StateError
from ouzel.lang import syntax

_CLASSES: dict[str, type] = {
    name: value
    for name, value in vars(model).items()
    if isinstance(value, type) and (dataclasses.is_dataclass(value) or issubclass(value, Enum))
}
_ENUMS: dict[str, type[Enum]] = {
    **{name: value for name, value in _CLASSES.items() if issubclass(value, Enum)},
    **{cls.__name__: cls for cls in (syntax.Contiguity, syntax.Notation, syntax.OutputForm, syntax.Strategy)},
}
_RECORDS: dict[str, type] = {name: value for name, value in _CLASSES.items() if not issubclass(value, Enum)}


def encode(value: Any) -> Any:
    """Turn a bound query, or any part of one, into plain JSON values.

    >>> decode(encode(model.Constant(7, type=model.INT)))
    Constant(type=Type(kind=<Kind.INT: 'integer'>, precision=0, scale=0, unit=None, zone=None, fields=()), value=7)
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        # repr keeps every bit, and JSON has no NaN.
        return {"f": repr(value)}
    if isinstance(value, Enum):
        return {"e": [type(value).__name__, value.name]}
    if isinstance(value, Decimal):
        return {"d": str(value)}
    if isinstance(value, bytes):
        return {"b": base64.b64encode(value).decode("ascii")}
    if isinstance(value, tuple | list):
        return [encode(item) for item in value]
    if isinstance(value, frozenset):
        return {"s": [encode(item) for item in sorted(value)]}
    if isinstance(value, Mapping):
        return {"m": [[encode(key), encode(item)] for key, item in value.items()]}
    if dataclasses.is_dataclass(value) and type(value).__name__ in _RECORDS:
        fields = {f.name: encode(getattr(value, f.name)) for f in dataclasses.fields(value) if f.name != "span"}
        return {"r": [type(value).__name__, fields]}
    raise AssertionError(f"a {type(value).__name__} cannot be part of a bound query")


def decode(value: Any) -> Any:
    """The objects that `encode` was given."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, list):
        return tuple(decode(item) for item in value)
    if isinstance(value, dict) and len(value) == 1:
        ((tag, body),) = value.items()
        try:
            return _DECODERS[tag](body)
        except (KeyError, ValueError, TypeError, ArithmeticError) as error:
            raise StateError(f"this is not a bound query that this version of Ouzel can read: {error}") from None
    raise StateError("this is not a bound query that this version of Ouzel can read")


_DECODERS: dict[str, Any] = {
    "f": float,
    "e": lambda body: _ENUMS[body[0]][body[1]],
    "d": Decimal,
    "b": lambda body: base64.b64decode(body, validate=True),
    "s": lambda body: frozenset(decode(item) for item in body),
    "m": lambda body: {decode(key): decode(item) for key, item in body},
    "r": lambda body: _RECORDS[body[0]](**{name: decode(item) for name, item in body[1].items()}),
}
