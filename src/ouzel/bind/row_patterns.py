"""Binds row patterns: from the syntax of MATCH_RECOGNIZE to a bound pattern.

Expressions are bound like those of queries. But a reference also names a *row*: `LAST(v.x, 1)`, `PREV(x)` and a plain
`x` read different rows. Rows are numbered, and their numbers take the place of component numbers. Row 0 is the current
row: the tested row in DEFINE, the row of the output in MEASURES, and each row in PARTITION BY and ORDER BY.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from ouzel.bind.diagnostics import Source, listed, nearest, nearest_or_all, quoted
from ouzel.bind.expressions import Expressions, nodes, readable_name
from ouzel.bind.functions import EVENT_FUNCTIONS, FUNCTIONS
from ouzel.bind.literals import Parameters
from ouzel.bind.model import (
    BOOL,
    DURATION,
    INT,
    NULL,
    STRING,
    UNKNOWN,
    WHOLE,
    Aggregation,
    Attribute,
    Bound,
    Catalog,
    Constant,
    EventField,
    Intrinsic,
    Kind,
    Operation,
    OutputColumn,
    Scope,
    TimeDomain,
    Type,
    list_type,
    make_storable,
)
from ouzel.bind.names import Names, Place, type_at
from ouzel.bind.typing import Typing, described
from ouzel.lang import row_syntax, syntax
from ouzel.lang.row_syntax import Skip, Visible
from ouzel.lang.syntax import Span
from ouzel.lang.vocabulary import NANOSECONDS_OF_UNIT

# One bit of a word for each variable.
VARIABLES_MAX = 64
STEPS_MAX = 10_000_000
_AGGREGATES = ("count", "sum", "avg", "min", "max", "array_agg", "count_distinct")
_AGGREGATES_ARE = "the aggregates are count, sum, avg, min, max and array_agg"
# Functions of SQL that a row pattern does not have, and what to write instead.
_ELSEWHERE = {
    "lag": "write PREV(x), the row before", "lead": "write NEXT(x), the row after", "first_value": "write FIRST(x)",
    "last_value": "write LAST(x)", "arbitrary": "write FIRST(x) or LAST(x)",
    "count_if": "write COUNT(CASE WHEN … THEN 1 END)", "match_sequence_number": "write COUNT(*)",
    "match_rowtime": "write LAST(ts)", "iff": "write IF(…)", "decode": "write CASE WHEN … THEN … END",
    **dict.fromkeys(("bool_and", "every"), "write MIN(CASE WHEN … THEN 1 ELSE 0 END) = 1"),
    **dict.fromkeys(("bool_or", "any_match"), "write MAX(CASE WHEN … THEN 1 ELSE 0 END) = 1"),
    **dict.fromkeys(
        ("trunc", "truncate", "date_trunc", "to_char", "date_format", "to_timestamp", "strpos", "position"),
        "compute it as a column of the table before the clause",
    ),
    **dict.fromkeys(("stddev", "variance", "median", "listagg", "string_agg", "max_by"), _AGGREGATES_ARE),
}  # fmt: skip
_NAVIGATIONS = ("first", "last", "prev", "next")
MATCH_NUMBER = "match_number"


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the match, or a row at some distance from one.

    Start from the first or the last visible row of `variables` (None: of any variable). Go `offset` such rows on after
    the first, or back before the last. From there, go `shift` rows on in the partition. With `final` all rows of the
    match are visible, otherwise only those up to the row of the output.
    """

    variables: frozenset[int] | None = None
    first: bool = False
    offset: int = 0
    shift: int = 0
    final: bool = False

    @property
    def is_near(self) -> bool:
        """Whether the row is at a fixed distance from the current row."""
        return self.variables is None and not self.first and not self.offset and not self.final


@dataclass(frozen=True, slots=True)
class Rows:
    """The visible rows of some variables (None: of all variables), over which an aggregate ranges."""

    variables: frozenset[int] | None
    final: bool


ITSELF = Row()


