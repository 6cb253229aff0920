"""Random row patterns with every construct, and random rows for them."""

from __future__ import annotations

from random import Random
from typing import Any

VARIABLES = ("A", "B", "C")


def random_rows(rng: Random) -> list[dict[str, Any]]:
    """A few rows with ties in their order, nulls, two partitions and a null one."""
    return [
        {
            "g": rng.choice(["x", "y", None]),
            "t": rng.randrange(6),
            "v": rng.choice([0, 1, 2, 3, None]),
            "f": rng.choice([0.5, 1.5, -1.0, None]),
            "s": rng.choice(["a", "b", None]),
        }
        for _ in range(rng.randrange(1, 12))
    ]


def random_clause(rng: Random) -> str:
    """The text of a row pattern."""
    used: set[str] = set()
    pattern = _alternation(rng, rng.randrange(1, 4), used)
    names = [name for name in VARIABLES if name in used]
    subset = rng.random() < 0.3 and len(names) > 1
    known = [*names, "U"] if subset else names
    excluded = "{-" in pattern
    output = rng.choice(["ONE ROW PER MATCH", "ALL ROWS PER MATCH", "ALL ROWS PER MATCH OMIT EMPTY MATCHES"])
    if not excluded and rng.random() < 0.2:
        output = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"
    skip = rng.choice(["PAST LAST ROW", "PAST LAST ROW", "TO NEXT ROW"])
    if names and rng.random() < 0.15:
        skip = f"TO {rng.choice(['FIRST ', 'LAST ', ''])}{rng.choice(known)}"
    measures = [f"{_value(rng, known, final=True)} AS m{n}" for n in range(rng.randrange(1, 4))]
    definitions = [f"{name} AS {_condition(rng, known)}" for name in names if rng.random() < 0.8]
    within = f"WITHIN {rng.randrange(1, 5)}" if rng.random() < 0.2 else ""
    parts = [
        "PARTITION BY g" if rng.random() < 0.7 else "",
        "ORDER BY t" + (rng.choice([" DESC", " NULLS LAST", ", v", ""]) if not within else ""),
        f"MEASURES {', '.join(measures)}",
        output,
        f"AFTER MATCH SKIP {skip}",
        f"PATTERN ({pattern}) {within}",
        f"SUBSET U = ({', '.join(names[:2])})" if subset else "",
        f"DEFINE {', '.join(definitions)}" if definitions else "",
    ]
    return "\n".join(part for part in parts if part)


def _alternation(rng: Random, depth: int, used: set[str]) -> str:
    return " | ".join(_sequence(rng, depth, used) for _ in range(rng.choice([1, 1, 1, 2])))


def _sequence(rng: Random, depth: int, used: set[str]) -> str:
    return " ".join(_item(rng, depth, used) for _ in range(rng.choice([1, 1, 2, 3])))


def _item(rng: Random, depth: int, used: set[str]) -> str:
    atom = _atom(rng, depth, used)
    quantifier = rng.choice(["", "", "", "+", "*", "?", "{2}", "{1,2}", "{0,2}", "{,1}", "{1,}"])
    return atom + quantifier + (rng.choice(["", "?"]) if quantifier else "")


def _atom(rng: Random, depth: int, used: set[str]) -> str:
    choice = rng.random()
    if depth > 0 and choice < 0.25:
        return f"({_alternation(rng, depth - 1, used)})"
    if depth > 0 and choice < 0.3:
        return f"{{- {_alternation(rng, depth - 1, used)} -}}"
    if depth > 0 and choice < 0.35:
        return f"PERMUTE({_sequence(rng, 0, used)}, {_sequence(rng, 0, used)})"
    if choice > 0.96:
        return rng.choice(["(^)", "($)", "()"])
    name = rng.choice(VARIABLES)
    used.add(name)
    return name


def _condition(rng: Random, known: list[str]) -> str:
    tests = [_test(rng, known) for _ in range(rng.choice([1, 1, 2]))]
    return rng.choice([" AND ", " OR "]).join(tests)


def _test(rng: Random, known: list[str]) -> str:
    kind = rng.random()
    if kind < 0.35:
        return rng.choice(["v > 0", "v >= 1", "v < 3", "s = 'a'", "f > 0", "v IS NULL", "s IS NOT NULL", "TRUE"])
    if kind < 0.45:
        named = rng.choice(known)
        return rng.choice(
            [
                f"PREV(CLASSIFIER()) = '{rng.choice(VARIABLES)}'",
                f"CLASSIFIER({named}) <> 'B'",
                "MATCH_NUMBER() < 3",
                "NOT (MATCH_NUMBER() = 2)",
                f"concat(LAST({named}.s), s) = 'ab'",
                "CASE WHEN v > PREV(v) THEN s ELSE 'b' END = 'b'",
            ]
        )
    operator = rng.choice(["<", "<=", ">", ">=", "=", "<>"])
    if kind < 0.55:
        named = rng.choice(known)
        return f"s {operator} {rng.choice([f'FIRST({named}.s)', f'LAST({named}.s)', f'MIN({named}.s)', 'PREV(s)'])}"
    left = rng.choice(["v", "v + 1", _value(rng, known, final=False)])
    return f"{left} {operator} {_value(rng, known, final=False)}"


def _value(rng: Random, known: list[str], final: bool) -> str:
    """A number that is read from the match."""
    named = rng.choice([*known, *known, ""])
    column = rng.choice(["v", "v", "f"])
    value = f"{named}.{column}" if named else column
    if rng.random() < 0.2:
        value = rng.choice([f"({value} * 2)", f"coalesce({value}, 7)"])
    prefix = rng.choice(["FINAL ", "RUNNING ", ""]) if final else ""
    kind = rng.random()
    if kind < 0.15:
        return value
    if kind < 0.45:
        offset = rng.choice(["", "", ", 1", ", 2"])
        return f"{prefix}{rng.choice(['FIRST', 'LAST'])}({value}{offset})"
    if kind < 0.65:
        inner = value
        if rng.random() < 0.4:
            inner = f"{prefix}{rng.choice(['FIRST', 'LAST'])}({value}, {rng.randrange(2)})"
        return f"{rng.choice(['PREV', 'NEXT'])}({inner}{rng.choice(['', ', 2', ', 0'])})"
    if kind < 0.95:
        counted = rng.choice(["*", f"{named}.*" if named else "*", value, f"DISTINCT {value}" if final else value])
        return rng.choice(
            [f"{prefix}COUNT({counted})", *(f"{prefix}{name}({value})" for name in ("SUM", "AVG", "MIN", "MAX"))]
        )
    return "MATCH_NUMBER()"
