"""Random queries: binding gives a sound bound query or a QueryError, never anything else."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import pytest

from ouzel.bind import Catalog, bind, catalog_for
from ouzel.bind.literals import DECIMAL_DIGITS_MAX, INT64_MAX, INT64_MIN
from ouzel.bind.model import (
    Aggregation,
    At,
    Attribute,
    Bound,
    BoundQuery,
    CompoundComparison,
    Constant,
    Edge,
    Intrinsic,
    Kind,
    Length,
    Operation,
    decode,
    encode,
    parts,
)
from ouzel.bind.normal_form import with_not_pushed_in
from ouzel.errors import QueryError
from ouzel.lang import parse
from tests.agreement import case_count
from tests.bind.shop import BARE_TICKS, OPEN, SHOP, TYPES

# All of them at any share: they are cheap, and few of them are accepted.
QUERIES = max(1_000, case_count(1_000))
ONE_TABLE = catalog_for(
    schema={
        "n": "int",
        "tag": "string",
        "weight": "double",
        "price": "decimal(18,4)",
        "ok": "bool",
        "ts": "timestamp[ns]",
    },
    time="ts",
)
CATALOGS = [SHOP, SHOP, OPEN, ONE_TABLE, Catalog(declared=SHOP.declared, time=BARE_TICKS), catalog_for(TYPES)]


class Grammar:
    """Queries that are mostly meaningful: right names and types more often than not."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.variables: list[tuple[str, bool]] = []

    def pick(self, *choices: Any) -> Any:
        return self.rng.choice(choices)

    def maybe(self, chance: float) -> bool:
        return self.rng.random() < chance

    def query(self) -> str:
        text = self.pattern()
        if self.maybe(0.8):
            condition = " AND ".join(self.conjunct() for _ in range(self.rng.randint(1, 4)))
            strategy = self.pick(
                "strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match"
            )
            names = ", ".join(name for name, _ in self.variables if self.maybe(0.9))
            text += (
                f" WHERE {strategy}({names}) {{ {condition} }}" if names and self.maybe(0.3) else f" WHERE {condition}"
            )
        if self.maybe(0.3):
            text += f" GROUP BY {self.pick('tag', 'n', 'code', self.reference())}"
        if self.maybe(0.3):
            aggregates = [self.pick("COUNT", f"SUM({self.reference()})", f"MIN({self.value(1)})") for _ in range(2)]
            text += f" AGG {', '.join(aggregates)}"
            if self.maybe(0.4):
                column = self.pick("COUNT", "count", "tag", "sum(a.n)", "n")
                text += f" HAVING {column} {self.comparison()} {self.literal()}"
        if self.maybe(0.6):
            text += f" WITHIN {self.pick('5', '10 s', '1.5 min', '3 EVENTS', ':limit', '1 us')}"
        if self.maybe(0.15):
            text += f" THRESHOLD {self.pick('0.5', '1%', '2', ':limit')}"
        if self.maybe(0.2):
            text += f" OUTPUT {self.pick('ALL', 'FIRST', 'NON_OVERLAPPING', 'SKIP TO LAST a', 'COMPRESSED')}"
        if self.maybe(0.3):
            text += f" RETURN P({', '.join(self.value(2) for _ in range(self.rng.randint(0, 3)))})"
        return text

    def pattern(self) -> str:
        names = ["a", "b", "c", "d", "start"]
        components = []
        for name in names[: self.rng.randint(1, 4)]:
            kleene = self.maybe(0.3)
            types = self.pick(
                "Shelf", "Shelf", "Exit", "Register", "Alarm", "Odd", "ANY(Shelf, Exit)", "ANY(Alarm, Exit)", "Shef"
            )
            self.variables.append((name, kleene))
            if kleene:
                components.append(f"{types}+ {name}[]")
            elif self.maybe(0.2):
                components.append(f"!({types} {name})")
            else:
                components.append(f"{types} {name}" if self.maybe(0.95) else "Exit")
        if self.maybe(0.05):
            return f"SEQUENCE ({', '.join(name for name, _ in self.variables)})"
        return f"PATTERN SEQ({', '.join(components)})"

    def conjunct(self) -> str:
        if self.maybe(0.15):
            return f"[{self.pick('tag', 'n', 'code', 'address.city', 'price')}{self.pick('', '', ' = 5', ' = :limit')}]"
        return self.condition(2)

    def condition(self, depth: int) -> str:
        kind = self.rng.randint(0, 9)
        if depth and kind == 0:
            return f"({self.condition(depth - 1)} {self.pick('OR', 'AND')} {self.condition(depth - 1)})"
        if depth and kind == 1:
            return f"NOT ({self.condition(depth - 1)})"
        value = self.value(depth)
        if kind == 2:
            return f"{value} {self.pick('', 'NOT ')}IN ({self.literal()}, {self.value(depth)})"
        if kind == 3:
            return f"{value} {self.pick('', 'NOT ')}BETWEEN {self.value(depth)} AND {self.literal()}"
        if kind == 4:
            return self.pick(f"{value} IS NOT NULL", f"{self.reference()} LIKE 'x%'", self.reference())
        return f"{value} {self.comparison()} {self.value(depth)}"

    def comparison(self) -> str:
        return str(self.pick("=", "!=", "<", "<=", ">", ">="))

    def value(self, depth: int) -> str:
        kind = self.rng.randint(0, 9)
        if depth and kind < 3:
            return f"({self.value(depth - 1)} {self.pick(*'+-*/%')} {self.value(depth - 1)})"
        if depth and kind == 3:
            return (
                f"CASE WHEN {self.condition(depth - 1)} THEN {self.value(depth - 1)} ELSE {self.value(depth - 1)} END"
            )
        if depth and kind == 4:
            call = self.pick(
                "abs", "coalesce", "lower", "round", "greatest", "year", "double", "floor", "nullif", "time"
            )
            return f"{call}({', '.join(self.value(depth - 1) for _ in range(self.rng.randint(1, 2)))})"
        if kind == 5:
            function = self.pick("sum", "avg", "count", "max", "first")
            return f"{function}({self.pick('a', 'b')}{self.pick('[]', '[..i-1]', '')}.n)"
        return self.literal() if kind < 7 else self.reference()

    def literal(self) -> str:
        numbers = ("0", "3", "-7", "2.5", "1e3", "80%", "9223372036854775807", "-9223372036854775808")
        others = (
            "'x'",
            "null",
            "true",
            "5 s",
            "3 days",
            ":limit",
            "DATE '2024-05-01'",
            "TIMESTAMP '2024-05-01 12:00:00'",
        )
        return str(self.pick(*numbers, *others))

    def reference(self) -> str:
        name, kleene = self.rng.choice(self.variables)
        wanted = self.maybe(0.9) == kleene
        index = self.pick("[1]", "[i]", "[i-1]", f"[{name}.LEN]", "", "") if wanted else ""
        attributes = (
            "n",
            "n",
            "n",
            "tag",
            "weight",
            "price",
            "ok",
            "at",
            "day",
            "time",
            "type",
            "address.zip",
            "LEN",
            "code",
            "huge",
            "tags",
        )
        return f"{name}{index}.{self.pick(*attributes)}"


