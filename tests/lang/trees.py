"""Random syntax trees: everything that a text can give, for the round trip through text."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal

from hypothesis import strategies as st

from ouzel.lang import syntax
from ouzel.lang.stream_syntax import Operation, Pipeline, Source, name_of
from ouzel.lang.syntax import (
    Aggregate,
    Between,
    Binary,
    Call,
    Case,
    Component,
    Contiguity,
    Duration,
    Equivalence,
    Expr,
    Group,
    GroupKind,
    In,
    Index,
    IndexKind,
    IsNull,
    Item,
    Like,
    Literal,
    Logical,
    Notation,
    Output,
    OutputForm,
    Parameter,
    Pattern,
    Percent,
    Presence,
    Query,
    Reference,
    Return,
    Script,
    Selection,
    Step,
    Strategy,
    Temporal,
    TemporalKind,
    Threshold,
    TypeName,
    Unary,
    When,
    Within,
)

text = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
# Plain words, keywords of every kind, words that look like units, hyphens, and whatever must be quoted.
names = st.one_of(
    st.sampled_from(
        ["a", "b", "x1", "attr₃", "price", "i", "LEN", "last", "type", "time", "s", "hours", "count", "Größe"]
    ),
    st.sampled_from(
        ["from", "Event", "GROUP", "emit", "end", "when", "and", "not", "in", "as", "seq", "Any", "null", "case"]
    ),
    st.sampled_from(
        ["events", "on", "date", "timestamp", "interval", "escape", "output", "first", "skip", "DECIMAL", "by"]
    ),
    st.sampled_from(
        ["SHELF-READING", "a-1", "x-", "-x", "two words", 'q"uote', "tick`", "1a", "a.b", "[x]", "é\u0301", "--"]
    ),
    text.filter(bool),
)
words = st.sampled_from(["a", "tag", "from", "window_us", "Größe", "end"])
functions = st.sampled_from(["count", "sum", "avg", "min", "abs", "end", "type", "coalesce", "skip_till_next_match"])
integers = st.integers(0, 10**20)
decimals = st.builds(
    lambda digits, exponent: Decimal(digits).scaleb(-exponent), st.integers(0, 10**12), st.integers(-6, 20)
).filter(lambda number: "E" in str(number) or "." in str(number))
numbers = st.one_of(integers, decimals)
units = st.sampled_from(["us", "ms", "s", "min", "h", "days", "weeks"])
temporals = st.one_of(
    st.dates().map(lambda day: Temporal(TemporalKind.DATE, day.isoformat())),
    st.datetimes().map(lambda moment: Temporal(TemporalKind.TIMESTAMP, moment.isoformat(" "))),
    st.sampled_from(["2024-05-01T12:00", "2024-05-01 12:00:00.123456789Z", "2024-05-01", "2024-05-01 12:00+02:00"]).map(
        lambda written: Temporal(TemporalKind.TIMESTAMP, written)
    ),
)
indexes = st.one_of(
    st.builds(Index, st.just(IndexKind.NUMBER), integers),
    st.builds(Index, st.just(IndexKind.ITERATION), st.integers(-3, 3)),
    st.builds(Index, st.just(IndexKind.LAST), st.just(0), st.none() | names),
    st.just(Index(IndexKind.BEFORE, -1)),
    st.just(Index(IndexKind.ALL)),
)


def tuples(elements: st.SearchStrategy, low: int, high: int) -> st.SearchStrategy[tuple]:
    return st.lists(elements, min_size=low, max_size=high).map(tuple)


leaves: st.SearchStrategy[Expr] = st.one_of(
    st.builds(Literal, st.one_of(numbers, text, st.booleans(), st.none())),
    st.builds(Percent, numbers),
    temporals,
    st.builds(Duration, numbers, units),
    st.builds(Parameter, words),
    st.builds(Reference, tuples(names, 1, 3), st.none() | indexes),
)


def branches(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    return st.one_of(
        st.builds(Reference, tuples(names, 2, 3), st.none() | indexes, inner),
        st.builds(Call, functions, tuples(inner, 0, 3)),
        st.builds(Unary, st.sampled_from(["-", "NOT"]), inner),
        st.builds(Binary, st.sampled_from(["+", "-", "*", "/", "%", "=", "!=", "<", "<=", ">", ">="]), inner, inner),
        st.builds(Logical, st.sampled_from(["AND", "OR"]), tuples(inner, 2, 4)),
        st.builds(In, inner, tuples(inner, 1, 3), st.booleans()),
        st.builds(Between, inner, inner, inner, st.booleans()),
        st.builds(Like, inner, inner, st.booleans(), st.none() | st.sampled_from(["\\", "'", "%"])),
        st.builds(IsNull, inner, st.booleans()),
        st.builds(Presence, names, st.booleans()),
        st.builds(Case, st.none() | inner, tuples(st.builds(When, inner, inner), 1, 2), st.none() | inner),
        st.builds(Equivalence, tuples(names, 1, 2), st.none() | inner),
    )


expressions = st.recursive(leaves, branches, max_leaves=12)
items = st.builds(Item, expressions, st.none() | names)


@st.composite
def components(draw: st.DrawFn, notation: Notation) -> Component:
    types = draw(tuples(st.builds(TypeName, names), 0, 3))
    any_of = (
        len(types) > 1
        or (len(types) == 1 and draw(st.booleans()))
        or (not types and (notation is Notation.PATTERN or draw(st.booleans())))
    )
    needs_variable = notation is Notation.SEQUENCE and not any_of
    variable = draw(names if needs_variable else st.none() | names)
    negated = draw(st.booleans())
    kleene = (bool(types) or any_of) and not negated and draw(st.booleans())
    least = 1 if negated else draw(st.integers(0, 3) if kleene else st.integers(0, 1))
    most = draw(st.none() | st.integers(max(least, 1), 4)) if kleene else None
    return Component(types, variable, kleene, negated, any_of, least, most)


@st.composite
def parts(draw: st.DrawFn, notation: Notation, depth: int = 2) -> Component | Group:
    if depth == 0 or draw(st.booleans()):
        return draw(components(notation))
    kind = draw(st.sampled_from(GroupKind))
    inner = draw(tuples(parts(notation, depth - 1), 1 if kind is GroupKind.SEQ else 2, 3))
    if kind is not GroupKind.SEQ:
        inner = tuple(replace(part, negated=False) for part in inner)
    least, most = draw(st.sampled_from([(1, 1), (0, 1), (2, 3), (1, None), (0, None), (2, 2)]))
    return Group(kind, inner, least, most)


@st.composite
def patterns(draw: st.DrawFn) -> Pattern:
    notation = draw(st.sampled_from(Notation))
    bare = draw(st.booleans())
    found = draw(tuples(parts(notation), 1, 1 if bare else 4))
    # SEQ(…) alone is the pattern itself.
    bare = bare and not (isinstance(found[0], Group) and found[0].kind is GroupKind.SEQ)
    return Pattern(notation, found, bare)


@st.composite
def aggregates(draw: st.DrawFn) -> Aggregate:
    function = draw(st.sampled_from(["count", "sum", "avg", "min", "max"]))
    argument = draw(st.none() | expressions if function == "count" else expressions)
    return Aggregate(function, argument, draw(st.none() | names), function == "count" and draw(st.booleans()))


@st.composite
def outputs(draw: st.DrawFn) -> Output:
    form = draw(st.sampled_from(OutputForm))
    return Output(form, draw(names) if form in (OutputForm.SKIP_TO_FIRST, OutputForm.SKIP_TO_LAST) else None)


withins = st.one_of(
    st.builds(
        Within, st.one_of(st.builds(Duration, numbers, units), st.builds(Literal, numbers), st.builds(Parameter, words))
    ),
    st.builds(Within, st.one_of(st.builds(Literal, integers), st.builds(Parameter, words)), st.just(True)),
)
thresholds = st.builds(
    Threshold,
    st.one_of(st.builds(Literal, numbers), st.builds(Percent, numbers), st.builds(Parameter, words)),
    st.booleans(),
)
returns = st.one_of(
    st.builds(Return, st.none(), tuples(items, 1, 3)),
    st.builds(Return, names, tuples(items, 0, 3)),
)


strategies = st.builds(
    Selection, st.sampled_from([s for s in Strategy if s is not Strategy.CONTIGUITY]), tuples(names, 0, 3)
)
steps = tuples(st.builds(Step, names, st.sampled_from(Contiguity), st.booleans()), 1, 3)


@st.composite
def queries(draw: st.DrawFn, name: st.SearchStrategy[str | None] = st.none() | names) -> Query:  # noqa: B008
    selection = draw(st.none() | strategies | st.builds(Selection, st.just(Strategy.CONTIGUITY), st.just(()), steps))
    where = draw(st.none() | expressions)
    if (
        selection is None
        and isinstance(where, Call)
        and where.function in {strategy.value for strategy in syntax.Strategy}
    ):
        where = None  # A strategy without its body, which is refused.
    return Query(
        pattern=draw(patterns()),
        name=draw(name),
        selection=selection,
        where=where,
        group_by=draw(tuples(items, 0, 2)),
        aggregates=draw(tuples(aggregates(), 0, 2)),
        having=draw(st.none() | expressions),
        within=draw(st.none() | withins),
        threshold=draw(st.none() | thresholds),
        output=draw(st.none() | outputs()),
        emit_on_change=draw(st.booleans()),
        returns=draw(st.none() | returns),
        into=draw(st.none() | names),
        sources=draw(tuples(names, 0, 3)),
    )


scripts = st.lists(queries(names), min_size=1, max_size=3, unique_by=lambda query: query.name).map(
    lambda several: Script(tuple(several))
)


# ── Expressions of the algebra ─────────────────────────────────────────────────────────────────────

paths = st.lists(names, min_size=1, max_size=2).map(lambda parts: Reference(tuple(parts)))
values = st.lists(st.builds(Item, expressions, names), min_size=1, max_size=2, unique_by=lambda item: item.alias).map(
    tuple
)
unary_operations = st.one_of(
    st.builds(Operation, st.just("WHERE"), condition=expressions),
    st.builds(Operation, st.just("PROJECT"), st.lists(st.builds(Item, paths), max_size=3).map(tuple)),
    st.builds(
        Operation,
        st.just("RENAME"),
        st.lists(
            st.builds(Item, paths, names), min_size=1, max_size=2, unique_by=lambda item: name_of(item.expression)
        ).map(tuple),
    ),
    st.builds(Operation, st.just("EXTEND"), values),
)
sources = st.builds(
    Source,
    st.none() | names,
    st.lists(
        st.tuples(names, st.sampled_from(["string", "date", "list<int>", "next"]) | text),
        max_size=2,
        unique_by=lambda column: column[0],
    ).map(tuple),
    st.none() | names,
)


def _larger(inner: st.SearchStrategy[Pipeline]) -> st.SearchStrategy[Pipeline]:
    conditions = st.none() | expressions
    operations = st.one_of(
        unary_operations,
        st.builds(Operation, st.just("UNION"), operand=inner),
        st.builds(Operation, st.just("NEXT"), condition=conditions, operand=inner),
        st.builds(
            Operation,
            st.just("FOLD"),
            st.just(()) | values,
            conditions,
            inner,
            st.lists(unary_operations, max_size=2).map(tuple),
        ),
    )
    several = st.lists(operations, max_size=2).map(tuple)
    aliased = st.builds(Pipeline, inner, names, several)
    return st.builds(Pipeline, sources, st.none() | names, several) | aliased


streams = st.recursive(st.builds(Pipeline, sources, st.none() | names), _larger, max_leaves=4)