@dataclass(frozen=True, slots=True)
class SortKey:
    expression: Bound
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class BoundRowPattern:
    """A checked row pattern. In its expressions, the number of a component is an index into `rows`, whose entries are a
    row, or the rows of an aggregate.
    """

    # As in a bound query: it reads the primary stream, and no query reads its results.
    sources: ClassVar[tuple[str, ...]] = ()
    into: ClassVar[str | None] = None
    aggregates: ClassVar[tuple[()]] = ()

    name: str
    text: str
    catalog: Catalog
    variables: tuple[str, ...]  # as PATTERN spells them
    pattern: row_syntax.Pattern
    conditions: Mapping[int, Bound]  # of a variable; those without one take every row
    partition: tuple[OutputColumn, ...]
    order: tuple[SortKey, ...]
    measures: tuple[OutputColumn, ...]
    output: row_syntax.Rows
    skip: Skip
    skip_to: frozenset[int]
    rows: tuple[Row | Rows, ...]
    window: int | float | None  # a match is shorter than this in the first ORDER BY column
    window_written: str
    columns: tuple[str, ...]  # that the clause reads
    steps_max: int  # of the search for one match
    time: str | None  # the column with the time of the rows of a stream; None over a table

    @property
    def partition_paths(self) -> tuple[tuple[str, ...], ...]:
        """The columns, or fields of columns, that are equal in all rows of a partition."""
        keys = [column.expression for column in self.partition]
        return tuple(key.path for key in keys if isinstance(key, Attribute))

    @property
    def is_by_time(self) -> bool:
        """Whether the rows are ordered by the time of the stream."""
        first = self.order[0] if self.order else None
        return (
            first is not None
            and not first.descending
            and isinstance(first.expression, Attribute)
            and first.expression.path == (self.time,)
        )

    @property
    def tie_breaks(self) -> tuple[str, ...]:
        """The columns that order rows which are equal in ORDER BY."""
        if self.output is row_syntax.Rows.ONE:
            return self.columns
        return (*self.columns, *sorted(set(self.catalog.common or ()) - set(self.columns)))

    @property
    def shifts(self) -> tuple[int, int]:
        """(before, after): how many rows before and after a match PREV and NEXT read."""
        shifts = [row.shift for row in self.rows if isinstance(row, Row)]
        return -min(0, *shifts), max(0, *shifts)


make_storable(
    BoundRowPattern, Row, Rows, SortKey, row_syntax.Alternation, row_syntax.Anchor, row_syntax.Excluded,
    row_syntax.Pattern, row_syntax.Permutation, row_syntax.Repeated, row_syntax.Rows, row_syntax.Sequence,
    row_syntax.Skip, row_syntax.Variable,
)  # fmt: skip


def bind_row_pattern(
    tree: row_syntax.RowPattern,
    text: str,
    catalog: Catalog,
    params: Mapping[str, Any] | None = None,
    *,
    name: str = "query",
    steps_max: int = STEPS_MAX,
    time: str | None = None,
) -> BoundRowPattern:
    """The row pattern over a table with the columns that all types of a catalog have. Raises QueryError with a place in
    the text and a hint.
    """
    return _Binder(tree, Source(text), catalog, Parameters(dict(params or {})), name, steps_max, time).bound()


