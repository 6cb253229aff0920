"""The text format of golden cases: one file per idea, several cases a file, readable without knowing Python.

    === equal to the window does not match
    query
      PATTERN SEQ(A a, B b) WITHIN 10
    events
      event  type  time  x:double
      a1     A     1     2.5
      b11    B     11    -          # - is null
    matches
      (none)

A line `=== name` opens a case; a block is a keyword at the margin with its body indented by two spaces; a `#` line at
the margin is a comment. Blocks:

    query | script          the text: one query, MATCH_RECOGNIZE (…) or STREAM …, or several named queries
    types                   declared event types, one a line: `Shelf: tag_id string, weight double`
    params                  values of :parameters, `limit: 5`, `pause: 1.5s`
    options                 `time: ts`, `type: kind`, `order: seq` or `arrival`, `time_unit: s`, `model: {"loss": 0.1}`
    events [of Type]        a table; `x:type` in the header types a column, else integers and strings are told apart
    matches [of query]      one a line, by the events' labels: `a=a1 b=[b2 b3]`, if need be with `start=1 end=9` on each
    rows [of query]         a table of output columns; `start` and `end` are compared only where they stand in it
    error                   the whole text of the QueryError
    explain [of query]      `engine sequence`, `kernel stacks`, and `rules` with the names of those that acted

An answer of `?` waits to be filled in by `python -m tests.golden.fill`. A file read and written is the same file.
"""

from __future__ import annotations

import datetime
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import Any

import pyarrow as pa

from ouzel.lang.parser import is_row_pattern, is_stream

FOLDER = Path(__file__).parent

QUESTIONS = ("query", "script", "types", "params", "options", "events")
ANSWERS = ("matches", "rows", "error")
EXPLAIN = "explain"
OPTIONS = ("time", "type", "order", "time_unit", "model")
NONE = "(none)"


class CaseError(ValueError):
    """A case file is not in the format; the message says where."""


# ── Files, cases, blocks ───────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Block:
    """A keyword line and its body as written, indentation included; trailing comments and blank lines belong to it."""

    keyword: str
    of: str | None
    lines: tuple[str, ...]
    line_number: int

    @cached_property
    def body(self) -> tuple[str, ...]:
        """The body without its indentation, margin comments and blank lines at the end."""
        body = [line[2:] for line in self.lines if line.startswith("  ") or not line.strip()]
        while body and not body[-1].strip():
            body.pop()
        return tuple(body)

    @property
    def unanswered(self) -> bool:
        return self.body == ("?",)

    def with_body(self, body: Sequence[str]) -> Block:
        """The same block with another body; what followed the old body (blank lines, comments) stays."""
        tail = len(self.lines)
        while tail and not self.lines[tail - 1].startswith("  "):
            tail -= 1
        return replace(self, lines=tuple(f"  {line}" if line else "" for line in body) + self.lines[tail:])

    def write(self) -> Iterator[str]:
        yield self.keyword if self.of is None else f"{self.keyword} of {self.of}"
        yield from self.lines


