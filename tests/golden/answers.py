"""What a way of running answers, and whether that is what a case expects.

Matches are compared as multisets by the labels of their events, rows as multisets with a tolerance for doubles. Order
is not compared: it is no part of the meaning of a query.
"""

from __future__ import annotations

import datetime
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.golden.format import NONE, Block, Case, read_table, write_table, write_value

Row = Mapping[str, Any]

RELATIVE_TOLERANCE = 1e-9  # docs/semantics.md, "Aggregates", promises this for sums of doubles


@dataclass(frozen=True)
class Answer:
    """The output rows of one query. `matches` are the same rows, save under OUTPUT COMPRESSED, where they are listed
    out of the graph that a row carries."""

    rows: Sequence[Row]
    matches: Sequence[Row]

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Answer:
        return cls(rows, rows)


Answers = Mapping[str | None, Answer]


def disagreement(case: Case, answers: Answers) -> str | None:
    """What is wrong with the answers, in words, or None."""
    for block in case.expectations:
        found = _compare(case, block, answer_for(block, answers))
        if found:
            return found if block.of is None else f"{block.of}: {found}"
    return None


def answer_for(block: Block, answers: Answers) -> Answer:
    """The answer that a block speaks of: of the query it names, or of the only one."""
    if block.of is not None:
        return answers[block.of]
    assert len(answers) == 1, f"line {block.line_number}: say `{block.keyword} of` which of {sorted(map(str, answers))}"
    return next(iter(answers.values()))


def written(block: Block, answer: Answer) -> list[str]:
    """The body of the block that would agree with the answer."""
    if block.keyword == "matches":
        return sorted((match_text(row) for row in answer.matches), key=_natural) or [NONE]
    if not answer.rows:
        return [NONE]
    return write_table(list(answer.rows[0]), sorted(answer.rows, key=lambda row: [_order(v) for v in row.values()]))


# ── Matches ────────────────────────────────────────────────────────────────────────────────────────


def match_text(row: Row, times: Iterable[str] = ()) -> str:
    """A match by its events' labels: `a=a1 b=[b2 b3]`; `times` says which of start and end to add."""
    variables = [f"{name}={label(value)}" for name, value in row.items() if name not in ("start", "end")]
    return " ".join([*variables, *(f"{name}={write_value(row[name])}" for name in times)])


def label(value: Any) -> str:
    """An event's label. A composite event without one is written by its own parts: `{a=a1 b=b2}`."""
    if isinstance(value, list | tuple):
        return "[" + " ".join(label(item) for item in value) + "]"
    if not isinstance(value, Mapping):
        return write_value(value)
    if value.get("event") is not None:
        return str(value["event"])
    return "{" + " ".join(f"{name}={label(part)}" for name, part in value.items() if name not in ("start", "end")) + "}"


def _expected_match(line: str) -> dict[str, str]:
    """`a=a1 b=[b2 b3]` as a mapping of variables to labels; blanks inside brackets do not separate."""
    parts, depth = [""], 0
    for character in line.partition("#")[0].strip():
        depth += (character in "[{") - (character in "]}")
        if character == " " and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return dict(part.split("=", 1) for part in parts if part)


def _canonical(match: Mapping[str, str]) -> str:
    return " ".join(f"{name}={match[name]}" for name in sorted(match))


# ── Comparison ─────────────────────────────────────────────────────────────────────────────────────


def _compare(case: Case, block: Block, answer: Answer) -> str | None:
    if block.unanswered:
        return f"line {block.line_number} still waits for an answer: run `make golden`"
    if block.keyword == "matches":
        return _compare_matches(block, answer.matches)
    return _compare_rows(block, answer.rows)


def _compare_matches(block: Block, rows: Sequence[Row]) -> str | None:
    lines = [line for line in block.body if line.partition("#")[0].strip() and line.strip() != NONE]
    expected = [_expected_match(line) for line in lines]
    times = [name for name in ("start", "end") if any(name in match for match in expected)]
    wanted = Counter(_canonical(match) for match in expected)
    found = Counter(_canonical(_expected_match(match_text(row, times))) for row in rows)
    return _difference(wanted - found, found - wanted)


def _compare_rows(block: Block, rows: Sequence[Row]) -> str | None:
    if block.body == (NONE,):
        return _difference([], [_row_text(row) for row in rows])
    table = read_table(block)
    ignored = {"start", "end"} - set(table.column_names)
    surplus = [{name: value for name, value in row.items() if name not in ignored} for row in rows]
    missing = []
    for expected in table.to_pylist():
        position = next((p for p, row in enumerate(surplus) if _same_row(expected, row)), None)
        if position is None:
            missing.append(expected)
        else:
            del surplus[position]
    return _difference([_row_text(row) for row in missing], [_row_text(row) for row in surplus])


def _same_row(expected: Row, found: Row) -> bool:
    return expected.keys() == found.keys() and all(_same(expected[name], found[name]) for name in expected)


def _same(expected: Any, found: Any) -> bool:
    if isinstance(expected, list) and isinstance(found, list | tuple):
        return len(expected) == len(found) and all(map(_same, expected, found))
    if isinstance(expected, float) and isinstance(found, float):
        both_nan = math.isnan(expected) and math.isnan(found)
        return both_nan or math.isclose(expected, found, rel_tol=RELATIVE_TOLERANCE)
    if isinstance(expected, datetime.datetime) and isinstance(found, datetime.datetime):
        return expected.replace(tzinfo=None) == found.replace(tzinfo=None)
    # 1, 1.0, True and Decimal(1) are equal in Python, but a column of the wrong type is a wrong answer.
    return type(expected) is type(found) and bool(expected == found)


def _difference(missing: Iterable[str], surplus: Iterable[str]) -> str | None:
    lines = [f"  expected, not found: {line}" for line in _listed(missing)]
    lines += [f"  found, not expected: {line}" for line in _listed(surplus)]
    return "\n".join(["the answers differ", *lines]) if lines else None


def _listed(lines: Iterable[str]) -> list[str]:
    return sorted(lines.elements() if isinstance(lines, Counter) else lines)


def _row_text(row: Row) -> str:
    return "  ".join(f"{name}={write_value(value)}:{type(value).__name__}" for name, value in row.items())


def _order(value: Any) -> tuple[bool, str, Any]:
    """A total order for writing: nulls first, values of one type by value, the rest by their text."""
    comparable = isinstance(value, int | float | str | datetime.date)
    return (value is not None, type(value).__name__, value if comparable else str(value))


def _natural(line: str) -> list[tuple[int, str]]:
    """a2 before a10."""
    pieces, digits = [], ""
    for character in line + " ":
        if character.isdigit():
            digits += character
            continue
        if digits:
            pieces.append((int(digits), ""))
            digits = ""
        pieces.append((0, character))
    return pieces
