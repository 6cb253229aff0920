"""docs/semantics.md, "Conditions" and "Kleene components": conjuncts, v[i] and v.attr, and where each is tested."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, partial

from ouzel.lang import syntax
from ouzel.lang.syntax import Expr, Index, IndexKind, Reference
from tests.oracle.events import Event
from tests.oracle.expressions import (
    Scope,
    Settings,
    attribute,
    children,
    comparison_holds,
    evaluate,
    is_aggregate,
    is_length,
    lacks,
    references,
    rewritten,
    variable_of,
)
from tests.oracle.readings import Reading, readings, with_names
from tests.oracle.values import compare, sort_key

OPPOSITE = {"=": "!=", "!=": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}


class Edge(IntEnum):
    """The edges of NFA^b on which conjuncts are tested, in the order in which a run comes to them."""

    BEGIN = 0  # of a single component or of v[1]
    TAKE = 1  # of v[i]
    PROCEED = 2  # out of v


@dataclass(frozen=True)
class Component:
    """A component of SEQ with its number there. `name` is its variable, or a name for the output where it has none."""

    number: float
    name: str
    types: frozenset[str]
    kleene: bool
    negated: bool
    least: int = 1
    most: int | None = None
    # WITHOUT: the variables between whose first and last event it forbids.
    across: frozenset[str | None] = frozenset()

    def is_of_right_type(self, event: Event) -> bool:
        """No types: "a variable of any type"."""
        return not self.types or event.type in self.types


@dataclass(frozen=True)
class Conjunct:
    """A disjunction of comparisons. `last` is its last identifier: a component's number and an edge of it."""

    comparisons: tuple[Expr, ...]
    names: frozenset[str]
    last: tuple[float, Edge]
    iterated: str | None
    is_of_one_event: bool


