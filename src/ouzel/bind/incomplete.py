"""What THRESHOLD requires of a query (AYAC; docs/semantics.md, "Incomplete streams")."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ouzel.bind.conjuncts import named_in
from ouzel.bind.diagnostics import Source, quoted
from ouzel.bind.model import Attribute, Bound, Component, Conjunct, EventWindow, Intrinsic, TimeWindow, parts
from ouzel.bind.normal_form import comparisons_of, is_junction
from ouzel.lang import syntax
from ouzel.lang.syntax import OutputForm, Span, Strategy

Defaults = Mapping[Attribute | Intrinsic, Bound]


def check_defaults(defaults: Defaults, source: Source) -> None:
    """Refuse defaults that refer to each other in a cycle. Defaults are few, so each one is followed to its end."""
    for attribute in defaults:
        seen: set[Bound] = set()
        waiting = [attribute]
        while waiting:
            for part in parts(defaults[waiting.pop()]):
                if part == attribute:
                    raise source.mistake(
                        "the default cannot depend on itself",
                        attribute.span,
                        "make it end at the last component, which is never missing",
                    )
                if isinstance(part, Attribute | Intrinsic) and part in defaults and part not in seen:
                    seen.add(part)
                    waiting.append(part)


def check_threshold_query(
    query: syntax.Query,
    components: Sequence[Component],
    strategy: Strategy,
    window: TimeWindow | EventWindow | None,
    conjuncts: Sequence[Conjunct],
    defaults: Defaults,
    source: Source,
) -> None:
    """A query with THRESHOLD must use any match, no +, a window in time, and an observed last component."""
    assert query.threshold is not None
    where = query.threshold.span
    last = components[-1]
    if last.negated:
        raise source.mistake(
            "with THRESHOLD the last component must be positive", last.span, "it is the one that is always observed"
        )
    for component in components:
        if component.kleene:
            raise source.mistake("with THRESHOLD a component cannot have +", component.span)
    if strategy is not Strategy.SKIP_TILL_ANY_MATCH:
        span = query.selection.span if query.selection else where
        raise source.mistake("with THRESHOLD the strategy must be skip_till_any_match", span)
    if not isinstance(window, TimeWindow):
        raise source.mistake(
            "THRESHOLD needs WITHIN in time", where, "add WITHIN with a duration, such as WITHIN 12 hours"
        )
    if query.output is not None and query.output.form not in (OutputForm.ALL, OutputForm.BEST):
        raise source.mistake(f"OUTPUT {query.output.form.value} cannot be used with THRESHOLD", query.output.span)
    _check_own_predicates(components, conjuncts, source)
    _check_defaults_given(components, conjuncts, defaults, source)


def _check_own_predicates(components: Sequence[Component], conjuncts: Sequence[Conjunct], source: Source) -> None:
    """In the disjunctive form, every disjunct must have a predicate of each component alone, unless the component has a
    type.

    This holds if some conjunct has only predicates of this component. Otherwise a disjunct can take a different
    comparison from every conjunct, and has none.
    """
    for component in components:
        has_own = any(
            all(_demands_own(alternative, component.position) for alternative in conjunct.comparisons)
            for conjunct in conjuncts
        )
        if component.types is None and not has_own:
            name = component.variable
            raise source.mistake(
                f"{quoted(name)} needs a type or a condition of its own that every alternative contains",
                component.span,
                f"add one such as {name}.reader = 'exit'",
            )


def _demands_own(condition: Bound, position: int) -> bool:
    """Whether every disjunct of a condition has a comparison of this component alone."""
    if is_junction(condition):
        found = (_demands_own(operand, position) for operand in condition.operands)
        return any(found) if condition.operator == "and" else all(found)
    return {part.component for part in named_in([condition])} == {position}


def _check_defaults_given(
    components: Sequence[Component], conjuncts: Sequence[Conjunct], defaults: Defaults, source: Source
) -> None:
    """Comparing a component that may be missing with anything else needs a default for it."""
    last = components[-1].position
    needed: list[tuple[Bound, Span]] = []
    for conjunct in conjuncts:
        for comparison in comparisons_of(*conjunct.comparisons):
            named = list(named_in([comparison]))
            if len({part.component for part in named}) > 1:
                needed += [(part, part.span) for part in named]
    for default in defaults.values():
        needed += [(part, part.span) for part in named_in([default])]
    for part, span in needed:
        if not isinstance(part, Attribute | Intrinsic) or part in defaults:
            continue
        component = components[part.component]
        if component.position != last and not component.negated:
            name = ".".join(part.path) if isinstance(part, Attribute) else part.field.value
            raise source.mistake(
                f"{quoted(component.variable)} may be missing, so '{component.variable}.{name}' needs a default here",
                span,
                f"write it in brackets: {component.variable}.{name}[{components[-1].variable}.{name}]",
            )
