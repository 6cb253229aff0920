"""The edges of inputs and values: the ends of 64 bits, all digits of decimals, view types, batches of nothing."""

from __future__ import annotations

import decimal
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

import ouzel
from ouzel.plan.choose import all_rules
from ouzel.runtime.engine import match_without
from tests.oracle import oracle
from tests.oracle.events import Event

pytestmark = pytest.mark.compiled

INT64_MAX = 2**63 - 1
TEXTS = [
    {"type": "A", "ts": 1, "id": "x", "note": {"by": "me"}},
    {"type": "B", "ts": 2, "id": "x", "note": {"by": "you"}},
    {"type": "B", "ts": 3, "id": None, "note": None},
]
DECIMALS = pa.table(
    {
        "type": ["A", "A", "B", "B", "B"],
        "ts": [1, 2, 3, 4, 5],
        "d": pa.array([Decimal(v) for v in ("1.10", "9" * 16 + ".99", "1.10", "-" + "9" * 16 + ".99", "0.01")]).cast(
            pa.decimal128(18, 2)
        ),
        "e": pa.array([Decimal(v) for v in ("1.1", "0", "1.1", "99999.99999", "3")]).cast(pa.decimal128(10, 5)),
        "tiny": pa.array([Decimal("0.000000000000000003")] * 5, pa.decimal128(18, 18)),
        "i": [1, INT64_MAX, INT64_MAX, 1, 10**16],
    }
)


def in_oracle(table: pa.Table, text: str) -> list[Any]:
    events = [Event(row["type"], row["ts"], row["ts"], row) for row in table.to_pylist()]
    ((_, results),) = oracle.answer(text, events).items()
    return sorted([result.row for result in results], key=repr)


def in_engine(table: pa.Table, text: str) -> list[Any]:
    return sorted(ouzel.match(table, text).to_pylist(), key=repr)


def view_types(table: pa.Table) -> dict[str, pa.Table]:
    views = table.set_column(2, "id", table["id"].cast(pa.string_view()))
    inner = pa.struct({"by": pa.string_view()})
    coded = pa.DictionaryArray.from_arrays(pa.array([0, 0, None]), pa.array(["x"]).cast(pa.string_view()))
    runs = pc.run_end_encode(table["id"].combine_chunks())
    return {
        "view": views.set_column(0, "type", table["type"].cast(pa.string_view())),
        "view in a struct": table.set_column(3, "note", table["note"].cast(inner)),
        "view in a dictionary": table.set_column(2, "id", coded),
        "run ends": table.set_column(2, "id", runs),
    }


@pytest.mark.parametrize(
    "query",
    [
        "PATTERN SEQ(A a, B b) WHERE [id] WITHIN 10",
        "PATTERN SEQ(A a, B b) WHERE a.id = b.id AND a.note.by < b.note.by WITHIN 10 RETURN R(a.id AS id, b.note AS n)",
    ],
)
def test_text_in_every_form(query: str) -> None:
    import polars as pl

    table = pa.Table.from_pylist(TEXTS)
    wanted = ouzel.match(table, query).to_pylist()
    assert len(wanted) == 1
    frame = pl.DataFrame(TEXTS)
    codes = frame.with_columns(pl.col("type").cast(pl.Categorical), pl.col("id").cast(pl.Categorical))
    for name, events in {"polars": frame, "categories": codes, **view_types(table)}.items():
        assert ouzel.match(events, query).to_pylist() == wanted, name


@pytest.mark.parametrize(
    ("events", "words"),
    [
        ([], "the input has no columns"),
        ([{"type": "A", "ts": 1, 5: 2}], "the name of a column must be text, got 5"),
        ([{"type": ["A"], "ts": 1}], "the type column 'type' is of type list"),
        (pa.table([[1], [2], ["A"]], names=["ts", "ts", "type"]), "duplicate column 'ts' in the input; rename one"),
        ([{"type": "A", "ts": -INT64_MAX - 1}], "is the smallest number of 64 bits"),
    ],
)
def test_inputs_that_cannot_be_read(events: Any, words: str) -> None:
    with pytest.raises(ouzel.InputError, match=words):
        ouzel.match(events, "PATTERN SEQ(A a, B b) WITHIN 10")


def test_an_empty_batch_changes_nothing() -> None:
    engine = ouzel.Engine("PATTERN SEQ(A a, B b) WITHIN 10 RETURN R(b.ts AS b)")
    engine.push([{"type": "A", "ts": 1}])
    assert engine.push([])["query"].num_rows == 0
    assert engine.push([{"type": "B", "ts": 2}])["query"].num_rows == 0
    assert engine.finish()["query"].to_pylist() == [{"start": 1, "end": 2, "b": 2}]


def test_the_ends_of_time() -> None:
    first, last = -INT64_MAX, INT64_MAX
    events = [{"type": "A", "ts": first}, {"type": "B", "ts": first + 9}, {"type": "B", "ts": first + 10}]
    events += [{"type": "A", "ts": last - 3}, {"type": "B", "ts": last}]
    answer = ouzel.match(events, "PATTERN SEQ(A a, B b) WITHIN 10")
    assert sorted(answer["end"].to_pylist()) == [first + 9, last]
    assert ouzel.match(events, f"PATTERN SEQ(A a, B b) WITHIN {INT64_MAX - 1}").num_rows == 3
    with pytest.raises(ouzel.QueryError, match="the window does not fit into 64 bits"):
        ouzel.match(events, f"PATTERN SEQ(A a, B b) WITHIN {INT64_MAX}")


