"""The syntax tree of a row pattern, the text in the parentheses of MATCH_RECOGNIZE."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from ouzel.lang.syntax import Call, Expr, Node

# ── Expressions ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Visible(Expr):
    """`FINAL LAST(x)` or `RUNNING SUM(x)`: which rows of the match the call can see."""

    final: bool
    call: Call


@dataclass(frozen=True, slots=True)
class RowsOf(Expr):
    """`v.*` in COUNT(v.*)."""

    variable: str


# ── The pattern ────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Pattern(Node):
    """Base class of the parts of a pattern. An instance of this class itself is the empty pattern, `()`."""


@dataclass(frozen=True, slots=True)
class Variable(Pattern):
    name: str


@dataclass(frozen=True, slots=True)
class Anchor(Pattern):
    """`^` or `$`."""

    at_end: bool


@dataclass(frozen=True, slots=True)
class Sequence(Pattern):
    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Alternation(Pattern):
    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Permutation(Pattern):
    items: tuple[Pattern, ...]


@dataclass(frozen=True, slots=True)
class Excluded(Pattern):
    """`{- P -}`: rows that ALL ROWS PER MATCH leaves out."""

    item: Pattern


@dataclass(frozen=True, slots=True)
class Repeated(Pattern):
    """`P{least,most}`; `most` is None if there is no bound."""

    item: Pattern
    least: int
    most: int | None
    greedy: bool


# ── Clauses ────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, slots=True)
class Sort(Node):
    """A term of ORDER BY; `nulls_first` is None if it is not written."""

    expression: Expr
    descending: bool
    nulls_first: bool | None


@dataclass(frozen=True, slots=True)
class Measure(Node):
    expression: Expr
    name: str


class Rows(Enum):
    """Which rows are returned for each match."""

    ONE = "ONE ROW PER MATCH"
    SHOW_EMPTY = "ALL ROWS PER MATCH SHOW EMPTY MATCHES"
    OMIT_EMPTY = "ALL ROWS PER MATCH OMIT EMPTY MATCHES"
    WITH_UNMATCHED = "ALL ROWS PER MATCH WITH UNMATCHED ROWS"


class Skip(Enum):
    """Where the search continues after a match."""

    PAST_LAST_ROW = "PAST LAST ROW"
    TO_NEXT_ROW = "TO NEXT ROW"
    TO_FIRST = "TO FIRST"
    TO_LAST = "TO LAST"


@dataclass(frozen=True, slots=True)
class AfterMatch(Node):
    skip: Skip
    variable: str | None = None


@dataclass(frozen=True, slots=True)
class Subset(Node):
    name: str
    variables: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Definition(Node):
    variable: str
    condition: Expr


@dataclass(frozen=True, slots=True)
class RowPattern(Node):
    """The clauses of MATCH_RECOGNIZE. Clauses that are not in the text have their defaults."""

    pattern: Pattern
    partition_by: tuple[Expr, ...] = ()
    order_by: tuple[Sort, ...] = ()
    measures: tuple[Measure, ...] = ()
    rows: Rows = Rows.ONE
    after_match: AfterMatch = AfterMatch(Skip.PAST_LAST_ROW)
    subsets: tuple[Subset, ...] = ()
    definitions: tuple[Definition, ...] = ()
    within: Expr | None = None
