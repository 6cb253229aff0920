"""Queries of one shape are filled in from the first one: trees, bound queries and mistakes are the same without."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import random
import re
from collections.abc import Mapping
from typing import Any

import pytest

import ouzel
from ouzel.bind import bind, catalog_for, shapes
from ouzel.bind.model import Catalog
from ouzel.lang import parse
from ouzel.prepared import Query
from tests.agreement import case_count
from tests.generate import random_case

CASES = case_count(500)
TYPES = {name: {"id": "long", "x": "long", "y": "long", "n": "long", "f": "double", "s": "string"} for name in "ABCD"}
CATALOGS = [Catalog(), catalog_for(TYPES), catalog_for({**TYPES, "A": {**TYPES["A"], "x": "decimal(9,2)"}})]
LITERAL = re.compile(r"'[^']*'|(?<![\w.])\d+(?:\.\d+)?(?![\w.])")
VALUES = {
    str: ["'u'", "'v'", "'a longer text'", "''", "'it''s'", "'ü%'", "'2024-05-31'"],
    int: ["0", "1", "2", "007", "12345", "999999999", "9999999999", "99999999999999999999"],
    float: ["0.5", "1.0", "2.50", "12345.678", "0.1234567", "1.00"],
}


def deep(part: Any) -> Any:
    """Everything in a tree, positions too."""
    if dataclasses.is_dataclass(part) and not isinstance(part, Catalog):
        inner = [(one.name, deep(getattr(part, one.name))) for one in dataclasses.fields(part)]
        return (type(part).__name__, inner)
    if isinstance(part, tuple):
        return tuple(deep(item) for item in part)
    if isinstance(part, Mapping):
        return [(deep(key), deep(value)) for key, value in part.items()]
    return (type(part).__name__, part)


def told(act: Any) -> Any:
    try:
        return deep(act())
    except ouzel.QueryError as error:
        return str(error)


def changed(rng: random.Random, text: str) -> str:
    def other(found: re.Match[str]) -> str:
        kind = str if found[0].startswith("'") else float if "." in found[0] else int
        return found[0] if rng.random() < 0.4 else rng.choice(VALUES[kind])

    return LITERAL.sub(other, text)


def check(text: str, streaming: bool) -> bool:
    """Compare with what is parsed and bound by itself; gives whether the query was filled in and bound so."""
    assert told(lambda: shapes.parsed(text)[0]) == told(lambda: parse(text)), text
    try:
        tree, filled = shapes.parsed(text)
    except ouzel.QueryError:
        return False
    was_bound = False
    for catalog in CATALOGS:
        name = f"name of {len(text)}"
        wanted = told(lambda: bind(tree, text, catalog, name=name, streaming=streaming))  # noqa: B023
        prepared = Query(name, text, tree, filled=filled)
        assert told(lambda: prepared.bind(catalog, streaming=streaming)) == wanted, text  # noqa: B023
        if filled is not None:
            was_bound |= shapes.bound(filled, text, catalog, name=name, streaming=streaming) is not None
    return was_bound


def random_text(rng: random.Random) -> str:
    kind = rng.choice(["sase", "kleene", "aggregate", "written", "written", "written"])
    if kind == "aggregate":
        return random_case(rng, "aggregate").text
    if kind != "written":
        return random_case(rng, kind).text
    tests = [
        f"a.x {rng.choice(['>', '=', '!=', '<='])} 1",
        "a.s = 'u'",
        "(b.f < 0.5 OR a.f >= 1.0)",
        "b.s IN ('u', 'v')",
        "NOT (a.y BETWEEN 1 AND 2)",
        "(a.x = 1 AND b.x = 1 OR a.x = 1 AND b.y = 2)",
        "b.n > a.n",
        "a.x * 2 > 1",
        "a.s LIKE 'u%'",
        "[id = 1]",
        "a.time - b.time > 5",
        "-1 < a.x",
    ]
    # Only compared literals can be filled in; half of the texts have no others.
    where = " AND ".join(rng.sample(rng.choice([tests, tests[:7]]), rng.randint(1, 4)))
    return f"PATTERN SEQ(A a, B b) WHERE {where} WITHIN {rng.randint(1, 9)} RETURN R(a.n AS n, b.x + 1 AS v)"


def test_texts_with_other_constants_bind_alike() -> None:
    filled, texts = 0, max(20, CASES // 20)
    for number in range(texts):
        rng = random.Random(f"shapes {number}")
        text = random_text(rng)
        for _ in range(6):
            filled += check(text, streaming=rng.random() < 0.5)
            text = changed(rng, text)
    assert filled > texts // 2


def test_a_mistake_is_shown_where_it_stands() -> None:
    for limit in ("1", "22", "333"):
        text = f"PATTERN SEQ(A a, B b) WHERE a.x > {limit} AND b.nothing = 1 WITHIN 5"
        query = ouzel.query(text)
        with pytest.raises(ouzel.QueryError) as error:
            query.bind(CATALOGS[1])
        assert error.value.text is not None and error.value.start is not None
        assert error.value.text[error.value.start :].startswith("b.nothing")


def test_constants_that_are_equal_in_one_query_only() -> None:
    """Equal conditions are one: a form in which they differ must not be filled with equal ones, nor the other way."""
    for first, second in ((1, 2), (3, 3), (4, 5), (5, 5), (7, 8)):
        text = f"PATTERN SEQ(A a, B b) WHERE a.x > {first} AND a.x > {second} WITHIN 5"
        assert len(ouzel.query(text).bind(CATALOGS[1]).conjuncts) == (1 if first == second else 2)


def test_a_changed_tree_is_bound_as_it_is() -> None:
    for limit in (1, 2, 3):
        query = ouzel.query(f"PATTERN SEQ(A a, B b) WHERE a.x > {limit} WITHIN 5")
        assert (
            not dataclasses.replace(query, tree=dataclasses.replace(query.tree, where=None)).bind(Catalog()).conjuncts
        )


def test_a_filled_query_can_be_copied_and_pickled() -> None:
    for limit in (1, 2):
        query = ouzel.query(f"PATTERN SEQ(A a, B b) WHERE a.x = {limit} WITHIN 5")
        assert pickle.loads(pickle.dumps(query)) == copy.deepcopy(query) == query