@dataclass(frozen=True)
class Case:
    """One case: what is asked, of which events, and every answer that is expected."""

    file: str
    name: str
    line_number: int
    comments: tuple[str, ...]  # between the case's name and its first block
    blocks: tuple[Block, ...]

    @property
    def identity(self) -> str:
        return f"{self.file}: {self.name}"

    def _only(self, keyword: str) -> Block | None:
        return next((block for block in self.blocks if block.keyword == keyword), None)

    @property
    def is_script(self) -> bool:
        return self._only("script") is not None

    @property
    def is_row_pattern(self) -> bool:
        return is_row_pattern(self.text)

    @property
    def is_expression(self) -> bool:
        """Whether it is an expression of the algebra."""
        return is_stream(self.text)

    @property
    def text(self) -> str:
        block = self._only("script") or self._only("query")
        assert block is not None
        return "\n".join(block.body)

    @cached_property
    def types(self) -> dict[str, dict[str, pa.DataType]] | None:
        """The declared event types, or None. Each also has the label by which answers name events."""
        block = self._only("types")
        if block is None:
            return None
        declared = {}
        for line in block.body:
            name, _, attributes = _without_comment(line).partition(":")
            pairs = [pair.split(None, 1) for pair in _split(attributes, ",") if pair.strip()]
            declared[name.strip()] = {key: data_type(text.strip()) for key, text in pairs} | {"event": pa.string()}
        return declared

    @cached_property
    def params(self) -> dict[str, Any] | None:
        block = self._only("params")
        if block is None:
            return None
        pairs = (_without_comment(line).partition(":") for line in block.body)
        return {name.strip(): _guess(value.strip()) for name, _, value in pairs}

    @cached_property
    def options(self) -> dict[str, str]:
        block = self._only("options")
        pairs = (line.partition(":") for line in block.body) if block else ()
        return {name.strip(): value.strip() for name, _, value in pairs}

    @property
    def time_column(self) -> str:
        return self.options.get("time", "time")

    @property
    def type_column(self) -> str:
        return self.options.get("type", "type")

    @property
    def order(self) -> str | tuple[str, ...]:
        """The columns that order the events of one time, or "arrival"."""
        names = tuple(self.options.get("order", "").split())
        return "arrival" if names == ("arrival",) else names

    @cached_property
    def inputs(self) -> dict[str | None, pa.Table]:
        """The events: one table under None, or one for each event type."""
        return {block.of: read_table(block) for block in self.blocks if block.keyword == "events"}

    @property
    def expectations(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.keyword in ANSWERS)

    @property
    def explanations(self) -> tuple[Block, ...]:
        return tuple(block for block in self.blocks if block.keyword == EXPLAIN)

    @property
    def expected_error(self) -> str | None:
        block = self._only("error")
        return None if block is None else "\n".join(block.body)

    def write(self) -> Iterator[str]:
        yield f"=== {self.name}"
        yield from self.comments
        for block in self.blocks:
            yield from block.write()


@dataclass(frozen=True)
class CaseFile:
    path: Path
    heading: tuple[str, ...]
    cases: tuple[Case, ...] = field(default=())

    def write(self) -> str:
        lines = [*self.heading, *(line for case in self.cases for line in case.write())]
        return "\n".join(lines) + "\n"


def read_file(path: Path) -> CaseFile:
    """Read one file of cases."""
    return read_text(path.read_text(encoding="utf-8"), path)


def read_text(text: str, path: Path) -> CaseFile:
    lines = text.removesuffix("\n").split("\n")
    openings = [number for number, line in enumerate(lines) if line.startswith("===")]
    heading = tuple(lines[: openings[0]] if openings else lines)
    ends = [*openings[1:], len(lines)]
    cases = tuple(_read_case(lines, start, end, path) for start, end in zip(openings, ends, strict=True))
    names = [case.name for case in cases]
    for case in cases:
        if names.count(case.name) > 1:
            raise CaseError(f"{path.name}:{case.line_number}: two cases are named {case.name!r}")
    return CaseFile(path, heading, cases)


def read_all(folder: Path = FOLDER) -> list[Case]:
    """Every case of every file, in order of file names."""
    return [case for path in sorted(folder.glob("*.case")) for case in read_file(path).cases]


def _read_case(lines: list[str], start: int, end: int, path: Path) -> Case:
    comments: list[str] = []
    blocks: list[tuple[str, str | None, int, list[str]]] = []
    for number in range(start + 1, end):
        line = lines[number]
        if line.startswith(("  ", "#")) or not line.strip():
            (blocks[-1][3] if blocks else comments).append(line)
            continue
        keyword, _, of = line.strip().partition(" of ")
        if keyword not in (*QUESTIONS, *ANSWERS, EXPLAIN):
            raise CaseError(f"{path.name}:{number + 1}: {line!r} opens no block; a body is indented by two spaces")
        blocks.append((keyword, of or None, number + 1, []))
    made = tuple(Block(keyword, of, tuple(body), number) for keyword, of, number, body in blocks)
    case = Case(path.stem, lines[start].removeprefix("===").strip(), start + 1, tuple(comments), made)
    _check(case, path)
    return case


