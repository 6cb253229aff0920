"""How large a text and how deep a tree may be, so that no text can exhaust memory or the stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ouzel.errors import QueryError
from ouzel.lang.syntax import Node

# Characters that a query or an expression may have, and a whole script.
QUERY_CHARACTERS_MAX = 200_000
SCRIPT_CHARACTERS_MAX = 10_000_000
# Levels of nested brackets, and of nodes in the tree. Comparing, hashing, pickling and printing a tree all recurse;
# this keeps them far below Python's own limit. A chain of AND or OR is one node, so it may be as long as the text. A
# chain of + or * has one node per term.
DEPTH_MAX = 100
# More digits than any number type holds. It also stays below the limit of int().
NUMBER_DIGITS_MAX = 100
NUMBER_EXPONENT_MAX = 400
# Events that a quantifier may ask for.
EVENTS_MAX = 1_000_000_000


def check_depth(tree: Node) -> None:
    """Refuse a tree that is deeper than DEPTH_MAX. It goes level by level, because recursion is not safe yet."""
    level = [tree]
    for _ in range(DEPTH_MAX):
        level = [child for node in level for child in _children(node)]
        if not level:
            return
    span = level[0].span
    raise QueryError(
        f"nested too deep: more than {DEPTH_MAX} levels",
        start=span.start,
        end=span.end,
        hint="a chain of + or * is one level a term; split it with RETURN and INTO",
    )


def _children(node: Node) -> Iterator[Node]:
    for field in fields(node):
        value = getattr(node, field.name)
        if isinstance(value, Node):
            yield value
        elif isinstance(value, tuple):
            yield from (child for child in value if isinstance(child, Node))
