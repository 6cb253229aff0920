"""The contract's sentences about queries (sections 1, 2, 3 and 6), each with what binding makes of it.

The table at the end pairs the sentences that refuse something with a query that is refused. What is refused by the
parser is tested there.
"""

from __future__ import annotations

import pytest

from ouzel.bind import Catalog, catalog_for, output_attributes
from ouzel.bind.model import (
    FLOAT,
    INT,
    STRING,
    UNKNOWN,
    Aggregation,
    At,
    Attribute,
    CompoundComparison,
    Edge,
    EventField,
    EventWindow,
    Intrinsic,
    Kind,
    Length,
    Operation,
    Scope,
    TimeDomain,
    TimeWindow,
    parts,
)
from ouzel.errors import QueryError
from ouzel.lang.syntax import OutputForm, Strategy
from tests.bind.shop import MICROSECONDS, OPEN, SHOP, bound, bound_script, condition, value

AB = "PATTERN SEQ(Shelf a, Exit b) "
KLEENE = "PATTERN SEQ(Shelf+ a[], Exit b) "


def placed(text: str, catalog: Catalog = SHOP) -> list[tuple[int, Edge]]:
    return [(conjunct.tested_at, conjunct.edge) for conjunct in bound(text, catalog).conjuncts]


# ── 1 Events, time, order ──────────────────────────────────────────────────────────────────────────


def test_own_time_and_type_unless_there_is_an_attribute_of_that_name() -> None:
    assert value("a.time") == Intrinsic(0, EventField.END, type=MICROSECONDS.type)
    assert value("a.start") == Intrinsic(0, EventField.START, type=MICROSECONDS.type)
    assert value("a.type") == Intrinsic(0, EventField.TYPE, type=STRING)
    (column,) = bound("PATTERN Alarm a RETURN a.type").returns or ()
    assert column.expression == Attribute(0, ("type",), type=STRING)
    (column,) = bound("PATTERN Alarm a RETURN P(type(a) AS own)").returns or ()
    assert column.expression == Intrinsic(0, EventField.TYPE, type=STRING)
    assert isinstance(value("a.type", OPEN), Intrinsic)


def test_attributes_that_some_types_lack() -> None:
    (conjunct,) = bound("PATTERN SEQ(ANY(Shelf, Register) v, Exit b) WHERE v.weight > 3").conjuncts
    attribute = next(part for part in parts(conjunct.comparisons[0]) if isinstance(part, Attribute))
    assert attribute.present_in == {"Shelf"}
    (conjunct,) = bound("PATTERN SEQ(ANY(Shelf, Register) v, Exit b) WHERE v.n > 3").conjuncts
    attribute = next(part for part in parts(conjunct.comparisons[0]) if isinstance(part, Attribute))
    assert attribute.present_in is None


def test_with_none_declared_every_type_has_every_column() -> None:
    catalog = catalog_for(schema={"n": "int", "ts": "timestamp[us]"}, time="ts")
    assert bound("PATTERN SEQ(Foo a, Bar b) WHERE a.n = b.n AND b.ts > a.ts", catalog).conjuncts
    assert catalog.time == MICROSECONDS


def test_an_open_catalog_knows_no_types_but_checks_the_structure() -> None:
    query = bound(
        AB + "WHERE a.x = b.y AND a.z > 'q' AND lower(a.z) = 'x' WITHIN 5 s RETURN b.time - a.time AS took", OPEN
    )
    assert {part.type for c in query.conjuncts for part in parts(c.comparisons[0]) if isinstance(part, Attribute)} == {
        UNKNOWN
    }
    assert query.window == TimeWindow(None)
    with pytest.raises(QueryError, match="there is no variable 'c'"):
        bound(AB + "WHERE c.x = 1", OPEN)


# ── 2 Patterns and names ───────────────────────────────────────────────────────────────────────────


