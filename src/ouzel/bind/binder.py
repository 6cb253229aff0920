"""Binding: takes a syntax tree and a catalog of event types, returns a checked `BoundQuery`."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from ouzel.bind.clauses import (
    REACHED,
    SCORE_COLUMNS,
    SPAN_COLUMNS,
    bind_aggregates,
    bind_group_by,
    bind_having,
    bind_output,
    bind_return,
    bind_steps,
    bind_strategy,
    bind_threshold,
    bind_window,
    check_default_columns,
    check_defaults,
    check_negation_at_ends,
    check_partitions,
    check_threshold_query,
    implied_tests,
    with_furthest,
)
from ouzel.bind.conjuncts import bind_conjuncts, bind_equivalences, split_where
from ouzel.bind.diagnostics import Source
from ouzel.bind.expressions import Expressions
from ouzel.bind.literals import Parameters
from ouzel.bind.model import Attribute, Bound, BoundQuery, Catalog, Intrinsic
from ouzel.bind.names import COMPONENTS_MAX, Place, bind_pattern
from ouzel.bind.nested import check_nested
from ouzel.bind.readings import bounds
from ouzel.bind.repetition import written_out
from ouzel.bind.typing import Typing
from ouzel.lang import syntax
from ouzel.lang.syntax import Contiguity, OutputForm, Span, Strategy

# Levels of a tree. The parser's limit is lower, but trees built by hand may be deeper.
DEPTH_MAX = 150


def bind(
    query: syntax.Query,
    text: str,
    catalog: Catalog,
    params: Mapping[str, Any] | None = None,
    *,
    name: str | None = None,
    streaming: bool = False,
) -> BoundQuery:
    """Resolve all names and types of a query. Each mistake raises a `QueryError` with its place in the text.

    `catalog` describes the events that the query reads. With FROM these are the events of its sources; see
    `bind_script`. With an open catalog only the structure is checked, and the query is bound again once the schema is
    known.

    >>> from ouzel.lang import parse
    >>> text = "PATTERN SEQ(Shelf a, Exit c) WHERE [tag] AND a.weight > 3 WITHIN 12 hours"
    >>> bound = bind(parse(text), text, Catalog())
    >>> [component.variable for component in bound.components], len(bound.conjuncts)
    (['a', 'c'], 1)
    """
    parameters = Parameters(params or {})
    own_name = name or query.name or "query"
    bound = bind_with(query, text, catalog, parameters, name=own_name, streaming=streaming)
    parameters.check_all_used(text)
    return bound


def bind_with(
    query: syntax.Query, text: str, catalog: Catalog, parameters: Parameters, *, name: str, streaming: bool
) -> BoundQuery:
    """Like `bind`, with parameters that several queries of a script share."""
    source = Source(text)
    syntax.check_depth(query, DEPTH_MAX)
    query = written_out(query, COMPONENTS_MAX, source)
    names = with_furthest(query, bind_pattern(query.pattern, catalog, source))
    defaults: dict[Attribute | Intrinsic, Bound] = {}
    where = Expressions(source, names, Typing(source, catalog.time), parameters, Place.WHERE, defaults)

    def expressions(place: Place) -> Expressions:
        return dataclasses.replace(where, place=place)

    _check_clauses(query, source)
    strategy = bind_strategy(query.selection, names)
    steps = bind_steps(query.selection, names)
    if all(step.contiguity is Contiguity.ANY for step in steps) and strategy is Strategy.CONTIGUITY:
        strategy, steps = Strategy.SKIP_TILL_ANY_MATCH, ()
    window = bind_window(query.within, where)
    check_negation_at_ends(names, window)
    tests, rest = split_where(query.where)
    implied = implied_tests(query, where)
    equivalences = bind_equivalences([*tests, *implied], where)
    conjuncts = bind_conjuncts(rest, where)
    output = bind_output(query.output, names)
    has_nested = any(component.nested is not None for component in names.components)
    readings = names.readings if len(names.readings) > 1 or has_nested else ()
    check_nested(conjuncts, names)
    if not readings:
        for step in names.readings[0]:
            conjuncts += tuple(bounds(step, step.component, strategy, names.components))
    threshold = bind_threshold(query.threshold, where)
    group_by = bind_group_by(query.group_by, expressions(Place.GROUP_BY), equivalences)
    over_matches = expressions(Place.AGGREGATE)
    aggregates = bind_aggregates(query.aggregates, over_matches, group_by)
    having, aggregates = bind_having(query.having, over_matches, group_by, aggregates)
    reserved: tuple[str, ...] = SPAN_COLUMNS if threshold is None else SPAN_COLUMNS + SCORE_COLUMNS
    if output.form is OutputForm.FURTHEST:
        reserved += (REACHED,)
    returns = bind_return(query.returns, expressions(Place.RETURN), equivalences, reserved)
    if returns is None and not aggregates:
        check_default_columns(names.components, source, reserved)
    check_partitions(_needs_of_partitions(query, strategy, implied), equivalences, names)
    check_defaults(defaults, source, may_miss=threshold is not None)
    if threshold is not None:
        if readings:
            raise source.mistake(
                "THRESHOLD needs a pattern without optional parts, alternatives and negated sequences",
                query.pattern.span,
                "THRESHOLD itself reports matches with missing events",
            )
        check_threshold_query(query, names.components, strategy, window, conjuncts, defaults, source)
    if streaming and window is None and not aggregates:
        hint = "add WITHIN with a duration, such as WITHIN 12 hours"
        raise source.mistake(
            "a query on a stream needs WITHIN, or its state grows without bound", query.pattern.span, hint
        )
    return BoundQuery(
        name=name,
        text=text,
        notation=query.pattern.notation,
        components=names.components,
        strategy=strategy,
        conjuncts=conjuncts,
        equivalences=equivalences,
        window=window,
        output=output,
        returns=returns,
        result_type=(query.returns.name if query.returns else None) or query.into or name,
        into=query.into,
        sources=query.sources or ("input",),
        catalog=catalog,
        group_by=group_by,
        aggregates=aggregates,
        having=having,
        emit_on_change=query.emit_on_change,
        threshold=threshold,
        defaults=defaults,
        steps=steps,
        readings=readings,
    )


def _check_clauses(query: syntax.Query, source: Source) -> None:
    """Raise an error for clauses that cannot be combined."""
    if query.aggregates:
        if query.returns is not None:
            raise source.mistake(
                "RETURN and AGG cannot be used together",
                query.returns.span,
                "name the columns in AGG and GROUP BY with AS",
            )
        if query.output is not None and query.output.form is not OutputForm.ALL:
            compressed = query.output.form is OutputForm.COMPRESSED
            raise source.mistake(
                f"OUTPUT {query.output.form.value} and AGG cannot be used together",
                query.output.span,
                f"leave AGG out and {'sum the column count' if compressed else 'count the rows'} of the answer",
            )
        if query.threshold is not None:
            raise source.mistake("THRESHOLD and AGG cannot be used together", query.threshold.span)
        if query.within is not None and query.within.in_events:
            raise source.mistake("AGG needs a window in time, not in events", query.within.span)
    else:
        if query.group_by:
            raise source.mistake("GROUP BY needs AGG", query.group_by[0].span, "add AGG COUNT, or test [attr] in WHERE")
        if query.having is not None:
            raise source.mistake("HAVING needs AGG", query.having.span, "put a condition on single matches into WHERE")
        if query.emit_on_change:
            raise source.mistake("EMIT ON CHANGE needs AGG", query.span)
    if query.output is not None and query.output.form is OutputForm.BEST and query.threshold is None:
        raise source.mistake("OUTPUT BEST needs THRESHOLD", query.output.span)


def _needs_of_partitions(
    query: syntax.Query, strategy: Strategy, implied: list[syntax.Equivalence]
) -> list[tuple[str, Span]]:
    """Clauses that need every positive event to be in a partition (docs/semantics.md, "Equivalence tests")."""
    needs: list[tuple[str, Span]] = []
    if strategy is Strategy.PARTITION_CONTIGUITY and query.selection is not None:
        needs.append(("partition_contiguity", query.selection.span))
    if query.selection is not None:
        partition = [step for step in query.selection.steps if step.contiguity is Contiguity.PARTITION]
        needs += [("contiguity(… partition)", step.span) for step in partition[:1]]
    if query.within is not None and query.within.in_events:
        needs.append(("WITHIN … EVENTS", query.within.span))
    if query.output is not None and query.output.form is not OutputForm.ALL:
        needs.append((f"OUTPUT {query.output.form.value}", query.output.span))
    needs += [(f"GROUP BY {'.'.join(test.names)}", test.span) for test in implied]
    return needs