def _check(case: Case, path: Path) -> None:
    """A case asks one thing and says what to expect; misspelt options would otherwise pass unseen."""
    where = f"{path.name}:{case.line_number}: {case.name!r}"
    keywords = [block.keyword for block in case.blocks]
    if keywords.count("query") + keywords.count("script") != 1:
        raise CaseError(f"{where} needs one query or one script")
    if not case.expectations:
        raise CaseError(f"{where} expects nothing: add matches, rows or error")
    if "error" in keywords and len(case.expectations) > 1:
        raise CaseError(f"{where} expects an error and an answer")
    unknown = set(case.options) - set(OPTIONS)
    if unknown:
        raise CaseError(f"{where} has an unknown option {sorted(unknown)[0]!r}")
    for block in case.blocks:
        if keywords.count(block.keyword) > 1 and block.of is None:
            raise CaseError(f"{where} has two blocks {block.keyword!r}")


# ── Tables and values ──────────────────────────────────────────────────────────────────────────────

_SIMPLE_TYPES: Mapping[str, pa.DataType] = {
    "int": pa.int64(),
    "int64": pa.int64(),
    "int32": pa.int32(),
    "int16": pa.int16(),
    "int8": pa.int8(),
    "double": pa.float64(),
    "float": pa.float32(),
    "string": pa.string(),
    "bool": pa.bool_(),
    "date": pa.date32(),
    "binary": pa.binary(),
    "timestamp": pa.timestamp("us"),
}
_CELL = re.compile(r"'(?:[^']|'')*'|\[[^\]]*\]|#.*|\S+")
_INTEGER = re.compile(r"[+-]?\d+\Z")


def data_type(text: str) -> pa.DataType:
    """The Arrow type of a name in a header or a declaration.

    >>> data_type("decimal(10,2)"), data_type("timestamp[ns]"), data_type("list<int>")
    (Decimal128Type(decimal128(10, 2)), TimestampType(timestamp[ns]), ListType(list<item: int64>))
    """
    if text in _SIMPLE_TYPES:
        return _SIMPLE_TYPES[text]
    if found := re.fullmatch(r"decimal\((\d+),\s*(\d+)\)", text):
        return pa.decimal128(int(found[1]), int(found[2]))
    if found := re.fullmatch(r"timestamp\[(s|ms|us|ns)(?:,\s*([\w/+:-]+))?\]", text):
        return pa.timestamp(found[1], tz=found[2])
    if found := re.fullmatch(r"duration\[(s|ms|us|ns)\]", text):
        return pa.duration(found[1])
    if found := re.fullmatch(r"list<(.+)>", text):
        return pa.list_(data_type(found[1]))
    raise CaseError(f"there is no column type {text!r}")


def read_table(block: Block) -> pa.Table:
    """The table of an `events` or `rows` block. Dotted columns (`place.city`) of events become fields of a struct."""
    lines = [cells for line in block.body if (cells := _cells(line))]
    if not lines:
        raise CaseError(f"line {block.line_number}: the table has no header")
    header, *rows = lines
    for row in rows:
        if len(row) != len(header):
            line = " ".join(row)
            raise CaseError(f"line {block.line_number}: {line!r} are {len(row)} cells, the header has {len(header)}")
    columns: dict[str, pa.Array] = {}
    for position, title in enumerate(header):
        name, _, type_name = title.partition(":")
        name = _unquote(name)
        cells = [row[position] for row in rows]
        chosen = data_type(type_name) if type_name else _guess_type(cells)
        columns[name] = pa.array([_value(cell, chosen) for cell in cells], type=chosen)
    return pa.table(_nest(columns) if block.keyword == "events" else columns)