def test_components_and_their_names() -> None:
    def names(text: str) -> list[str]:
        return [component.variable for component in bound(text).components]

    assert names("PATTERN SEQ(Shelf, Exit)") == ["Shelf", "Exit"]
    assert names("PATTERN SEQ(Shelf, Shelf, Exit)") == ["Shelf_1", "Shelf_2", "Exit"]
    assert names("PATTERN SEQ(Shelf, Shelf Shelf_1, Shelf)") == ["Shelf_2", "Shelf_1", "Shelf_3"]
    assert names("PATTERN SEQ(ANY(Shelf, Exit), Exit b)") == ["Shelf_or_Exit_1", "b"]
    assert [c.types for c in bound("SEQUENCE (x, !y, z) WITHIN 5").components] == [None, None, None]
    assert names("PATTERN SEQ(Shelf, Shelf b) WHERE Shelf.n = b.n") == ["Shelf", "b"]


def test_bare_names_in_a_pattern_of_one_component() -> None:
    for text in ("PATTERN Shelf WHERE n > 3", "PATTERN SEQ(Shelf s) WHERE n > 3 AND address.city = 'x' AND s.n > 2"):
        assert all(conjunct.single_event for conjunct in bound(text).conjuncts)
    assert placed("PATTERN Shelf+ s[] WHERE n > 3") == [(0, Edge.BEGIN), (0, Edge.TAKE)]
    assert bound("PATTERN Shelf WHERE a.b.c > 3", OPEN).conjuncts


def test_where_without_a_strategy_means_any_match() -> None:
    assert bound(AB).strategy is Strategy.SKIP_TILL_ANY_MATCH
    assert bound(AB + "WHERE strict_contiguity(a, b) {}").strategy is Strategy.STRICT_CONTIGUITY
    assert bound("PATTERN SEQ(Shelf, Shelf) WHERE strict_contiguity(Shelf, Shelf) {}").components
    assert bound("PATTERN SEQ(Shelf a, !(Exit c), Exit b) WHERE strict_contiguity(a, b) {}").components


def test_equivalence_tests() -> None:
    tag, number = bound(AB + "WHERE [tag, n] AND [tag]").equivalences
    assert (tag.path, tag.type, tag.value, number.path) == (("tag",), STRING, None, ("n",))
    (fixed,) = bound(AB + "WHERE [tag] AND [tag = 'x']").equivalences
    assert fixed.value is not None and fixed.value.value == "x"
    (number,) = bound(AB + "WHERE [n = -3]").equivalences
    assert number.value is not None and (number.value.value, number.type) == (-3, INT)
    (city,) = bound("PATTERN Shelf WHERE [address.city]").equivalences
    assert city.path == ("address", "city")
    (lacked,) = bound("PATTERN SEQ(ANY(Shelf, Alarm) v, !(Alarm c), Exit b) WHERE [tag]").equivalences
    assert lacked.lacked_by == {0: {"Alarm"}, 1: {"Alarm"}}
    assert bound(AB + "WHERE [tag]", OPEN).equivalences[0].type == UNKNOWN


