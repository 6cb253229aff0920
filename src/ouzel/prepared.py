"""`Query`: text that has been parsed and checked, ready to be bound to any input."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from html import escape
from pathlib import PurePath
from typing import Any, TypeAlias

from ouzel.algebra.binding import AlgebraQuery
from ouzel.algebra.streams import Stream
from ouzel.algebra.text import from_text
from ouzel.bind import bind, bind_script, catalog_for, parameter_names, shapes
from ouzel.bind.literals import Parameters
from ouzel.bind.model import BoundQuery, Catalog
from ouzel.bind.row_patterns import STEPS_MAX, BoundRowPattern, bind_row_pattern
from ouzel.bind.schema import type_of
from ouzel.bind.script import Member, bind_together
from ouzel.errors import InputError, QueryError
from ouzel.lang import parse_script, row_syntax, syntax
from ouzel.lang.parser import is_row_pattern, is_stream, parse_row_pattern
from ouzel.lang.statements import Clause, clauses_of, is_statement
from ouzel.notebook import Explanation, Picture, preformatted
from ouzel.plan.choose import key_strategy_of, make_plan
from ouzel.plan.explain import explain_together, explanation, render_explanation
from ouzel.plan.model import Statistics


@dataclass(frozen=True)
class Query:
    """A parsed and checked query. Make one with `ouzel.query`."""

    name: str
    text: str
    tree: syntax.Query = field(repr=False)
    # Declared event types and their attributes; None: every type has the columns of the input.
    types: Mapping[str, Any] | None = field(default=None, repr=False)
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    # What the query shares with earlier queries of its shape.
    filled: shapes.Filled | None = field(default=None, repr=False, compare=False)

    def bind(self, catalog: Catalog, *, streaming: bool = False) -> BoundQuery:
        """Bind the query to an input whose columns are known."""
        if (filled := self.of_shape) is not None:
            made = shapes.bound(filled, self.text, catalog, name=self.name, streaming=streaming)
            if made is not None:
                return made
        return bind(self.tree, self.text, catalog, self.params, name=self.name, streaming=streaming)

    def _repr_html_(self) -> str:
        return f"<b>{escape(self.name)}</b>{preformatted(self.text.strip())}"

    def __getstate__(self) -> dict[str, Any]:
        # What queries share stays in its process.
        return {**self.__dict__, "filled": None}

    @property
    def of_shape(self) -> shapes.Filled | None:
        """The data that this query shares with earlier queries of its shape; None if its fields have been changed."""
        filled = self.filled
        return filled if filled is not None and filled.tree is self.tree and not self.params else None


@dataclass(frozen=True)
class RowPatternQuery:
    """A row pattern with a name. Its text begins with MATCH_RECOGNIZE, or is the text in the parentheses."""

    name: str
    text: str
    tree: row_syntax.RowPattern = field(repr=False)
    params: Mapping[str, Any] = field(default_factory=dict, repr=False)
    steps_max: int = STEPS_MAX
    types: None = field(default=None, repr=False)

    def bind(self, catalog: Catalog, *, time: str | None = None) -> BoundRowPattern:
        """Bind the row pattern to an input whose columns are known. `time` is the time column of a stream."""
        return bind_row_pattern(
            self.tree, self.text, catalog, self.params, name=self.name, steps_max=self.steps_max, time=time
        )


# A query as text, prepared by `query`, or as an expression of the algebra.
OneQuery: TypeAlias = Query | str | Stream | AlgebraQuery | RowPatternQuery
SeveralQueries: TypeAlias = Iterable[OneQuery] | Mapping[str, OneQuery]
Queries: TypeAlias = OneQuery | SeveralQueries


def is_one(given: Any) -> bool:
    """Whether one query was given and not several, so that the answer is one table."""
    return isinstance(given, Query | str | Stream | AlgebraQuery | RowPatternQuery)


def query(
    text: str,
    types: Mapping[str, Any] | None = None,
    params: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
) -> Query:
    """Parse and check one query. Mistakes raise `ouzel.QueryError`, with a caret and a hint.

    `types` declares event types and their attributes, as `{"Shelf": {"tag_id": "string"}}` or as an Arrow schema for
    each type. Without `types`, every type has every column of the input. `params` gives the values of `:name` in the
    text.

    >>> query("PATTERN SEQ(Shelf a, Exit b) WHERE [tag] WITHIN 12 hours").name
    'query'
    """
    tree, filled = shapes.parsed(text)
    made = Query(name or tree.name or "query", text, tree, types, dict(params or {}), filled)
    catalog = _catalog(types)
    if made.of_shape is None or not shapes.is_right(made.of_shape, catalog):
        made.bind(catalog)
    return made


def queries(
    script: str, types: Mapping[str, Any] | None = None, params: Mapping[str, Any] | None = None
) -> dict[str, Query]:
    """Parse and check a script of several named queries, `name: PATTERN … ;`. They are returned in the order of the
    text.

    >>> list(queries("first: PATTERN SEQ(A a, B b) WITHIN 5; second: PATTERN SEQ(B b, C c) WITHIN 5;"))
    ['first', 'second']
    """
    tree = parse_script(script)
    bind_script(tree, script, _catalog(types), params)
    made = {}
    for number, one in enumerate(tree.queries, start=1):
        name = one.name or f"query_{number}"
        used = parameter_names(one)
        own = {key: value for key, value in (params or {}).items() if key in used}
        made[name] = Query(name, script, one, types, own)
    return made


def bind_all(
    queries: Mapping[str, Any], catalog: Callable[[Query], Catalog], *, streaming: bool = False
) -> tuple[BoundQuery, ...]:
    """Bind queries that may read each other's results (INTO, FROM). A query comes after those that it reads.

    `catalog` is a function that returns the catalog of the primary stream for a query.
    """
    patterns = {name: query for name, query in queries.items() if isinstance(query, Query)}
    members = [
        Member(q.tree, q.text, name, catalog(q), Parameters(q.params), q.of_shape) for name, q in patterns.items()
    ]
    bound = bind_together(members, streaming=streaming)
    for member in members:
        member.parameters.check_all_used(member.text)
    return bound


def explain(
    query: Queries,
    format: str = "text",
    *,
    params: Mapping[str, Any] | None = None,
    types: Mapping[str, Any] | None = None,
    distinct: Mapping[str, int] | None = None,
    rates: Mapping[str, float] | None = None,
    hints: Mapping[str, str] | None = None,
    off: Collection[str] = (),
) -> Explanation | Picture:
    """The plan of a query and the reasons for it: its automaton, its operators, the rules, the kernel.

    A text with MATCH_RECOGNIZE, or the text of such a clause, is explained too; its `types` are the types of columns.
    `format` is text, json or svg. `params` gives the values of `:name` in texts. `distinct` gives the number of
    distinct values of key attributes. `hints` is the argument of `match`. `off` names rules to switch off. For several
    queries, text and json also show what the queries share; for this, `rates` gives the share of all events that each
    type has.

    >>> print(explain("PATTERN SEQ(A a, B b) WHERE [id] WITHIN 10").splitlines()[0])
    query query
    """
    statistics = Statistics(distinct or {}, key_strategy_of(hints), rates=rates or {})
    if isinstance(query, str) and (is_statement(query) or is_row_pattern(query)):
        return _shown(_explain_row_patterns(query, format, params, types), format)
    if isinstance(query, Stream | AlgebraQuery) or (isinstance(query, str) and is_stream(query)):
        (expression,) = as_queries(query, params).values()
        plan = make_plan(expression.bind(_catalog(types)), off=off)
        return _shown(render_explanation(explanation(plan), format), format)
    if not isinstance(query, Query | str):
        several = as_queries(query, params)
        return _shown(_explain_several(several, format, statistics, off), format)
    made = globals()["query"](query, types, params) if isinstance(query, str) else query
    bound = made.bind(_catalog(made.types))
    plan = make_plan(bound, statistics, off=off)
    return _shown(render_explanation(explanation(plan), format), format)


def row_patterns_of(text: str, params: Mapping[str, Any] | None = None) -> list[tuple[RowPatternQuery, Clause | None]]:
    """The row patterns of an SQL statement, each with its place; or the one row pattern of a text."""
    if is_row_pattern(text):
        return [(RowPatternQuery("query", text, parse_row_pattern(text), dict(params or {})), None)]
    clauses = clauses_of(text)
    if not clauses:
        raise QueryError("the statement has no MATCH_RECOGNIZE", hint="write FROM ticks MATCH_RECOGNIZE (…)")
    found: list[tuple[RowPatternQuery, Clause | None]] = []
    for number, clause in enumerate(clauses, 1):
        with clause.placing():
            tree = parse_row_pattern(clause.text)
        used = parameter_names(tree)
        own = {key: value for key, value in (params or {}).items() if key in used}
        name = "query" if len(clauses) == 1 else f"clause_{number}"
        found.append((RowPatternQuery(name, clause.text, tree, own), clause))
    return found


def _explain_row_patterns(
    text: str, format: str, params: Mapping[str, Any] | None, types: Mapping[str, Any] | None
) -> str:
    catalog = Catalog(common=None if types is None else {name: type_of(one) for name, one in types.items()})
    shown = []
    for query, clause in row_patterns_of(text, params):
        with nullcontext() if clause is None else clause.placing():
            plan = make_plan(query.bind(catalog))
        shown.append(render_explanation(explanation(plan), format))
    if len(shown) > 1 and format == "svg":
        raise InputError("several clauses are explained as text or json, not as 'svg'; explain them one by one")
    return "\n\n".join(shown) if format != "json" or len(shown) == 1 else f"[{', '.join(shown)}]"


def _shown(text: str, format: str) -> Explanation | Picture:
    return Picture(text) if format == "svg" else Explanation(text)


def _explain_several(queries: dict[str, Any], format: str, statistics: Statistics, off: Collection[str]) -> str:
    """The explanation of each query, and of what they share."""
    if format not in ("text", "json"):
        raise InputError(f"several queries are explained as text or json, not as '{format}'; explain them one by one")
    if any(isinstance(query, RowPatternQuery) for query in queries.values()):
        raise InputError("row patterns are explained one by one; leave MATCH_RECOGNIZE out of the list")
    bound = bind_all(queries, lambda query: _catalog(query.types))
    plans = {one.name: make_plan(one, statistics, off=off) for one in bound}
    texts = [render_explanation(explanation(plan), format) for plan in plans.values()]
    lines = explain_together(plans, statistics, off)
    if format == "json":
        queries = dict(zip(plans, map(json.loads, texts), strict=True))
        return json.dumps({"queries": queries, "sharing": lines}, indent=2)
    return "\n\n".join([*texts, "\n".join(["sharing", *(f"  {line}" for line in lines)])])


def as_queries(given: Any, params: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """One query or several, by name. Each may be a text, a `Query` or an algebra expression.

    Each text gets those of `params` that it names.
    """
    if is_one(given):
        given = [given]
    if params is not None and not isinstance(params, Mapping):
        raise InputError(f"params= must be a dictionary of values by name, got a {type(params).__name__}")
    values = _Values(params or {})
    if isinstance(given, Mapping):
        for name in given:
            if not isinstance(name, str):
                raise InputError(f"the name of a query must be text, got {name!r}")
        made = {name: _named(values.prepared(one, name), name) for name, one in given.items()}
    elif not isinstance(given, Iterable) or hasattr(given, "columns"):
        # A frame is an iterable of the names of its columns.
        raise _not_a_query(given)
    else:
        made = {}
        for one in given:
            prepared = values.prepared(one)
            name = prepared.name
            number = 2
            while name in made:
                name, number = f"{prepared.name}_{number}", number + 1
            made[name] = _named(prepared, name)
    values.check_all_used()
    return made


class _Values:
    """The values of parameters, and which of them a text or expression has used."""

    def __init__(self, params: Mapping[str, Any]) -> None:
        self._params = dict(params)
        self._unused = set(params)

    def prepared(self, one: Any, name: str | None = None) -> Any:
        if isinstance(one, str) and is_row_pattern(one):
            tree = parse_row_pattern(one)
            return RowPatternQuery(name or "query", one, tree, self._used_by(tree))
        if isinstance(one, str) and is_stream(one):
            one = from_text(one)
        if isinstance(one, str):
            return query(one, params=self._used_by(shapes.parsed(one)[0]) if self._params else {}, name=name)
        if not isinstance(one, Query | Stream | AlgebraQuery | RowPatternQuery):
            raise _not_a_query(one)
        if isinstance(one, Stream):
            self._unused.clear()
            return AlgebraQuery(name or "query", one, self._params)
        return one

    def _used_by(self, tree: syntax.Node) -> dict[str, Any]:
        used = parameter_names(tree)
        self._unused -= used
        return {key: value for key, value in self._params.items() if key in used}

    def check_all_used(self) -> None:
        if self._unused:
            raise QueryError(
                f"no query given as text uses the parameter '{min(self._unused)}'",
                hint="a query made by ouzel.query has its own params",
            )


def _not_a_query(given: Any) -> InputError:
    hint = ""
    if isinstance(given, PurePath):
        hint = "; read the file with read_text()"
    elif isinstance(given, Mapping) or hasattr(given, "columns"):
        hint = "; the events come first, then the query"
    return InputError(f"a query must be text or made by ouzel.query, got a {type(given).__name__}{hint}")


def _named(one: Any, name: str) -> Any:
    return one if one.name == name else replace(one, name=name)


def _catalog(types: Mapping[str, Any] | None) -> Catalog:
    return catalog_for(types)