def _nest(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    nested: dict[str, Any] = {}
    for name, array in columns.items():
        head, dot, rest = name.partition(".")
        if dot:
            nested.setdefault(head, {})[rest] = array
        else:
            nested[name] = array
    return {
        name: pa.StructArray.from_arrays(list(value.values()), names=list(value)) if isinstance(value, dict) else value
        for name, value in nested.items()
    }


def _cells(line: str) -> list[str]:
    return [cell for cell in _CELL.findall(line) if not cell.startswith("#")]


def _without_comment(line: str) -> str:
    return line.partition("#")[0].rstrip()


def _split(text: str, separator: str) -> list[str]:
    """Split outside brackets, so that decimal(10,2) stays whole."""
    return re.split(rf"{re.escape(separator)}(?![^(\[<]*[)\]>])", text)


def _guess_type(cells: Sequence[str]) -> pa.DataType:
    known = [cell for cell in cells if cell != "-"]
    return pa.int64() if known and all(_INTEGER.match(cell) for cell in known) else pa.string()


def _guess(text: str) -> Any:
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.match(text):
        return int(text)
    if re.fullmatch(r"\d+(\.\d+)?s", text):
        return _duration(text)
    return float(text) if re.fullmatch(r"[+-]?\d+\.\d+", text) else _unquote(text)


def _unquote(text: str) -> str:
    return text[1:-1].replace("''", "'") if len(text) > 1 and text[0] == text[-1] == "'" else text


def _value(cell: str, chosen: pa.DataType) -> Any:
    if cell == "-":
        return None
    if pa.types.is_list(chosen):
        inner = cell[1:-1].replace(",", " ")
        return [_value(item, chosen.value_type) for item in _CELL.findall(inner)]
    text = _unquote(cell)
    if pa.types.is_integer(chosen):
        return int(text)
    if pa.types.is_floating(chosen):
        return float(text)
    if pa.types.is_decimal(chosen):
        return Decimal(text)
    if pa.types.is_boolean(chosen):
        return {"true": True, "false": False}[text]
    if pa.types.is_date(chosen):
        return datetime.date.fromisoformat(text)
    if pa.types.is_binary(chosen):
        return text.encode()
    if pa.types.is_timestamp(chosen):
        return _timestamp(text, chosen)
    if pa.types.is_duration(chosen):
        return _duration(text)
    return text


def _duration(text: str) -> datetime.timedelta:
    """`1.5s` is one and a half seconds."""
    return datetime.timedelta(microseconds=int(Decimal(text.removesuffix("s")) * 1_000_000))


def _timestamp(text: str, chosen: pa.DataType) -> Any:
    """Ticks of the column's unit since 1970. Python's datetime ends at microseconds, hence by hand."""
    moment, _, fraction = text.partition(".")
    zone = datetime.UTC
    parsed = datetime.datetime.fromisoformat(moment)
    parsed = parsed if parsed.tzinfo else parsed.replace(tzinfo=zone)
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[chosen.unit]
    seconds = (parsed - datetime.datetime(1970, 1, 1, tzinfo=zone)) // datetime.timedelta(seconds=1)
    return seconds * per_second + int(fraction.ljust(9, "0")[:9] or 0) * per_second // 10**9


# ── Writing answers ────────────────────────────────────────────────────────────────────────────────


def write_table(columns: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The lines of a `rows` block, with a type in the header wherever it could not be told from the cells."""
    titles = [_title(name, [row[name] for row in rows]) for name in columns]
    table = [titles, *([write_value(row[name]) for name in columns] for row in rows)]
    widths = [max(len(line[position]) for line in table) for position in range(len(columns))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in table]


def write_value(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return "[" + ",".join(write_value(item) for item in value) + "]"
    if isinstance(value, datetime.datetime):
        return value.replace(tzinfo=None).isoformat()
    if isinstance(value, datetime.timedelta):
        return f"{Decimal(value // datetime.timedelta(microseconds=1)) / 1_000_000}s"
    if isinstance(value, float):
        return "nan" if math.isnan(value) else repr(value)
    if isinstance(value, str):
        return value if re.fullmatch(r"[^\s'#\[\]-][^\s'#]*", value) else "'" + value.replace("'", "''") + "'"
    return str(value)


def _title(name: str, values: Sequence[Any]) -> str:
    known = [value for value in values if value is not None]
    kind = _type_name(known[0]) if known else None
    told = kind is None or (kind == "int") or (kind == "string" and not all(_INTEGER.match(str(v)) for v in known))
    return name if told else f"{name}:{kind}"


def _type_name(value: Any) -> str:
    if isinstance(value, bool):
        return "bool"
    if isinstance(value, list):
        known = [item for item in value if item is not None]
        return f"list<{_type_name(known[0]) if known else 'int'}>"
    if isinstance(value, Decimal):
        exponent = value.as_tuple().exponent
        return f"decimal(18,{-exponent if isinstance(exponent, int) else 0})"
    if isinstance(value, datetime.datetime):
        return "timestamp[us]"
    if isinstance(value, datetime.timedelta):
        return "duration[us]"
    names = {int: "int", float: "double", str: "string", datetime.date: "date"}
    return names[type(value)]