@dataclass(slots=True)
class _Binder:
    tree: row_syntax.RowPattern
    source: Source
    catalog: Catalog
    parameters: Parameters
    name: str
    steps_max: int
    time: str | None
    columns: dict[str, Type] = field(init=False)
    variables: dict[str, int] = field(default_factory=dict)  # in lower case
    subsets: dict[str, frozenset[int]] = field(default_factory=dict)
    rows: dict[Row | Rows, int] = field(default_factory=dict)
    read: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.columns = dict(self.catalog.common or {})

    def bound(self) -> BoundRowPattern:
        tree, source = self.tree, self.source
        spelled = self._name_variables()
        self._name_subsets()
        self.rows[ITSELF] = 0
        plain = self._expressions(Typing(source, TimeDomain()), "PARTITION BY")
        partition = self._partition(plain)
        ordering = replace(plain, clause="ORDER BY")
        order = tuple(
            SortKey(
                ordering.key(sort.expression),
                sort.descending,
                not sort.descending if sort.nulls_first is None else sort.nulls_first,
            )
            for sort in tree.order_by
        )
        typing = Typing(source, self._time(order), has_unit_option=self.time is not None)
        window = self._window(order, typing)
        conditions = self._conditions(typing)
        measures = self._measures(typing, partition)
        skip_to = frozenset[int]()
        if tree.after_match.variable is not None:
            skip_to = self.named(tree.after_match.variable, tree.after_match.span)
        if tree.rows is row_syntax.Rows.WITH_UNMATCHED:
            for node in nodes(tree.pattern):
                if isinstance(node, row_syntax.Excluded):
                    raise source.mistake(
                        "{- -} cannot be used WITH UNMATCHED ROWS: the rows that it leaves out are matched", node.span
                    )
        self.parameters.check_all_used(source.text)
        return BoundRowPattern(
            name=self.name,
            text=source.text,
            catalog=self.catalog,
            variables=spelled,
            pattern=tree.pattern,
            conditions=conditions,
            partition=partition,
            order=order,
            measures=measures,
            output=tree.rows,
            skip=tree.after_match.skip,
            skip_to=skip_to,
            rows=tuple(self.rows),
            window=window,
            window_written=source.text[tree.within.span.start : tree.within.span.end] if tree.within else "",
            columns=tuple(sorted(self.read)),
            steps_max=self.steps_max,
            time=self.time,
        )

    def _expressions(self, typing: Typing, clause: str) -> _RowExpressions:
        names = Names(self.source, Catalog(common=self.columns), (), {}, frozenset(), ())
        return _RowExpressions(
            self.source, names, typing, self.parameters, Place.RETURN, {}, binder=self, clause=clause
        )

    # ── Names ──────────────────────────────────────────────────────────────────────────────────────

    def _name_variables(self) -> tuple[str, ...]:
        spelled: list[str] = []
        for node in _in_order(self.tree.pattern):
            if node.name.upper() in ("AND", "OR"):
                raise self.source.mistake(
                    f"{node.name} cannot be a variable of a pattern",
                    node.span,
                    "write A | B for one of them, A B for B after A",
                )
            if node.name.lower() not in self.variables:
                self.variables[node.name.lower()] = len(spelled)
                spelled.append(node.name)
        if len(spelled) > VARIABLES_MAX:
            raise self.source.mistake(f"a pattern may have {VARIABLES_MAX} variables at most", self.tree.pattern.span)
        return tuple(spelled)

    def _name_subsets(self) -> None:
        for subset in self.tree.subsets:
            name = subset.name.lower()
            if name in self.variables or name in self.subsets:
                raise self.source.mistake(f"the name {quoted(subset.name)} is used twice", subset.span)
            for variable in subset.variables:
                if variable.lower() in self.subsets:
                    raise self.source.mistake(
                        f"{quoted(variable)} is a SUBSET, and a SUBSET has variables of the pattern only", subset.span
                    )
            self.subsets[name] = frozenset(i for v in subset.variables for i in self.named(v, subset.span))

    def named(self, name: str, span: Span) -> frozenset[int]:
        """The variables that a name means: one variable of the pattern, or those of a SUBSET."""
        found = self._variables_of(name)
        if found is None:
            raise self.source.mistake(f"there is no variable {quoted(name)}", span, self._known_variables(name))
        return found

    def _known_variables(self, name: str) -> str:
        """A hint for a name that is not a variable."""
        known = [node.name for node in _in_order(self.tree.pattern)] + [subset.name for subset in self.tree.subsets]
        return nearest(name, known) or f"the variables are {listed(sorted(set(known)), 'and')}"

    def _variables_of(self, name: str) -> frozenset[int] | None:
        if name.lower() in self.variables:
            return frozenset((self.variables[name.lower()],))
        return self.subsets.get(name.lower())

    def is_variable(self, name: str) -> bool:
        return self._variables_of(name) is not None

    def column(self, names: tuple[str, ...], span: Span) -> tuple[tuple[str, ...], Type]:
        """(path, type) of the column, or field of a column, that a name means. A name in the same case is preferred to
        others.
        """
        path = list(names)
        if self.catalog.open:
            self.read.add(path[0])
            return names, UNKNOWN
        if path[0] not in self.columns:
            alike = [name for name in self.columns if name.lower() == path[0].lower()]
            if len(alike) > 1:
                raise self.source.mistake(
                    f"{quoted(path[0])} may be {listed(map(quoted, alike))}", span, "write it as the column is written"
                )
            if not alike:
                if len(path) > 1 and path[1].lower() in {name.lower() for name in self.columns}:
                    raise self.source.mistake(
                        f"there is no variable {quoted(path[0])}",
                        span,
                        f"{self._known_variables(path[0])}; a column of the table is written {path[1]}",
                    )
                if len(path) > 1:
                    self.named(path[0], span)
                is_quoted = self.source.text.startswith('"', span.start)
                hint = f"text has single quotes: '{path[0]}'" if is_quoted else None
                raise self.source.mistake(
                    f"the input has no column {quoted(path[0])}",
                    span,
                    hint or nearest_or_all(path[0], self.columns, "columns"),
                )
            path[0] = alike[0]
        found = type_at(self.columns, tuple(path))
        if found is None:
            raise self.source.mistake(f"{quoted(path[0])} has no field {quoted('.'.join(path[1:]))}", span)
        self.read.add(path[0])
        return tuple(path), found

    def row(self, row: Row | Rows) -> int:
        """The number of a row, which is added if it is new."""
        return self.rows.setdefault(row, len(self.rows))

    # ── Clauses ────────────────────────────────────────────────────────────────────────────────────

    def _partition(self, expressions: _RowExpressions) -> tuple[OutputColumn, ...]:
        found: dict[str, OutputColumn] = {}
        for number, node in enumerate(self.tree.partition_by, 1):
            key = expressions.key(node)
            name = key.path[-1] if isinstance(key, Attribute) else readable_name(node) or f"partition_{number}"
            if name in found:
                raise self.source.mistake(f"two PARTITION BY columns are named {quoted(name)}", node.span)
            found[name] = OutputColumn(name, key)
        return tuple(found.values())

    def _time(self, order: tuple[SortKey, ...]) -> TimeDomain:
        """The unit for durations: ticks of the first ORDER BY column if it has timestamps, otherwise ticks of the
        stream.
        """
        first = order[0].expression if order else None
        if first is not None and first.type.kind is Kind.TIMESTAMP:
            return TimeDomain(first.type, NANOSECONDS_OF_UNIT[first.type.unit or "us"])
        if self.time is not None:
            return self.catalog.time
        return TimeDomain() if self.catalog.open else TimeDomain(INT)

    def _window(self, order: tuple[SortKey, ...], typing: Typing) -> int | float | None:
        within = self.tree.within
        if within is None:
            return None
        if not order or order[0].descending:
            raise self.source.mistake("WITHIN needs an ascending ORDER BY", within.span, "write ORDER BY ts")
        extent = self._expressions(typing, "WITHIN").bound(within)
        kind = order[0].expression.type
        if kind.kind is Kind.TIMESTAMP and extent.type != DURATION:
            raise self.source.mistake(
                "WITHIN takes a duration where ORDER BY has timestamps", within.span, "write WITHIN 5 min"
            )
        if isinstance(extent, Constant) and extent.type == DURATION:
            extent = typing.ticks(extent, NANOSECONDS_OF_UNIT["days"] if kind.kind is Kind.DATE else None)
        if kind == UNKNOWN and isinstance(extent, Constant) and isinstance(extent.value, int | float):
            return extent.value
        if kind.kind not in (Kind.INT, Kind.FLOAT, Kind.TIMESTAMP, Kind.DATE):
            raise self.source.mistake(
                f"WITHIN needs a time or a number in ORDER BY, got {described(kind)}", within.span
            )
        if not isinstance(extent, Constant) or isinstance(extent.value, bool | str | bytes | None):
            raise self.source.mistake("WITHIN takes a duration or a number", within.span)
        if extent.value <= 0:
            raise self.source.mistake("WITHIN must be greater than 0", within.span)
        if kind.kind is Kind.FLOAT:
            return float(extent.value)
        if extent.type.kind is not Kind.INT:
            raise self.source.mistake("WITHIN must be a whole number here", within.span)
        return int(extent.value)

    def _conditions(self, typing: Typing) -> dict[int, Bound]:
        found: dict[int, Bound] = {}
        for definition in self.tree.definitions:
            name = definition.variable
            if name.lower() in self.subsets:
                raise self.source.mistake(f"{quoted(name)} is a SUBSET and cannot be defined", definition.span)
            if name.lower() not in self.variables:
                raise self.source.mistake(
                    f"{quoted(name)} is defined but is not in the pattern",
                    definition.span,
                    nearest(name, self.variables),
                )
            (variable,) = self.named(name, definition.span)
            if variable in found:
                raise self.source.mistake(f"{quoted(name)} is defined twice", definition.span)
            expressions = replace(self._expressions(typing, "DEFINE"), defined=variable)
            found[variable] = expressions.condition(definition.condition)
        return found

    def _measures(self, typing: Typing, partition: tuple[OutputColumn, ...]) -> tuple[OutputColumn, ...]:
        names = {column.name for column in partition}
        found = []
        for measure in self.tree.measures:
            if measure.name in names:
                raise self.source.mistake(f"two columns are named {quoted(measure.name)}", measure.span)
            names.add(measure.name)
            expression = self._expressions(typing, "MEASURES").value(measure.expression)
            found.append(OutputColumn(measure.name, expression))
        return tuple(found)


