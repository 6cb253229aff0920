"""The syntax tree of an algebra expression as text: a stream, and the clauses that are applied to it one after
another.
"""

from __future__ import annotations

from dataclasses import dataclass

from ouzel.lang.syntax import Expr, Item, Node, Reference


@dataclass(frozen=True, slots=True)
class Source(Node):
    """A source such as `Stock`, `ANY`, `Stock (name string, price double)` or `Call START began`. `type` is None for
    ANY.
    """

    type: str | None
    columns: tuple[tuple[str, str], ...] = ()
    start: str | None = None


@dataclass(frozen=True, slots=True)
class Operation(Node):
    """One clause. `items` are the attributes of PROJECT, the renamings of RENAME, the values of EXTEND, or the values
    of FIRST in FOLD. `condition` is the condition of WHERE or ON. `operand` is the stream after UNION, NEXT or FOLD.
    `step` has the clauses of STEP; `WHILE c` means `STEP (WHERE c)`.
    """

    keyword: str
    items: tuple[Item, ...] = ()
    condition: Expr | None = None
    operand: Pipeline | None = None
    step: tuple[Operation, ...] = ()


@dataclass(frozen=True, slots=True)
class Pipeline(Node):
    """A source, or a stream in parentheses, with an alias and the clauses after it."""

    source: Source | Pipeline
    alias: str | None = None
    operations: tuple[Operation, ...] = ()


def name_of(reference: Expr) -> str:
    """The attribute that a path names, because `a.price` is one name.

    >>> name_of(Reference(("a", "price")))
    'a.price'
    """
    assert isinstance(reference, Reference), "the grammar has paths here"
    return ".".join(reference.names)


def reference_to(name: str) -> Reference:
    """The reference that names an attribute.

    >>> reference_to("a.price").names, reference_to("odd.").names
    (('a', 'price'), ('odd.',))
    """
    parts = tuple(name.split("."))
    return Reference(parts if all(parts) else (name,))
