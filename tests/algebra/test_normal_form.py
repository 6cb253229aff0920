"""Theorem 3: unary operators in any order come to one selection, renaming, extension and projection. Same answers."""

from __future__ import annotations

import random

import pytest

import ouzel
from ouzel.algebra import Stream, normal_form, step, stream
from ouzel.algebra.streams import UNARY, Extend, Fold, Project, Rename, Select, inputs_of
from ouzel.runtime.layout import catalog_of, layout_of_table
from tests.generate import random_case
from tests.generate.cases import ALGEBRA_SCHEMA as SCHEMA
from tests.generate.cases import AlgebraCase, counted

CATALOG = catalog_of(layout_of_table(SCHEMA, time="time", type="type"))
ORDER = (Select, Rename, Extend, Project)


def normal(expression: Stream) -> Stream:
    return normal_form(expression, CATALOG, time="time", type="type")


def rows_of_operators(expression: Stream) -> list[list[Stream]]:
    """Unary operators that stand one upon the other, those of steps too."""
    row: list[Stream] = []
    while isinstance(expression, UNARY):
        row.insert(0, expression)
        expression = expression.input
    below = [*inputs_of(expression), *([expression.step] if isinstance(expression, Fold) else [])]
    return [row, *(found for one in below for found in rows_of_operators(one))]


def test_random_expressions_mean_the_same_in_normal_form() -> None:
    changed = 0
    for number in range(40):
        case = random_case(random.Random(f"normal form {number}"), "algebra")
        made = normal(case.expression)
        changed += made != case.expression
        wanted = case.expected()
        assert AlgebraCase(made, case.rows).expected() == wanted, f"{number}: {case.expression}: {made}"
        assert AlgebraCase(normal_form(case.expression), case.rows).expected() == wanted, f"{number}: {case.expression}"
        answer, plain = (ouzel.match(case.table, one, time="time") for one in (made, case.expression))
        assert counted(answer.to_pylist()) == wanted and answer.schema == plain.schema, f"{number}: {made}"
        assert normal(made) == made
        for row in rows_of_operators(made):
            places = [ORDER.index(type(operator)) for operator in row]
            assert places == sorted(set(places)), f"{number}: {made}"
    assert changed > 12


def random_row(rng: random.Random) -> Stream:
    """Many unary operators upon each other, whose names get in each other's way as often as they can."""
    made, names = stream("A").project(["id", "x"]), {"id", "x"}
    for _ in range(rng.randint(1, 8)):
        one = rng.choice(sorted(names))
        kind = rng.choice(["select", "extend", "rename", "project"])
        if kind == "select":
            made = made.select(f"{one} + {rng.choice(sorted(names))} >= {rng.randint(0, 2)}")
        elif kind == "extend":
            new = rng.choice(["id", "x", "y", "z"])
            made, names = made.extend(**{new: f"{one} - {rng.choice(sorted(names))} + 1"}), names | {new}
        elif kind == "rename":
            free = sorted({"id", "x", "y", "z", "w"} - names)
            if free:
                new = rng.choice(free)
                made, names = made.rename({one: new}), names - {one} | {new}
        else:
            names = set(rng.sample(sorted(names), rng.randint(1, len(names))))
            made = made.project(sorted(names))
    return made


def test_names_that_get_in_each_others_way() -> None:
    rng = random.Random("names")
    for number in range(150):
        row = random_row(rng)
        case = random_case(rng, "algebra")
        made = normal(row)
        assert AlgebraCase(made, case.rows).expected() == AlgebraCase(row, case.rows).expected(), (
            f"{number}: {row}: {made}"
        )
        assert len(rows_of_operators(made)[0]) <= 4


A = stream("A")


@pytest.mark.parametrize(
    ("given", "made"),
    [
        (A.project(["x"]).select("x > 1").select("x < 5"), "A.select('x > 1 AND x < 5').project(['x'])"),
        (A.rename({"x": "y"}).select("y > 1"), "A.select('x > 1').rename({'x': 'y'})"),
        (A.rename({"x": "y", "id": "x"}).select("y > x"), "A.select('x > id').rename({'x': 'y', 'id': 'x'})"),
        (
            A.extend(n="x + 1").extend(m="2 * n").select("m > DUR"),
            "A.select('2 * (x + 1) > DUR').extend(n='x + 1', m='2 * (x + 1)')",
        ),
        (
            A.fold(A, None, step().extend(n="n.last + x").select("n > n.last"), first={"n": "0"}),
            "A.fold(A, step=step().select('n.last + x > n.last').extend(n='n.last + x'), first={'n': '0'})",
        ),
        # Without the columns of A nothing can say that no other x is left over.
        (
            A.extend(x="1").rename({"x": "y"}).rename({"id": "x"}),
            "A.extend(x='1').rename({'x': 'y'}).rename({'id': 'x'})",
        ),
    ],
)
def test_examples(given: Stream, made: str) -> None:
    assert repr(normal_form(given)) == made


def test_explain_shows_the_normal_form() -> None:
    text = ouzel.explain(A.rename({"x": "y"}).select("y > 1"))
    assert "rewritten" in text and "A.select('x > 1').rename({'x': 'y'})" in text
    assert "written so already" in ouzel.explain(A.select("x > 1"))