def _in_order(pattern: row_syntax.Pattern) -> Iterator[row_syntax.Variable]:
    """The variables of a pattern in the order of the text."""
    return (
        node
        for node in sorted(_parts(pattern), key=lambda node: node.span.start)
        if isinstance(node, row_syntax.Variable)
    )


def _parts(pattern: row_syntax.Pattern) -> Iterator[row_syntax.Pattern]:
    return (node for node in nodes(pattern) if isinstance(node, row_syntax.Pattern))


@dataclass(frozen=True)
class _RowExpressions(Expressions):
    """Binds expressions over rows. Inside a navigation or an aggregate, `at` is the row to which references refer."""

    binder: _Binder = field(kw_only=True)
    clause: str = field(kw_only=True)
    defined: int | None = field(default=None, kw_only=True)
    at: int | None = field(default=None, kw_only=True)
    inside: str = field(default="", kw_only=True)  # the function that `at` comes from

    def bound(self, node: syntax.Expr) -> Bound:
        if isinstance(node, Visible):
            return self._visible(node)
        return super().bound(node)

    def key(self, node: syntax.Expr) -> Bound:
        """An expression of PARTITION BY or ORDER BY."""
        found = self.value(node)
        if found.type.kind in WHOLE:
            raise self.source.mistake(f"{self.clause} cannot use {described(found.type)}", node.span)
        return found

    @property
    def _matches(self) -> bool:
        return self.clause in ("DEFINE", "MEASURES")

    # ── References ─────────────────────────────────────────────────────────────────────────────────

    def _reference(self, node: syntax.Reference) -> Bound:
        if node.index is not None or node.default is not None:
            raise self.source.mistake("a column cannot have brackets here", node.span)
        variable, path = self._split(node)
        if not path:
            raise self.source.mistake(
                f"{quoted(node.names[0])} is a variable, not a value",
                node.span,
                f"COUNT({node.names[0]}.*) counts its rows"
                if self.inside == "COUNT"
                else f"name a column: {node.names[0]}.x",
            )
        names, kind = self.binder.column(path, node.span)
        row = self.at
        if row is None:
            variables = None if variable is None else self.binder.named(variable, node.span)
            row = self.binder.row(self._last(variables))
        return Attribute(row, names, type=kind, span=node.span)

    def _split(self, node: syntax.Reference) -> tuple[str | None, tuple[str, ...]]:
        """(variable, column path) of a reference. The variable is None if it names none."""
        first = node.names[0]
        if self._matches and self.binder.is_variable(first):
            is_column = len(node.names) == 1 and any(name.lower() == first.lower() for name in self.binder.columns)
            if not is_column:
                return first, node.names[1:]
        return None, node.names

    def _last(self, variables: frozenset[int] | None, **fields: Any) -> Row:
        """The last visible row of some variables. In DEFINE, the tested row counts as one of the variable for which it
        is tested.
        """
        if self.defined is not None and variables is not None and self.defined in variables:
            variables = None if not fields.get("first") and not fields.get("offset") else variables
        return Row(variables, **fields)

    def _one_variable(self, node: syntax.Call, written: str = "") -> frozenset[int] | None:
        """The variables that all references inside a navigation or an aggregate name, which must be the same name or
        none. `written` is the function's name in the text.
        """
        found: dict[str | None, None] = {}
        for part in nodes(node):
            if isinstance(part, row_syntax.RowsOf):
                found[part.variable.lower()] = None
            elif isinstance(part, syntax.Call) and part.function == "classifier":
                names = [a.names[0] for a in part.arguments if isinstance(a, syntax.Reference)]
                found[names[0].lower() if names else None] = None
            elif isinstance(part, syntax.Reference) and not self._is_label(part, node):
                variable, _ = self._split(part)
                found[None if variable is None else variable.lower()] = None
        if len(found) > 1:
            raise self.source.mistake(
                f"{written or node.function.upper()}(…) must be about one variable",
                node.span,
                "write the same variable before every column, or none",
            )
        name = next(iter(found), None)
        return None if name is None else self.binder.named(name, node.span)

    @staticmethod
    def _is_label(reference: syntax.Reference, call: syntax.Call) -> bool:
        """Whether a reference is the variable in CLASSIFIER(v)."""
        return any(
            isinstance(part, syntax.Call) and part.function == "classifier" and reference in part.arguments
            for part in nodes(call)
        )

    # ── Calls ──────────────────────────────────────────────────────────────────────────────────────

    def _visible(self, node: Visible) -> Bound:
        words = "FINAL" if node.final else "RUNNING"
        function = node.call.function
        if function not in (*_AGGREGATES, "first", "last"):
            raise self.source.mistake(
                f"{words} belongs before FIRST, LAST or an aggregate, not before {function.upper()}",
                node.span,
                f"write {function.upper()}({words} LAST(…))" if function in ("prev", "next") else None,
            )
        if node.final and self.clause == "DEFINE":
            raise self.source.mistake("FINAL cannot be used in DEFINE: the match is not complete there", node.span)
        return replace(self._of_rows(node.call, final=node.final), span=node.span)

    def _call(self, node: syntax.Call) -> Bound:
        name = node.function
        if name == "mod" and len(node.arguments) == 2:
            return self._binary(syntax.Binary("%", *node.arguments, span=node.span))
        special = name in (*_AGGREGATES, *_NAVIGATIONS, "classifier", "match_number")
        if special and not self._matches:
            raise self.source.mistake(f"{name.upper()} cannot be used in {self.clause}", node.span)
        if name in ("classifier", "match_number"):
            return self._classifier(node) if name == "classifier" else self._match_number(node)
        if special:
            return self._of_rows(node, final=False)
        if name in EVENT_FUNCTIONS or name in _ELSEWHERE:
            raise self.source.mistake(
                f"there is no function {quoted(name)} in a row pattern", node.span, _ELSEWHERE.get(name)
            )
        if name == "concat":
            return self._function(FUNCTIONS[name], [self._as_text(argument) for argument in node.arguments], node.span)
        return super()._call(node)

    def _as_text(self, node: syntax.Expr) -> Bound:
        """An operand of ||. Integers and booleans become text, as in SQL."""
        value = self.value(node)
        if value.type in (INT, BOOL):
            return Operation("cast", (value,), type=STRING, span=node.span)
        return value

    def _of_rows(self, node: syntax.Call, *, final: bool) -> Bound:
        """A navigation or an aggregate."""
        name = node.function
        if self.inside:
            raise self.source.mistake(f"{name.upper()} cannot be inside {self.inside}", node.span)
        if name in _AGGREGATES:
            return self._aggregate_of(node, final)
        if name in ("prev", "next"):
            return self._shifted(node)
        return self._navigated(node, node, final, shift=0)

    def _shifted(self, node: syntax.Call) -> Bound:
        """PREV and NEXT, of a value or directly of FIRST or LAST."""
        amount = self._offset(node, default=1)
        shift = -amount if node.function == "prev" else amount
        inner = node.arguments[0] if node.arguments else None
        final = isinstance(inner, Visible) and inner.final
        called = inner.call if isinstance(inner, Visible) else inner
        if isinstance(called, syntax.Call) and called.function in ("first", "last"):
            if final and self.clause == "DEFINE":
                raise self.source.mistake("FINAL cannot be used in DEFINE: the match is not complete there", node.span)
            return self._navigated(node, called, final, shift)
        last = syntax.Call("last", node.arguments[:1], span=node.span)
        return self._navigated(node, last, False, shift)

    def _navigated(self, node: syntax.Call, inner: syntax.Call, final: bool, shift: int) -> Bound:
        if not inner.arguments:
            raise self.source.mistake(
                f"{node.function.upper()} needs a value", node.span, f"write {node.function.upper()}(price)"
            )
        offset = self._offset(inner, default=0)
        variables = self._one_variable(replace(inner, arguments=inner.arguments[:1]), node.function.upper())
        row = self._last(variables, first=inner.function == "first", offset=offset, shift=shift, final=final)
        number = self.binder.row(row)
        value = replace(self, at=number, inside=node.function.upper()).value(inner.arguments[0])
        if isinstance(value, Attribute | Intrinsic):
            return replace(value, span=node.span)
        # Null where there is no such row, whatever the expression makes of nulls.
        there = Operation("not", (Operation("is_null", (_position(number),), type=BOOL),), type=BOOL)
        nothing = Constant(None, type=value.type if value.type != NULL else NULL)
        return Operation("case", (there, value, nothing), type=value.type, span=node.span)

    def _offset(self, node: syntax.Call, default: int) -> int:
        if len(node.arguments) > 2:
            raise self.source.mistake(f"{node.function.upper()} takes a value and an offset", node.span)
        if len(node.arguments) < 2:
            return default
        given = self.bound(node.arguments[1])
        if not isinstance(given, Constant) or type(given.value) is not int or given.value < 0:
            raise self.source.mistake(
                "the offset must be a whole number that is not negative",
                node.arguments[1].span,
                f"write {node.function.upper()}(price, 1)",
            )
        return given.value

    def _classifier(self, node: syntax.Call) -> Bound:
        if len(node.arguments) > 1 or any(
            not isinstance(a, syntax.Reference) or len(a.names) != 1 for a in node.arguments
        ):
            raise self.source.mistake("CLASSIFIER takes one variable or none", node.span)
        variables = None
        if node.arguments:
            (argument,) = node.arguments
            assert isinstance(argument, syntax.Reference)
            variables = self.binder.named(argument.names[0], argument.span)
        number = self.at
        if number is None:
            row = self._last(variables)
            if self.defined is not None and row == ITSELF:
                name = self.binder.tree.pattern
                return Constant(self._spelled(name, self.defined), type=STRING, span=node.span)
            number = self.binder.row(row)
        return Intrinsic(number, EventField.TYPE, type=STRING, span=node.span)

    @staticmethod
    def _spelled(pattern: row_syntax.Pattern, variable: int) -> str:
        names = dict.fromkeys(node.name.lower() for node in _in_order(pattern))
        wanted = list(names)[variable]
        return next(node.name for node in _in_order(pattern) if node.name.lower() == wanted)

    def _match_number(self, node: syntax.Call) -> Bound:
        if node.arguments:
            raise self.source.mistake("MATCH_NUMBER takes no arguments", node.span)
        if self.inside:
            raise self.source.mistake(f"MATCH_NUMBER cannot be inside {self.inside}", node.span)
        number = self.binder.row(Rows(None, False))
        return Aggregation(MATCH_NUMBER, number, Scope.ALL, None, type=INT, span=node.span)

    def _aggregate_of(self, node: syntax.Call, final: bool) -> Bound:
        name = node.function
        if len(node.arguments) > 1:
            raise self.source.mistake(f"{name.upper()} takes one value", node.span)
        if name in ("array_agg", "count_distinct") and self.clause == "DEFINE":
            written = "ARRAY_AGG" if name == "array_agg" else "COUNT(DISTINCT …)"
            raise self.source.mistake(f"{written} cannot be used in DEFINE", node.span)
        number = self.binder.row(Rows(self._one_variable(node), final))
        argument = node.arguments[0] if node.arguments else None
        if argument is None or isinstance(argument, row_syntax.RowsOf):
            if name != "count":
                raise self.source.mistake(f"{name.upper()} needs a value", node.span, f"write {name.upper()}(price)")
            return Aggregation(name, number, Scope.ALL, None, type=INT, span=node.span)
        operand = replace(self, at=number, inside=name.upper()).value(argument)
        kind = list_type(operand.type) if name == "array_agg" else self.aggregate_type(name, operand)
        return Aggregation(name, number, Scope.ALL, operand, type=kind, span=node.span)


def _position(row: int) -> Intrinsic:
    """The index of a row in its table; null if there is no such row."""
    return Intrinsic(row, EventField.END, type=INT)
