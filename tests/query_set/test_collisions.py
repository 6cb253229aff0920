"""Rules of a set are told apart by what they say, not by their hashes."""

from __future__ import annotations

import random
from itertools import product
from typing import Any

import numpy as np
import pytest

import ouzel
from ouzel.algebra import Stream, stream
from ouzel.algebra.binding import AlgebraQuery
from ouzel.engines.automata import build as cayuga_build
from ouzel.engines.automata.columns import apart, mixed
from ouzel.query_set import merged as queryset_merged
from tests.generate.cases import counted
from tests.query_set.one_by_one import compare

A, B = stream("A"), stream("B")
EVENTS = [{"type": kind, "ts": at, "x": at % 3, "y": at % 2} for at in range(30) for kind in ("A", "B")]


def answers(queries: dict[Any, Any], *, late: dict[Any, Any] | None = None) -> dict[Any, list[dict[str, Any]]]:
    """What a set answers by query; `late` are added half-way."""
    held = ouzel.QuerySet(bounded=True)
    for id, given in queries.items():
        held.add(id, given)
    found: dict[Any, list[dict[str, Any]]] = {}
    for number, begin in enumerate(range(0, len(EVENTS), 10)):
        if number == 3:
            for id, given in (late or {}).items():
                held.add(id, given)
        _keep(held.push(EVENTS[begin : begin + 10]), found)
    _keep(held.finish(), found)
    return found


def _keep(given: dict[Any, Any], found: dict[Any, list[dict[str, Any]]]) -> None:
    for id, table in given.items():
        found.setdefault(id, []).extend(table.drop_columns(["query"]).to_pylist())


def alone(given: Any, *, after: int = -1) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ouzel.match([event for event in EVENTS if event["ts"] > after], given).to_pylist()
    return rows


@pytest.fixture(params=["all bits", "two bits", "no bits"])
def bits(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = {"all bits": 2**64 - 1, "two bits": 3, "no bits": 0}[request.param]
    monkeypatch.setattr(cayuga_build, "HASH_BITS", kept)


# The bounds of DUR beside which a rule was silent or leaked: none, 0, 1 and one that is passed.
BOUNDS = [None, "DUR <= 0", "DUR <= 1", "DUR >= 0", "DUR >= 1", "DUR <= 3", "DUR = 1"]


def bounded(theta: str | None, bound: str | None) -> str | None:
    return " AND ".join(part for part in (theta, bound) if part) or None


@pytest.mark.usefixtures("bits")
def test_expressions_that_differ_in_a_bound_of_dur_only() -> None:
    queries: dict[str, Stream] = {}
    for number, (theta, bound) in enumerate(product([None, "x = x.last", "y = 1"], BOUNDS)):
        queries[f"next {number}"] = A.next(B, bounded(theta, bound))
        queries[f"start {number}"] = A.select(bounded(theta if theta != "x = x.last" else None, bound) or "x = x")
        queries[f"after {number}"] = A.next(B, theta).select(bound or "x = x")
    found = answers(queries)
    for id, expression in queries.items():
        assert counted(found.get(id, ())) == counted(alone(expression)), id


@pytest.mark.usefixtures("bits")
def test_templates_that_differ_in_a_bound_of_dur_only() -> None:
    bounds = [0, 1, 2, 5, None]
    templates = {
        "bound": A.next(B, "x = x.last AND DUR <= :most"),
        "optional": A.next(B, "x = x.last AND (:most IS NULL OR DUR <= :most)"),
        "none": A.next(B, "x = x.last").extend(most=":most"),
    }
    held = ouzel.QuerySet(bounded=True)
    for name, template in templates.items():
        held.add_template(name, template, [{"id": f"{name} {most}", "most": most} for most in bounds])
    found: dict[str, list[dict[str, Any]]] = {}
    for tables in (held.push(EVENTS), held.finish()):
        for row in (row for table in tables.values() for row in table.to_pylist()):
            found.setdefault(row.pop("query"), []).append(row)
    for (name, template), most in product(templates.items(), bounds):
        one = AlgebraQuery("one", template, {"most": most})
        assert counted(found.get(f"{name} {most}", ())) == counted(alone(one)), (name, most)


@pytest.mark.usefixtures("bits")
def test_patterns_that_differ_in_condition_or_window() -> None:
    def pattern(within: int, where: str) -> str:
        return f"PATTERN SEQ(A a, B b) WHERE {where} WITHIN {within} RETURN R(a.x AS x, b.y AS y)"

    conditions = ["[x]", "[x] AND a.y < b.y", "a.x = 1", "a.x = 1 AND a.y <= b.y", "b.y = 1", "a.x < b.x"]
    early = {f"{w} {c}": pattern(w, c) for w, c in product([1, 2, 3], conditions)}
    late = {f"late {w} {c}": pattern(w, c) for w, c in product([1, 2, 9], conditions)}
    found = answers(early, late=late)
    for id, text in early.items():
        assert counted(found.get(id, ())) == counted(alone(text)), id
    # Pushes of ten events end at every fifth tick, whose events may still have company.
    for id, text in late.items():
        assert counted(found.get(id, ())) == counted(alone(text, after=13)), id


def test_keys_of_the_index_that_have_one_hash() -> None:
    """The index finds an edge of the start by a hash of two values, and here those of two different pairs are one."""
    held = ouzel.QuerySet(type=None)
    pairs = [(1, 2)]
    begin = mixed(apart(np.zeros(1, np.int64)), np.array([1 * 65536 + 2]))
    for first in range(2, 40):
        one, other = (mixed(begin, np.array([value])) for value in (1, first))
        pairs.append((first, int((one ^ other ^ np.uint64(2)).view(np.int64)[0])))
    pairs = [(first, second) for first, second in pairs if second >= 0]
    hashes = {int(mixed(mixed(begin, np.array([a])), np.array([b]))[0]) for a, b in pairs}
    assert len(hashes) == 1 and len(pairs) > 10
    # With two orders of the same tests, whichever lane comes first, half of the keys collide.
    for number, (first, second) in enumerate(pairs):
        held.add(number, stream().select(f"p = {first} AND q = {second}"))
    for number in range(40):
        held.add(f"other {number}", stream().select(f"p = {number} AND q = 0"))
    events = [{"ts": k, "p": first, "q": second} for k, (first, second) in enumerate(pairs)]
    found = held.push(events) | held.finish()
    assert {id: table["p"].to_pylist() for id, table in found.items() if isinstance(id, int)} == {
        number: [first] for number, (first, _) in enumerate(pairs)
    }


@pytest.mark.parametrize("kept", [0, 7])
def test_random_sets_with_few_bits_of_hashes(kept: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queryset_merged, "DELTA_MIN", 6)
    monkeypatch.setattr(cayuga_build, "HASH_BITS", kept)
    assert sum(compare(random.Random(f"few bits {kept} {number}"), 24, 60).answers for number in range(3)) > 30
