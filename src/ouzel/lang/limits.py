"""How large a text and how deep a tree may be, so that no text can exhaust memory or the stack."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields

from ouzel.errors import QueryError
from ouzel.lang.syntax import Node

# A query or an expression may have this many characters, a whole script this many.
QUERY_CHARACTERS_MAX = 200_000
SCRIPT_CHARACTERS_MAX = 10_000_000
# Brackets within brackets, and nodes within nodes of the tree. Small enough that comparing, hashing, pickling and
# printing a tree, all of which recurse, stay far below Python's own limit. Chains of AND and OR are one node each and
# may be as long as the text; a chain of + or * is a node a term.
DEPTH_MAX = 100
# More digits than any number type holds; also keeps int() away from its own limit.
NUMBER_DIGITS_MAX = 100
NUMBER_EXPONENT_MAX = 400


def check_depth(tree: Node) -> None:
    """Refuse a tree that is deeper than DEPTH_MAX. Level by level, since recursion is what must not happen yet."""
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