@dataclass(frozen=True)
class Conditions:
    """One reading of a query's pattern, and WHERE, taken apart."""

    query: syntax.Query
    settings: Settings
    # None: the pattern has one reading.
    reading: Reading | None = None

    @cached_property
    def pattern(self) -> syntax.Pattern:
        return with_names(self.query.pattern)

    @cached_property
    def components(self) -> tuple[Component, ...]:
        """Those of the reading, in order, then those after WITHOUT."""
        reading = readings(self.pattern)[0] if self.reading is None else self.reading
        written = [(component, frozenset()) for component in reading.components]
        present = {component.variable for component in reading.components if not component.negated}
        # "WITHOUT says nothing where its part is absent."
        written += [(one.component, one.variables) for one in reading.forbidden if one.variables & present]
        return tuple(_component(number, component, across) for number, (component, across) in enumerate(written))

    @cached_property
    def absent(self) -> tuple[Component, ...]:
        """The components that the reading does not have."""
        present = {component.name for component in self.components}
        others = {c.variable: _component(-1, c) for c in self.pattern.components if c.variable not in present}
        return tuple(others.values())

    @cached_property
    def by_name(self) -> Mapping[str, Component]:
        return {component.name: component for component in (*self.components, *self.absent)}

    @cached_property
    def positives(self) -> tuple[Component, ...]:
        return tuple(component for component in self.components if not component.negated)

    @property
    def bare_variable(self) -> str | None:
        return self.components[0].name if len(self.by_name) == 1 else None

    def component_of(self, reference: Reference) -> Component:
        return self.by_name[variable_of(reference, self.by_name, self.bare_variable)]

    # ── Conjunctive form ───────────────────────────────────────────────────────────────────────────

    @cached_property
    def _conjunctive_form(self) -> tuple[tuple[Expr, ...], ...]:
        """ "WHERE is put in conjunctive form, by De Morgan and distribution only." (Duplicates change no answer.)"""
        if self.query.where is None:
            return ()
        form = conjunctive_form(with_not_pushed_in(self.query.where, negate=False))
        # "A conjunct of WHERE that names an absent variable holds."
        absent = {component.name for component in self.absent}
        return tuple(
            disjuncts
            for disjuncts in form
            if not any(self.component_of(r).name in absent for one in disjuncts for r in references(one))
        )

    @cached_property
    def equivalences(self) -> tuple[syntax.Equivalence, ...]:
        alone = (disjuncts[0] for disjuncts in self._conjunctive_form if len(disjuncts) == 1)
        return tuple(test for test in alone if isinstance(test, syntax.Equivalence))

    @cached_property
    def conjuncts(self) -> tuple[Conjunct, ...]:
        """All conjuncts but the equivalence tests, those with v.attr made into two."""
        conjuncts = []
        for disjuncts in self._conjunctive_form:
            if isinstance(disjuncts[0], syntax.Equivalence) and len(disjuncts) == 1:
                continue
            assert not any(isinstance(d, syntax.Equivalence) for d in disjuncts), "[attr] stands alone in a conjunct"
            conjuncts += [self._conjunct(indexed) for indexed in self._with_unindexed_made_two(disjuncts)]
        return tuple(conjuncts)

    def _with_unindexed_made_two(self, disjuncts: tuple[Expr, ...]) -> Iterator[tuple[Expr, ...]]:
        """ "A conjunct with v.attr means that conjunct with v[1] and that conjunct with v[i]." """

        def is_unindexed(reference: Reference) -> bool:
            kleene = self.component_of(reference).kleene
            return kleene and reference.index is None and not is_length(reference, kleene)

        def with_index(index: Index, reference: Reference) -> Reference:
            if not is_unindexed(reference):
                return reference
            variable = self.component_of(reference).name
            names = reference.names if reference.names[0] == variable else (variable, *reference.names)
            return dataclasses.replace(reference, names=names, index=index)

        if not any(is_unindexed(reference) for disjunct in disjuncts for reference in references(disjunct)):
            yield disjuncts
            return
        for index in (Index(IndexKind.NUMBER, 1), Index(IndexKind.ITERATION, 0)):
            yield tuple(rewritten(disjunct, partial(with_index, index)) for disjunct in disjuncts)

    # ── The last identifier ────────────────────────────────────────────────────────────────────────

    def _conjunct(self, disjuncts: tuple[Expr, ...]) -> Conjunct:
        """ "A conjunct without negative components is tested at its *last* identifier." One that names nothing is
        tested first of all."""
        identifiers = {identifier for disjunct in disjuncts for identifier in self._identifiers(disjunct)}
        names = frozenset(component.name for component, _, _ in identifiers)
        positive = [(component.number, edge) for component, edge, _ in identifiers if not component.negated]
        iterated = {component.name for component, edge, _ in identifiers if edge is Edge.TAKE}
        assert len(iterated) <= 1, "a conjunct may index only one variable by i"
        assert sum(self.by_name[name].negated for name in names) <= 1, "a conjunct may name one negative component"
        one_event = len({(component, edge) for component, edge, _ in identifiers}) == 1
        return Conjunct(
            comparisons=disjuncts,
            names=names,
            last=max(positive, default=(self.positives[0].number, Edge.BEGIN)),
            iterated=next(iter(iterated), None),
            is_of_one_event=one_event and all(is_that_event for _, _, is_that_event in identifiers),
        )

    def _identifiers(self, node: syntax.Node) -> Iterator[tuple[Component, Edge, bool]]:
        """Each occurrence of a variable: its component, the edge on which it is known, and whether it means just the
        event that is read on that edge (v[i] does, v[i-1] does not)."""
        if isinstance(node, Reference):
            component = self.component_of(node)
            kind = None if node.index is None else node.index.kind
            if not component.kleene or kind is IndexKind.NUMBER:
                yield component, Edge.BEGIN, True
            elif kind in (IndexKind.ITERATION, IndexKind.BEFORE):
                # "v[i-1] and v[..i-1] count as v[i]."
                is_that_event = kind is IndexKind.ITERATION and node.index is not None and node.index.offset == 0
                yield component, Edge.TAKE, is_that_event
            else:
                # "v[v.LEN], v.LEN or an aggregate over v[]".
                yield component, Edge.PROCEED, False
            return
        for child in children(node):
            for component, edge, is_that_event in self._identifiers(child):
                yield component, edge, is_that_event and not is_aggregate(node)

    # ── Tests on bound events ──────────────────────────────────────────────────────────────────────

    def scope(self, bound: Mapping[str, Event | tuple[Event, ...]], iteration: int | None = None) -> Scope:
        return Scope(self.settings, bound, self.bare_variable, iteration)

    def holds(self, conjunct: Conjunct, bound: Mapping[str, Event | tuple[Event, ...]]) -> bool:
        """ "A conjunct with v[i], v[i-1] or v[..i-1] must hold for every i > 1 (so it holds when v.LEN = 1)." """
        iterations: list[int | None] = [None]
        if conjunct.iterated is not None:
            events = bound[conjunct.iterated]
            assert isinstance(events, tuple)
            iterations = list(range(2, len(events) + 1))
        return all(
            any(comparison_holds(comparison, self.scope(bound, i)) for comparison in conjunct.comparisons)
            for i in iterations
        )

    def are_equivalent(self, events: list[Event]) -> bool:
        """ "Every two bound events whose types have attr, negative ones included, are equal on it." "An event whose
        type has attr but whose value is null satisfies no [attr], even alone." """
        types = self.settings.types
        for test in self.equivalences:
            values = [attribute(event, test.names, types) for event in events if not lacks(event, test.names, types)]
            if any(value is None for value in values):
                return False
            if test.value is not None:
                values.append(evaluate(test.value, self.scope({})))
            for left, right in itertools.pairwise(values):
                if compare(left, right, self.settings.ticks_per_second) != 0:
                    return False
        return True

    def partition(self, event: Event) -> tuple[object, ...] | None:
        """ "A *partition* is the tuple of values of all [attr] tests"; "an event whose partition attribute is null or
        absent is in none"."""
        values = [attribute(event, test.names, self.settings.types) for test in self.equivalences]
        return None if any(value is None for value in values) else tuple(sort_key(value) for value in values)

    def may_fill(self, component: Component, event: Event) -> bool:
        """Does the event "pass the type and single-event conjuncts" of the component: of v[1] or of v[i] in a Kleene
        component? An equivalence test is one too, since a null fails it alone."""
        if not component.is_of_right_type(event) or not self.are_equivalent([event]):
            return False
        about_it = [c for c in self.conjuncts if c.names == {component.name} and c.is_of_one_event]
        if not component.kleene:
            return all(self.holds(conjunct, {component.name: event}) for conjunct in about_it)
        # As v[i] the event also stands before itself; a conjunct about v[i] alone does not look there.
        as_first = all(self.holds(c, {component.name: (event,)}) for c in about_it if c.iterated is None)
        as_later = all(self.holds(c, {component.name: (event, event)}) for c in about_it if c.iterated is not None)
        return as_first or as_later