# ── 2 Kleene ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("text", "where"),
    [
        ("a[1].n = 1", [(0, Edge.BEGIN)]),
        ("a[i].n = 1", [(0, Edge.TAKE)]),
        ("a[i-1].n = 1", [(0, Edge.TAKE)]),
        ("a[1].n < a[i].n", [(0, Edge.TAKE)]),
        ("avg(a[..i-1].n) < a[i].n", [(0, Edge.TAKE)]),
        ("count(a[..i-1]) < 5", [(0, Edge.TAKE)]),
        ("a[a.LEN].n = 1", [(0, Edge.PROCEED)]),
        ("a[LEN].n = 1", [(0, Edge.PROCEED)]),
        ("a.len > 3", [(0, Edge.PROCEED)]),
        ("sum(a[].n) > a[1].n", [(0, Edge.PROCEED)]),
        ("sum(a[].n) > a[i].n", [(0, Edge.PROCEED)]),
        ("b.n > a[i].n", [(1, Edge.BEGIN)]),
        ("b.n > a.LEN", [(1, Edge.BEGIN)]),
        ("a.n = 1", [(0, Edge.BEGIN), (0, Edge.TAKE)]),
        ("a.n = b.n", [(1, Edge.BEGIN), (1, Edge.BEGIN)]),
        ("NOT (a.n = 1 OR b.n = 2)", [(0, Edge.BEGIN), (0, Edge.TAKE), (1, Edge.BEGIN)]),
        ("a.n = 1 OR a.n = 2", [(0, Edge.BEGIN), (0, Edge.TAKE)]),
        ("1 = 1", [(0, Edge.BEGIN)]),
    ],
)
def test_a_conjunct_is_tested_at_its_last_identifier(text: str, where: list[tuple[int, Edge]]) -> None:
    assert placed(KLEENE + "WHERE " + text) == where


def test_unindexed_means_the_first_and_each_later_one() -> None:
    first, later = bound(KLEENE + "WHERE NOT (a.n = 3 AND a.weight > a[1].weight)").conjuncts
    ats = [
        [part.at for c in conjunct.comparisons for part in parts(c) if isinstance(part, Attribute)]
        for conjunct in (first, later)
    ]
    assert ats == [[At.FIRST, At.FIRST, At.FIRST], [At.CURRENT, At.CURRENT, At.FIRST]]


def test_references_into_a_kleene_component() -> None:
    columns = bound(
        KLEENE + "RETURN P(a[1].n AS x, a.n AS ns, a[].n AS again, a.LEN, count(a[]) AS c, max(a[].time) AS t)"
    ).returns
    assert columns is not None
    first, every, again, length, count, latest = [column.expression for column in columns]
    assert isinstance(first, Attribute) and first.at is At.FIRST
    assert isinstance(every, Attribute) and every.at is At.EVERY and every == again
    assert length == Length(0, type=INT) and columns[3].name == "len"
    assert count == Aggregation("count", 0, Scope.ALL, None, type=INT)
    assert isinstance(latest, Aggregation) and latest.type == MICROSECONDS.type
    assert isinstance(latest.operand, Intrinsic) and latest.operand.at is At.CURRENT


def test_types_of_running_aggregates() -> None:
    def kind(text: str) -> str:
        (column,) = bound(KLEENE + f"RETURN P({text} AS x)").returns or ()
        return str(column.expression.type)

    assert kind("sum(a[].n)") == "integer" and kind("sum(a[].weight)") == "double"
    assert kind("sum(a[].price)") == "decimal(18,2)" and kind("avg(a[].price)") == "double"
    assert (
        kind("min(a[].tag)") == "string" and kind("first(a[].ok)") == "boolean" and kind("count(a[].ok)") == "integer"
    )
    assert kind("sum(a[].n * a[].weight)") == "double"


# ── 2 Windows, conjunctive form, negation ──────────────────────────────────────────────────────────


def test_windows() -> None:
    assert bound(AB + "WITHIN 12 hours").window == TimeWindow(12 * 3_600 * 10**6)
    assert bound(AB + "WITHIN 7").window == TimeWindow(7)
    assert bound(AB + "WITHIN 5 EVENTS").window == EventWindow(5)
    seconds = Catalog(time=TimeDomain(INT, 10**9))
    assert bound(AB + "WITHIN 2 min", seconds).window == TimeWindow(120)
    assert bound(AB).window is None