def test_a_window_of_one_tick_after_another() -> None:
    # Kernels that have run once take 64-bit numbers only, so the order of the two matters.
    events = [{"type": "A", "ts": 1, "x": 1}, {"type": "B", "ts": 2, "x": 1}, {"type": "A", "ts": INT64_MAX, "x": 1}]
    for strategy in ("strict_contiguity", "skip_till_next_match"):
        for window, matches in ((2, 1), (1, 0)):
            query = f"PATTERN SEQ(A a, B b) WHERE {strategy} {{ a.x <= b.x }} WITHIN {window}"
            assert ouzel.match(events[:2], query).num_rows == matches
            assert ouzel.match(events, query).num_rows == matches
    assert (
        ouzel.match(events, "PATTERN SEQ(A+ a[]) WHERE strict_contiguity { a[i].x > a[i-1].x } WITHIN 1").num_rows == 2
    )


def test_a_window_that_ends_outside_the_type_of_the_times() -> None:
    table = pa.table({"type": ["A"], "ts": pa.array([100], pa.int8())})
    with pytest.raises(ouzel.InputError, match="does not fit the time column's type int8"):
        ouzel.match(table, "PATTERN SEQ(A a, !(B b)) WITHIN 100")


def nanoseconds(times: pa.ChunkedArray) -> list[int]:
    return times.cast(pa.timestamp("ns", "UTC")).cast(pa.int64()).to_pylist()


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_the_end_of_a_window_is_exact_in_every_unit(unit: str) -> None:
    at = pa.array([1, 3], pa.timestamp("s", "UTC")).cast(pa.timestamp(unit, "UTC"))
    table = pa.table({"type": ["A", "B"], "ts": at})
    script = """one: PATTERN SEQ(A a, !(C c)) WITHIN 1500 ms RETURN D(a.ts AS at) INTO s;
    many: PATTERN SEQ(A+ a[], !(C c)) WITHIN 1500 ms;
    composed: PATTERN D d FROM s WITHIN 9 s;"""
    for name, answer in ouzel.match(table, ouzel.queries(script)).items():
        assert nanoseconds(answer["end"]) == [2_500_000_000 - (1 if unit == "ns" else 1000)], name
    on_change = "PATTERN SEQ(A a, B b) AGG COUNT WITHIN 2500 ms EMIT ON CHANGE"
    assert nanoseconds(ouzel.match(table, on_change)["end"]) == [3_000_000_000, 3_500_000_000]


@pytest.mark.parametrize("column", ["tags", "clock", "place", "large"])
def test_what_is_never_compared_is_tested_for_null(column: str) -> None:
    table = pa.table(
        {
            "type": ["A", "A"],
            "ts": [1, 2],
            "tags": [["x"], None],
            "clock": pa.array([1, None], pa.time64("us")),
            "place": [{"x": 1}, None],
            "large": pa.array([Decimal(10**30), None], pa.decimal128(38, 0)),
        }
    )
    for rules_off in ((), ("predicates_into_roles",)):
        answer = match_without(rules_off, table, f"PATTERN A a WHERE a.{column} IS NULL RETURN R(a.ts AS t)")
        assert answer["t"].to_pylist() == [2]


# "Decimals up to 18 digits (exact)"; "overflow inside an expression gives null".
@pytest.mark.parametrize(
    "condition",
    [
        "a.d + b.d > 0",
        "a.d - b.d > 0",
        "a.d + b.d IS NULL",
        "a.d * b.d IS NULL",
        "(a.d + b.d) * 1 > 0",
        "a.d + b.i > 0",
        "a.d + b.e > a.e",
        "a.i * b.e > 0",
        "a.d / b.e > 100000000009.99999",
        "a.d / b.e = 1",
        "a.tiny % b.tiny = 0",
        "a.e % b.e > 0",
    ],
)
@pytest.mark.parametrize("precision", [28, 5])
def test_all_digits_of_decimals(condition: str, precision: int) -> None:
    text = f"PATTERN SEQ(A a, B b) WHERE {condition} WITHIN 10 RETURN R(a.ts AS a, b.ts AS b)"
    wanted = in_oracle(DECIMALS, text)
    with decimal.localcontext() as users_own:
        users_own.prec = precision
        assert in_engine(DECIMALS, text) == wanted


