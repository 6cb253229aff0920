"""Random cases: a query with its events, what `ouzel.match` takes of them, and what the oracle answers."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa

import ouzel
from ouzel.algebra import Stream
from ouzel.loss import LossModel
from tests.generate.events import Types
from tests.oracle import algebra, incomplete, oracle
from tests.oracle.events import Event

COLUMNS = {"time": "time", "type": "type"}
SCHEMA = pa.schema(
    {
        "type": pa.string(),
        "time": pa.int64(),
        "n": pa.int64(),
        "id": pa.int64(),
        "x": pa.int64(),
        "y": pa.int64(),
        "f": pa.float64(),
        "s": pa.string(),
        "l": pa.list_(pa.int64()),
    }
)
INCOMPLETE_SCHEMA = pa.schema([SCHEMA.field(name) for name in ("type", "time", "n", "id", "x", "s")]).append(
    pa.field("reader", pa.string())
)
ALGEBRA_SCHEMA = pa.schema([SCHEMA.field(name) for name in ("type", "time", "id", "x", "f", "s")]).append(
    pa.field("begin", pa.int64())
)
# Scores come from tables, and the oracle integrates.
RELATIVE, ABSOLUTE = 1e-6, 1e-9
SAMPLED = 5e-3

Row = Mapping[str, Any]


def counted(rows: Iterable[Row]) -> Counter[str]:
    """Rows as a multiset; NaN is itself, the two zeros are one, absent and null attributes are alike in a struct. The
    graph of a compressed row is another matter."""
    return Counter(repr(_plain({name: row[name] for name in row if name != "graph"})) for row in rows)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _plain(part) for name, part in sorted(value.items()) if part is not None}
    if isinstance(value, list | tuple):
        return [_plain(part) for part in value]
    if isinstance(value, float):
        return "nan" if math.isnan(value) else 0.0 if value == 0 else value
    return value


def _difference(found: Counter[str], want: Counter[str]) -> str | None:
    if found == want:
        return None
    return f"expected, not found: {[*(want - found)]}; found, not expected: {[*(found - want)]}"


class RandomCase(NamedTuple):
    """`types` are the declared attributes of each event type, or None. The column `n` numbers the events. `order` are
    the columns that order events of one time, or "arrival"."""

    text: str
    events: list[Event]
    types: Types | None
    order: tuple[str, ...] | str = ()

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist([dict(event.attributes) for event in self.events], schema=SCHEMA)

    @property
    def query(self) -> ouzel.Query:
        typed = self.types and {name: {a: SCHEMA.field(a).type for a in own} for name, own in self.types.items()}
        return ouzel.query(self.text, typed)

    @property
    def options(self) -> dict[str, Any]:
        return {**COLUMNS, "order": self.order}

    @property
    def can_stream(self) -> bool:
        return "WITHIN" in self.text

    def expected(self) -> Counter[str]:
        ((_, results),) = oracle.answer(self.text, self.events, types=self.types, order=self.order).items()
        return counted(result.row for result in results)

    read = staticmethod(counted)
    difference = staticmethod(_difference)


def _without_times(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_times(part) for part in value]
    if isinstance(value, Mapping):
        return {name: part for name, part in value.items() if name not in ("start", "end")}
    return value


class LastingCase(NamedTuple):
    """A script of two queries. The second, named `query`, reads the matches of the first: events that last."""

    text: str
    events: list[Event]
    order: tuple[str, ...] | str = ()

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist([dict(event.attributes) for event in self.events], schema=SCHEMA)

    @property
    def query(self) -> dict[str, ouzel.Query]:
        return ouzel.queries(self.text)

    @property
    def options(self) -> dict[str, Any]:
        return {**COLUMNS, "order": self.order}

    @property
    def can_stream(self) -> bool:
        return self.text.count("WITHIN") == 2

    def expected(self) -> Counter[str]:
        return self.read(result.row for result in oracle.answer(self.text, self.events, order=self.order)["query"])

    @staticmethod
    def read(rows: Iterable[Row]) -> Counter[str]:
        """Without the start and end of the events of a match, which the engine does not show."""
        return counted({name: _without_times(value) for name, value in row.items()} for row in rows)

    difference = staticmethod(_difference)


Scores = dict[str, tuple[float, float | None]]


class IncompleteCase(NamedTuple):
    """A query with THRESHOLD: the same paths, with scores and probabilities alike."""

    text: str
    events: list[Event]
    model: LossModel

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist([dict(event.attributes) for event in self.events], schema=INCOMPLETE_SCHEMA)

    @property
    def query(self) -> str:
        return self.text

    @property
    def options(self) -> dict[str, Any]:
        return {**COLUMNS, "model": self.model}

    can_stream = True

    def expected(self) -> Scores:
        found = incomplete.answer(self.text, self.events, json.loads(self.model.to_json()))
        return self.read(one.row for one in found)

    @staticmethod
    def read(rows: Iterable[Row]) -> Scores:
        """Score and probability by everything else in the row."""
        found: Scores = {}
        for row in rows:
            key = repr({name: value for name, value in row.items() if name not in ("score", "probability")})
            while key in found:
                key += " again"
            found[key] = (row["score"], row["probability"])
        return found

    def difference(self, found: Scores, want: Scores) -> str | None:
        """What is wrong, in words. Paths at the threshold, within the error of the tables, may go either way."""
        threshold = float(self.text.split("THRESHOLD ")[1].split()[0])
        on_probability = "ON probability" in self.text
        # Negatives that were observed beside lost components are integrated by sums.
        absolute = SAMPLED if "!" in self.text else ABSOLUTE
        for key in found.keys() ^ want.keys():
            score, probability = found.get(key) or want[key]
            compared = probability if on_probability else score
            if compared is None or not _close(compared, threshold, absolute if on_probability else ABSOLUTE):
                kind = "found, not expected" if key in found else "expected, not found"
                return f"{kind}: {key} {score} {probability}"
        for key in found.keys() & want.keys():
            (score, probability), (right, likely) = found[key], want[key]
            if not (_close(score, right) and _close(probability, likely, absolute)):
                return f"{key}: found {found[key]}, expected {want[key]}"
        return None


def _close(one: float | None, other: float | None, absolute: float = ABSOLUTE) -> bool:
    if one is None or other is None:
        return one is other
    return math.isclose(one, other, rel_tol=RELATIVE, abs_tol=absolute)


@dataclass(frozen=True)
class AlgebraCase:
    expression: Stream
    rows: list[dict[str, Any]]

    @property
    def text(self) -> str:
        return repr(self.expression)

    @property
    def table(self) -> pa.Table:
        return pa.Table.from_pylist(self.rows, ALGEBRA_SCHEMA)

    @property
    def query(self) -> Stream:
        return self.expression

    @property
    def options(self) -> dict[str, Any]:
        return COLUMNS

    # Asked for by `bounded`, which only the generator knows.
    can_stream = False

    def expected(self) -> Counter[str]:
        found = algebra.answer(self.expression, algebra.World(self.rows))
        return counted({"start": e.start, "end": e.end, **{n: _settled(v) for n, v in e.values.items()}} for e in found)

    read = staticmethod(counted)
    difference = staticmethod(_difference)


def _settled(value: Any) -> Any:
    return float(value) if type(value).__name__ == "Point" else value


Case = RandomCase | LastingCase | IncompleteCase | AlgebraCase