def test_one_conjunct_for_each_set_of_events() -> None:
    query = bound(AB + "WHERE (a.n = 1 AND b.n = 2) OR NOT (a.n < 3 OR b.tag IN ('x')) OR a.n = 1")
    assert [[_shown(c) for c in conjunct.comparisons] for conjunct in query.conjuncts] == [
        ["0.n = 1", "0.n >= 3"],
        ["(0.n = 1 and 1.n = 2)", "(0.n >= 3 and not in)", "0.n = 1"],
    ]
    query = bound(AB + "WHERE (a.tag = b.tag AND a.n = 1) OR (a.n = 2 AND a.tag = b.tag)")
    assert [conjunct.components for conjunct in query.conjuncts] == [{0, 1}, {0}, {0, 1}]
    assert len(query.conjuncts[0].comparisons) == 1, "what all alternatives demand may become a key"
    assert len(bound(AB + "WHERE a.n = 1 AND a.n = 1 AND (a.n = 1 OR a.n = 1)").conjuncts) == 1
    assert len(bound(AB + "WHERE a.n = b.n = a.n").conjuncts) == 2


def _shown(comparison: object) -> str:
    assert isinstance(comparison, Operation)
    if comparison.operator in ("and", "or"):
        return f"({f' {comparison.operator} '.join(_shown(operand) for operand in comparison.operands)})"
    if comparison.operator == "not":
        assert isinstance(comparison.operands[0], Operation)
        return f"not {comparison.operands[0].operator}"
    left, right = comparison.operands
    assert isinstance(left, Attribute)
    return f"{left.component}.{left.path[0]} {comparison.operator} {getattr(right, 'value', right)}"


def test_between_is_one_comparison() -> None:
    (conjunct,) = bound(AB + "WHERE a.n BETWEEN 1 AND b.n").conjuncts
    (inside,) = conjunct.comparisons
    assert isinstance(inside, CompoundComparison) and inside.operator == "and"
    outside = condition("NOT (a.n BETWEEN 1 AND b.n)")
    assert isinstance(outside, CompoundComparison) and outside.operator == "or"
    assert outside == condition("a.n NOT BETWEEN 1 AND b.n")
    assert [o.operator for o in outside.operands if isinstance(o, Operation)] == ["<", ">"]


def test_conjuncts_with_a_negative_component() -> None:
    (conjunct,) = bound("PATTERN SEQ(Shelf a, !(Exit c), Exit b) WHERE c.n > a.n").conjuncts
    assert (conjunct.negative, conjunct.tested_at, conjunct.components) == (1, 1, {0, 1})
    assert not conjunct.single_event


def test_what_one_event_decides_alone() -> None:
    def single(text: str) -> list[bool]:
        return [conjunct.single_event for conjunct in bound(KLEENE + "WHERE " + text).conjuncts]

    assert single("a[i].n > 3") == [True] and single("a[i].n + a[i].weight > 3") == [True]
    assert single("a[1].n > a[i].n") == [False] and single("a[i].n > a[i-1].n") == [False]
    assert single("a.LEN > 3") == [False] and single("b.n > a[1].n") == [False] and single("1 = 1") == [False]


# ── 2 Output ───────────────────────────────────────────────────────────────────────────────────────


def test_names_of_columns() -> None:
    columns = "a.tag AS x, a.n, a.address.city, b.time - a.time, lower(a.tag), a.n * 2 + 1, CASE WHEN a.ok THEN 1 END"
    query = bound(AB + f"RETURN Theft({columns})")
    assert [column.name for column in query.returns or ()] == [
        "x",
        "n",
        "city",
        "b_time_minus_a_time",
        "lower_a_tag",
        "a_n_times_2_plus_1",
        "column_7",
    ]
    assert query.result_type == "Theft"
    assert bound(AB + "INTO thefts").result_type == "thefts"
    assert bound(AB, name="q7").result_type == "q7"
    assert bound("PATTERN SEQ(Shelf start, Exit b) RETURN start.n").returns


def test_forms_of_output() -> None:
    output = bound(KLEENE + "OUTPUT SKIP TO LAST a").output
    assert (output.form, output.component) == (OutputForm.SKIP_TO_LAST, 0)
    assert bound(AB).output.form is OutputForm.ALL