@pytest.mark.parametrize("off", [(), tuple(rule.name for rule in all_rules())], ids=["rules on", "rules off"])
@pytest.mark.parametrize(
    "condition",
    [
        "a.d > b.e",
        "a.d != b.e",
        "a.d = b.e",
        "NOT (a.d = b.e)",
        "b.d < a.e",
        "a.i > b.tiny",
        "a.d < b.i",
        "a.d IN (b.e, b.i, 9999999999999999.99)",
        "b.d BETWEEN -99999999999999999 AND a.e",
        "a.d > 0.00000001",
        "a.e < 99999999999999.5",
        "a.d > a.e",
        "a.d - b.d < b.e",
        "(a.d < b.e) IS NULL",
    ],
)
def test_decimals_of_every_scale_are_compared_exactly(condition: str, off: tuple[str, ...]) -> None:
    text = f"PATTERN SEQ(A a, B b) WHERE {condition} WITHIN 10 RETURN R(a.ts AS a, b.ts AS b)"
    answer = sorted(match_without(off, DECIMALS, text).to_pylist(), key=repr)
    assert answer == in_oracle(DECIMALS, text)


def test_conditions_that_name_no_event_hold_with_every_rule_off() -> None:
    rows = [{"type": "A", "ts": 1}, {"type": "N", "ts": 2, "x": 1}, {"type": "B", "ts": 3}]
    for mode, matches in (("all", 0), ("some", 1)):
        text = "PATTERN SEQ(A a, !(N n), B b) WHERE (:mode = 'all' OR n.x > 3) WITHIN 10"
        query = ouzel.query(text, params={"mode": mode})
        for off in ((), tuple(rule.name for rule in all_rules())):
            assert match_without(off, rows, query).num_rows == matches


def test_decimals_that_are_returned() -> None:
    text = """PATTERN SEQ(A a, B b) WITHIN 10
    RETURN R(a.d + b.d AS s, a.d - b.e AS m, a.d * b.e AS p, a.d / b.e AS q, a.e % b.e AS r, round(a.d, 1) AS o)"""
    with decimal.localcontext() as users_own:
        users_own.prec = 5
        answer = in_engine(DECIMALS, text)
    assert answer == in_oracle(DECIMALS, text)


def test_types_of_the_input_and_of_results_stay_apart() -> None:
    """Attributes of one could not be told from those of the other."""
    script = """one: PATTERN SEQ(A a, B b) WITHIN 5 RETURN A(a.x AS x) INTO s;
    two: PATTERN SEQ(A a, A b) FROM s, input WITHIN 9"""
    events = [{"type": "A", "ts": 1, "x": 5}, {"type": "B", "ts": 2, "x": 6}, {"type": "A", "ts": 3, "x": 7}]
    with pytest.raises(ouzel.InputError, match="the input has events of type 'A', and so has another stream"):
        ouzel.match(events, ouzel.queries(script))
    assert ouzel.match(events, ouzel.queries(script.replace("FROM s, input", "FROM s")))["two"].num_rows == 0


def test_a_condition_of_thousands_of_alternatives() -> None:
    """Each is a value of its own that events carry: looking them up must not take the square of their number."""
    anything = " OR ".join(f"a.x = b.x + {number}" for number in range(5000))
    events = [{"type": "A", "ts": 1, "x": 4000}, {"type": "B", "ts": 2, "x": 1}]
    assert ouzel.match(events, f"PATTERN SEQ(A a, B b) WHERE {anything} WITHIN 9").num_rows == 1


@pytest.mark.parametrize("condition", ["sqrt(a.x + n.x) > 1", "concat(a.s, n.s) = 'uv'"])
def test_functions_over_a_negative_event_and_others_are_refused(condition: str) -> None:
    events = [{"type": "A", "ts": 1, "x": 1, "s": "u"}, {"type": "B", "ts": 2, "x": 1, "s": "v"}]
    with pytest.raises(ouzel.QueryError, match="component 'n' applies a function to values of several events"):
        ouzel.match(events, f"PATTERN SEQ(A a, !(C n), B b) WHERE {condition} WITHIN 9")


@pytest.mark.parametrize("condition", ["[x]", "a.x = b.x", "a.x <= b.x AND a.x >= b.x"])
@pytest.mark.parametrize(
    ("left", "right"),
    [
        (pa.array([1], pa.timestamp("s")), pa.array([10**9], pa.timestamp("ns"))),
        (pa.array([1], pa.date32()), pa.array([86_400], pa.timestamp("s"))),
        (pa.array([2]), pa.array([Decimal("2.00")])),
        (pa.array([Decimal("1.5")]), pa.array([Decimal("1.5000")])),
        (pa.array([2], pa.int8()), pa.array([2.0])),
        (pa.array([Decimal("1.5")], pa.decimal256(9, 2)), pa.array([Decimal("1.5")], pa.decimal256(9, 2))),
    ],
)
def test_values_of_different_types_are_equal_where_they_mean_the_same(
    left: pa.Array, right: pa.Array, condition: str
) -> None:
    query = f"PATTERN SEQ(A a, B b) WHERE {condition} WITHIN 10"
    for off in ((), tuple(rule.name for rule in all_rules())):
        inputs = {"A": pa.table({"ts": [1], "x": left}), "B": pa.table({"ts": [2], "x": right})}
        assert match_without(off, inputs, query).num_rows == 1


def test_a_snapshot_is_bytes() -> None:
    with pytest.raises(ouzel.StateError, match="a snapshot must be bytes, got a str"):
        ouzel.Engine.restore("snapshot")  # type: ignore[arg-type]
