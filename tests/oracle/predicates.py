"""Predicates twice over, as query text and as Python functions: for checks that trust no part of the oracle."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]
# The events of each positive component, and of the negative one that is looked at, by variable.
Choice = dict[str, list[Row]]


@dataclass(frozen=True)
class Predicate:
    """A conjunct as text and as a function; None in any comparison makes it false.

    `edges` are those of its last identifiers, where it is tested; a conjunct with v.attr is two.
    """

    text: str
    function: Callable[[Choice], bool]
    variables: frozenset[str]
    edges: frozenset[tuple[str, str]] = frozenset()


def less(left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and left < right


def equal(left: int | None, right: int | None) -> bool:
    return left is not None and right is not None and left == right


def not_above(left: int | None, right: int | None) -> bool:
    return less(left, right) or equal(left, right)


def single_predicates(v: str, w: str) -> list[Predicate]:
    """Over two single components, named in the order of the alphabet."""
    both, one = frozenset({v, w}), frozenset({v})
    later, own = frozenset({(max(v, w), "begin")}), frozenset({(v, "begin")})
    return [
        Predicate(f"{v}.x < {w}.x", lambda c: less(c[v][0]["x"], c[w][0]["x"]), both, later),
        Predicate(f"{v}.y = {w}.x", lambda c: equal(c[v][0]["y"], c[w][0]["x"]), both, later),
        Predicate(f"NOT {v}.y >= {w}.y", lambda c: less(c[v][0]["y"], c[w][0]["y"]), both, later),
        Predicate(f"{v}.x > 0", lambda c: less(0, c[v][0]["x"]), one, own),
        Predicate(f"{v}.x IS NULL", lambda c: c[v][0]["x"] is None, one, own),
        Predicate(
            f"({v}.x = 1 OR {w}.y < {v}.y)",
            lambda c: equal(c[v][0]["x"], 1) or less(c[w][0]["y"], c[v][0]["y"]),
            both,
            later,
        ),
    ]


def kleene_predicates(v: str) -> list[Predicate]:
    """Over one Kleene component."""
    one = frozenset({v})
    begin, take, proceed = (frozenset({(v, edge)}) for edge in ("begin", "take", "proceed"))

    def every_pair(choice: Choice) -> bool:
        return all(less(a["x"], b["x"]) for a, b in itertools.pairwise(choice[v]))

    def above_average(choice: Choice) -> bool:
        for i in range(1, len(choice[v])):
            earlier = [row["x"] for row in choice[v][:i] if row["x"] is not None]
            x = choice[v][i]["x"]
            if x is None or not earlier or not x > sum(earlier) / len(earlier):
                return False
        return True

    return [
        Predicate(f"{v}[i].x > {v}[i-1].x", every_pair, one, take),
        Predicate(f"{v}[i].x > avg({v}[..i-1].x)", above_average, one, take),
        Predicate(f"{v}.y >= 0", lambda c: all(less(-1, row["y"]) for row in c[v]), one, begin | take),
        Predicate(f"{v}.LEN <= 2", lambda c: len(c[v]) <= 2, one, proceed),
        Predicate(f"{v}[1].x < {v}[LEN].x", lambda c: less(c[v][0]["x"], c[v][-1]["x"]), one, proceed),
        Predicate(
            f"sum({v}[].y) > 0",
            lambda c: any(row["y"] is not None for row in c[v]) and sum(row["y"] or 0 for row in c[v]) > 0,
            one,
            proceed,
        ),
    ]


def later_predicates(v: str, w: str) -> list[Predicate]:
    """Over a Kleene component and a single one after it."""
    both, later = frozenset({v, w}), frozenset({(w, "begin")})
    return [
        Predicate(f"{w}.x > {v}[LEN].x", lambda c: less(c[v][-1]["x"], c[w][0]["x"]), both, later),
        Predicate(f"{w}.y >= {v}[1].y", lambda c: not_above(c[v][0]["y"], c[w][0]["y"]), both, later),
        Predicate(f"{v}[i].x < {w}.x", lambda c: all(less(r["x"], c[w][0]["x"]) for r in c[v][1:]), both, later),
        Predicate(f"{v}.x <= {w}.x", lambda c: all(not_above(r["x"], c[w][0]["x"]) for r in c[v]), both, later),
    ]