# ── 3 Aggregates over matches ──────────────────────────────────────────────────────────────────────


def test_names_and_types_of_aggregates() -> None:
    query = bound(
        AB
        + "GROUP BY tag, a.n AS level WITHIN 10 s "
        + "AGG COUNT, SUM(b.n), AVG(a.weight), MIN(a.price) AS low, COUNT AS DECIMAL AS many"
    )
    assert [(c.name, str(c.type)) for c in query.aggregates] == [
        ("count", "integer"),
        ("sum_b_n", "integer"),
        ("avg_a_weight", "double"),
        ("low", "decimal(10,2)"),
        ("many", "decimal(38,0)"),
    ]
    tag, level = query.group_by
    assert (tag.name, tag.path, tag.expression) == ("tag", ("tag",), None)
    assert (level.name, level.path) == ("level", None) and isinstance(level.expression, Attribute)
    assert [test.path for test in query.equivalences] == [("tag",)]


def test_having_by_name_and_by_call() -> None:
    query = bound(
        AB
        + "GROUP BY tag AGG COUNT AS n, SUM(b.n) "
        + "HAVING COUNT > 100 AND n > 3 AND sum_b_n > 5 AND SUM(b.n) > 5 AND max(a.n) > 1 AND tag = 'x'"
    )
    assert [(column.name, column.hidden) for column in query.aggregates] == [
        ("n", False),
        ("sum_b_n", False),
        ("max_a_n", True),
    ]
    assert list(output_attributes(query)) == ["tag", "n", "sum_b_n"]
    assert bound("PATTERN SEQ(Shelf+ a[], Exit b) AGG SUM(a.n), SUM(a[1].weight)").aggregates[0].argument == Attribute(
        0, ("n",), At.EVERY, type=INT
    )


# ── 6 Incomplete streams ───────────────────────────────────────────────────────────────────────────

AYAC = (
    "SEQUENCE (x, !y, z) WHERE x.reader = 'shelf' AND y.reader = 'counter' AND z.reader = 'exit' "
    "AND x.id[z.id] = z.id AND y.id = z.id WITHIN 12 hours THRESHOLD 0.01"
)


def test_the_query_of_the_paper() -> None:
    query = bound(AYAC, OPEN)
    assert query.threshold is not None and (query.threshold.value, query.threshold.on_probability) == (0.01, False)
    assert query.defaults == {Attribute(0, ("id",), type=UNKNOWN): Attribute(2, ("id",), type=UNKNOWN)}
    assert {"score", "probability"} <= output_attributes(query).keys()
    assert output_attributes(query)["score"] == FLOAT
    assert bound(AYAC + " ON probability OUTPUT BEST", OPEN).threshold is not None
    assert bound(AYAC.replace("0.01", "1%"), OPEN).threshold == query.threshold


def test_defaults_may_chain_but_not_in_a_circle() -> None:
    chain = (
        AB.replace("Shelf a", "Shelf a, Shelf c")
        + "WHERE a.tag[c.tag] = b.tag AND c.tag[b.tag] = b.tag WITHIN 5 THRESHOLD 0.1"
    )
    assert len(bound(chain).defaults) == 2
    with pytest.raises(QueryError, match="the default cannot depend on itself"):
        bound(chain.replace("c.tag[b.tag]", "c.tag[a.tag]"))
    with pytest.raises(QueryError, match="'c' may be missing"):
        bound(chain.replace("AND c.tag[b.tag] = b.tag", ""))


# ── Sentences that refuse ──────────────────────────────────────────────────────────────────────────