def _component(number: float, written: syntax.Component, across: frozenset[str | None] = frozenset()) -> Component:
    assert written.variable is not None
    types = frozenset(type_name.name for type_name in written.types)
    return Component(
        number, written.variable, types, written.kleene, written.negated, written.least, written.most, across
    )


def with_not_pushed_in(node: Expr, negate: bool) -> Expr:
    """De Morgan, down to single comparisons: BETWEEN, IN, LIKE and IS NULL are one comparison each."""
    match node:
        case syntax.Unary(operator="NOT", operand=operand):
            return with_not_pushed_in(operand, not negate)
        case syntax.Logical(operator=operator, operands=operands):
            if negate:
                operator = "OR" if operator == "AND" else "AND"
            return syntax.Logical(operator, tuple(with_not_pushed_in(operand, negate) for operand in operands))
        case _ if not negate:
            return node
        case syntax.Binary(operator=operator, left=left, right=right) if operator in OPPOSITE:
            return syntax.Binary(OPPOSITE[operator], left, right)
        case syntax.In() | syntax.Between() | syntax.Like() | syntax.IsNull():
            return dataclasses.replace(node, negated=not node.negated)
        case _:
            return syntax.Unary("NOT", node)


def conjunctive_form(node: Expr) -> list[tuple[Expr, ...]]:
    """The conjuncts, each a tuple of disjuncts; NOT has been pushed in."""
    if not isinstance(node, syntax.Logical):
        return [(node,)]
    forms = [conjunctive_form(operand) for operand in node.operands]
    if node.operator == "AND":
        return [conjunct for form in forms for conjunct in form]
    return [tuple(itertools.chain(*choice)) for choice in itertools.product(*forms)]