def expressions(query: BoundQuery) -> Iterator[Bound]:
    for conjunct in query.conjuncts:
        yield from conjunct.comparisons
    yield from (column.expression for column in query.returns or ())
    yield from (column.argument for column in query.aggregates if column.argument is not None)
    yield from (key.expression for key in query.group_by if key.expression is not None)
    if query.having is not None:
        yield query.having


def check_sound(query: BoundQuery) -> None:
    """What everything behind the binder relies on."""
    for expression in expressions(query):
        for part in parts(expression):
            check_part(part)
    for conjunct in query.conjuncts:
        named = [part for comparison in conjunct.comparisons for part in parts(comparison)]
        events = [part for part in named if isinstance(part, Attribute | Intrinsic | Length | Aggregation)]
        assert conjunct.components == {part.component for part in events}
        assert not any(isinstance(part, Attribute | Intrinsic) and part.at is At.EVERY for part in events)
        for comparison in conjunct.comparisons:
            is_junction = isinstance(comparison, Operation) and comparison.operator in ("and", "or")
            assert isinstance(comparison, CompoundComparison) or not is_junction
            assert with_not_pushed_in(comparison) == comparison
        if conjunct.negative is None:
            assert conjunct.tested_at == max(conjunct.components, default=query.positives[0].position)
            assert query.components[conjunct.tested_at].kleene or conjunct.edge is Edge.BEGIN
    assert len(set(query.conjuncts)) == len(query.conjuncts)
    assert decode(encode(query)) == query


def check_part(part: Bound) -> None:
    if isinstance(part, Constant):
        expected = {Kind.INT: int, Kind.FLOAT: float, Kind.STRING: str, Kind.DECIMAL: Decimal, Kind.BOOL: bool}
        if part.value is not None and part.type.kind in expected:
            assert type(part.value) is expected[part.type.kind], part
        if part.type.kind in (Kind.INT, Kind.DATE, Kind.TIMESTAMP) and isinstance(part.value, int):
            assert INT64_MIN <= part.value <= INT64_MAX
        if isinstance(part.value, Decimal):
            assert -part.value.as_tuple().exponent == part.type.scale
    if isinstance(part, Operation):
        types = {operand.type for operand in part.operands} - {Kind.UNKNOWN}
        kinds = {operand.type.kind for operand in part.operands} - {Kind.UNKNOWN, Kind.NULL, Kind.DURATION}
        if part.operator in ("=", "!=", "<", "<=", ">", ">=", "in") and Kind.UNKNOWN not in {t.kind for t in types}:
            assert len(kinds) <= 1, part
            assert len({t.scale for t in types if t.kind is Kind.DECIMAL}) <= 1
            assert len({t.unit for t in types if t.kind is Kind.TIMESTAMP}) <= 1
        if part.type.kind is Kind.DECIMAL:
            assert part.type.scale <= part.type.precision <= DECIMAL_DIGITS_MAX


def test_random_queries() -> None:
    rng = random.Random(20240501)
    accepted = 0
    for _ in range(QUERIES):
        text = Grammar(rng).query()
        tree = parse(text)
        params = {"limit": rng.choice([1, 5, 0.5, "x", None, Decimal("2.50"), True])} if ":limit" in text else {}
        try:
            query = bind(tree, text, rng.choice(CATALOGS), params)
        except QueryError as error:
            assert error.message[0].islower() or not error.message[0].isalpha() or error.message.split()[0].isupper()
            assert error.start is not None and 0 <= error.start <= (error.end or 0) <= len(text)
        else:
            accepted += 1
            check_sound(query)
    # Most random queries are wrong somewhere, but enough must be right for the checks to mean something.
    assert accepted > QUERIES / 20


@pytest.mark.parametrize("seed", range(20))
def test_random_queries_of_one_part(seed: int) -> None:
    """Smaller queries, of which more are accepted."""
    rng = random.Random(seed)
    for _ in range(QUERIES // 20):
        grammar = Grammar(rng)
        text = f"{grammar.pattern()} WHERE {grammar.conjunct()}"
        params = {"limit": 5} if ":limit" in text else {}
        try:
            query = bind(parse(text), text, rng.choice(CATALOGS), params)
        except QueryError:
            continue
        check_sound(query)