REFUSED = {
    "a duration with a unit is then refused unless time_unit= is given": AB + "WITHIN 5 s",
    "lists and maps are carried to the output, not compared": AB + "WHERE a.tags = b.n",
    "What cannot be compared between events is refused": AB + "WHERE a.address = b.n",
    "decimals up to 18 digits": AB + "WHERE a.huge > 1",
    "After PATTERN a lone name is its own variable if it occurs once": "PATTERN SEQ(Shelf, Shelf) WHERE Shelf.n = 1",
    "A pattern of one component may use bare attribute names": AB + "WHERE n > 3",
    "partition_contiguity is refused if a positive component's type lacks an [attr]": (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE partition_contiguity(a, b) { [tag] }"
    ),
    "WITHIN n EVENTS is refused if a positive component's type lacks an [attr]": (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE [tag] WITHIN 5 EVENTS"
    ),
    "GROUP BY attr is refused if a positive component's type lacks an [attr]": (
        "PATTERN SEQ(Shelf a, Alarm b) GROUP BY tag AGG COUNT"
    ),
    "every OUTPUT form but ALL is refused if a positive component's type lacks an [attr]": (
        "PATTERN SEQ(Shelf a, Alarm b) WHERE [tag] OUTPUT NON_OVERLAPPING"
    ),
    "A conjunct may index only one variable by i": "PATTERN SEQ(Shelf+ a[], Exit+ b[]) WHERE a[i].n = b[i].n",
    "mixing v.attr with v[i] is refused": KLEENE + "WHERE a.n = a[i].n",
    "two unindexed Kleene variables are refused": "PATTERN SEQ(Shelf+ a[], Exit+ b[]) WHERE a.n = b.n",
    "In RETURN v[i] is refused": KLEENE + "RETURN a[i].n",
    "a conjunct that names two negative components is refused": (
        "PATTERN SEQ(Shelf a, !(Exit c), !(Exit d), Exit b) WHERE c.n = d.n"
    ),
    "First needs WITHIN in time": "PATTERN SEQ(!(Shelf a), Exit b)",
    "Last needs WITHIN in time": "PATTERN SEQ(Shelf a, !(Exit b)) WITHIN 5 EVENTS",
    "Names that collide are refused with a hint": AB + "RETURN a.n, b.n",
    "WITHIN n EVENTS with AGG is refused": AB + "AGG COUNT WITHIN 5 EVENTS",
    "GROUP BY an unindexed Kleene attribute is refused": KLEENE + "GROUP BY a.n AGG COUNT",
    "any other predicate on it needs a default": AB + "WHERE a.tag = b.tag WITHIN 5 THRESHOLD 0.1",
    "which may not lead back to itself": AB + "WHERE a.tag[a.tag] = b.tag WITHIN 5 THRESHOLD 0.1",
    "each disjunct gives every component a predicate of its own (or a type)": (
        "SEQUENCE (x, z) WHERE z.code = 'e' WITHIN 5 THRESHOLD 0.1"
    ),
    "Selection is any match": AB + "WHERE skip_till_next_match(a, b) {} WITHIN 5 THRESHOLD 0.1",
    "No window": "PATTERN SEQ(Shelf a, !(Exit b)) THRESHOLD 0.1",
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_sentences_that_refuse(sentence: str) -> None:
    catalog = catalog_for(schema={"ts": "int"}, time="ts") if "time_unit" in sentence else SHOP
    with pytest.raises(QueryError):
        bound(REFUSED[sentence], catalog)


def test_sentences_about_streams_and_scripts_that_refuse() -> None:
    """A query without WITHIN is refused on streams (aggregates aside); queries compose without cycles."""
    with pytest.raises(QueryError):
        bound(AB, streaming=True)
    assert bound(AB + "AGG COUNT", streaming=True).window is None
    with pytest.raises(QueryError):
        bound_script("one: PATTERN s FROM s INTO s;")


def test_typed_by_the_input_whatever_its_kind() -> None:
    """Types: integers, floats, decimals, booleans, strings, binary, dates, timestamps; each compares with its like."""
    for name in ("n", "weight", "price", "ok", "tag", "raw", "day", "at", "exact_at", "zoned_at", "address.zip"):
        assert condition(f"a.{name} = a.{name}").type.kind is Kind.BOOL
