"""Names: the components of a pattern, their variables, and what a reference such as `v[i].price` means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from ouzel.bind.diagnostics import Source, listed, nearest, nearest_or_all, quoted
from ouzel.bind.model import (
    INT,
    STRING,
    UNKNOWN,
    At,
    Attribute,
    Catalog,
    Component,
    EventField,
    Intrinsic,
    Kind,
    Length,
    Reading,
    Scope,
    Step,
    Type,
)
from ouzel.bind.patterns import expand
from ouzel.bind.typing import common_type
from ouzel.lang import syntax
from ouzel.lang.hints import strategy_hint
from ouzel.lang.syntax import IndexKind, Reference, Span

COMPONENTS_MAX = 64
# What other languages call the number of events of a repetition.
LENGTHS = frozenset({"len", "length", "size", "count"})
# Columns that a clause adds to the answer.
_ADDED = {
    "reached": "OUTPUT FURTHEST adds the column reached by itself",
    "missing": "THRESHOLD adds the column missing by itself",
    "score": "THRESHOLD adds the column score by itself",
    "probability": "THRESHOLD adds the column probability by itself",
}
EVENT_FIELDS = {"type": EventField.TYPE, "time": EventField.END, "start": EventField.START, "end": EventField.END}


class Place(Enum):
    """The clause that contains an expression, which decides what the expression may refer to."""

    WHERE = "WHERE"
    RETURN = "RETURN"
    AGGREGATE = "AGG"
    GROUP_BY = "GROUP BY"
    HAVING = "HAVING"


@dataclass(frozen=True, slots=True)
class Found:
    """An attribute that was looked up in the types of a component."""

    type: Type
    present_in: frozenset[str] | None  # None: in all of them
    lacking: frozenset[str]


@dataclass(frozen=True, slots=True)
class Names:
    """The meaning of the names in one query. `shared` are types that appear without a variable more than once, so their
    names are ambiguous.
    """

    source: Source
    catalog: Catalog
    components: tuple[Component, ...]
    variables: Mapping[str, int]
    shared: frozenset[str]
    readings: tuple[Reading, ...]

    @property
    def written_orders(self) -> tuple[tuple[Component, ...], ...]:
        """The components of each reading in order, without those after WITHOUT."""
        return tuple(
            tuple(self.components[step.component] for step in reading if not self.components[step.component].across)
            for reading in self.readings
        )

    # ── Attributes of components ───────────────────────────────────────────────────────────────────

    def types_of(self, component: Component) -> Iterator[tuple[str, Mapping[str, Type] | None]]:
        """The event types that may fill a component, each with its attributes; None for those that are not known."""
        for name in self.catalog.any_types if component.types is None else component.types:
            yield name, self.catalog.attributes(name)

    def found(self, component: Component, path: tuple[str, ...], span: Span) -> Found | None:
        """The attribute at `path` in the types of a component; None if no type has it."""
        kind: Type | None = None
        present, lacking = [], []
        for name, attributes in self.types_of(component):
            here = UNKNOWN if attributes is None else type_at(attributes, path)
            if here is None:
                lacking.append(name)
                continue
            present.append(name)
            merged = here if kind is None else common_type(kind, here)
            if merged is None:
                types = f"{kind} in event type {quoted(present[0])} but {here} in {quoted(name)}"
                raise self.source.mistake(f"{quoted('.'.join(path))} is {types}", span)
            kind = merged
        if kind is None:
            return None
        if lacking and "" in present:
            raise self.source.mistake(
                f"event type {quoted(lacking[0])} has no attribute {quoted('.'.join(path))}, which other types have",
                span,
                f"name the types of {quoted(component.variable)} with ANY(…)",
            )
        return Found(kind, frozenset(present) if lacking else None, frozenset(lacking))

    def unknown_attribute(self, components: Iterable[Component], path: tuple[str, ...], span: Span) -> Exception:
        """The error for an attribute that no type of the components has."""
        components = list(components)
        types = {name: attributes or {} for c in components for name, attributes in self.types_of(c)}
        owner = next((a[path[0]] for a in types.values() if path[0] in a), None)
        if len(path) > 1 and owner is not None:
            if owner.kind is not Kind.STRUCT:
                message = f"{quoted(path[0])} is {owner} and has no field {quoted('.'.join(path[1:]))}"
                return self.source.mistake(message, span)
            message = f"{quoted(path[0])} has no field {quoted('.'.join(path[1:]))}"
            return self.source.mistake(message, span, nearest(path[1], (name for name, _ in owner.fields)))
        names = {name for attributes in types.values() for name in attributes}
        if path[0].lower() in LENGTHS and any(component.kleene for component in components):
            hint: str | None = "write v.LEN for the number of events of v"
        else:
            hint = nearest_or_all(path[0], names, "columns" if self.catalog.declared is None else "attributes")
        if self.catalog.declared is None:
            return self.source.mistake(f"the input has no column {quoted(path[0])}", span, hint)
        if len(types) == 1:
            return self.source.mistake(f"event type {quoted(*types)} has no attribute {quoted(path[0])}", span, hint)
        whose = f"of {quoted(components[0].variable)} " if len(components) == 1 else ""
        return self.source.mistake(f"no event type {whose}has an attribute {quoted(path[0])}", span, hint)

    # ── References ─────────────────────────────────────────────────────────────────────────────────

    def value(self, reference: Reference, place: Place, ranging: Scope | None = None) -> Attribute | Intrinsic | Length:
        """The value to which `v.price`, `v[i].address.city`, `v.time`, `v.LEN` or a plain `price` refers.

        `ranging` is set inside an aggregate over v[] or v[..i-1]. There a reference to v means each event in turn.
        """
        component, path = self._split(reference)
        span = reference.span
        if not path:
            raise self._no_value(component, reference)
        if component.kleene and reference.index is None and len(path) == 1 and path[0].upper() == "LEN":
            return Length(component.position, type=INT, span=span)
        at = self._at(component, reference, place, ranging)
        found = self.found(component, path, span)
        if len(path) == 1 and path[0] in EVENT_FIELDS and (found is None or self.catalog.open):
            return self._intrinsic(component, EVENT_FIELDS[path[0]], at, span)
        if found is None:
            if path[0].upper() == "LEN" and not component.kleene:
                raise self.source.mistake(f"{quoted(component.variable)} is one event and has no length", span)
            raise self.unknown_attribute([component], path, span)
        self._check_alternatives(component, path, span)
        if found.lacking and len(path) == 1 and path[0] in EVENT_FIELDS:
            raise self.source.mistake(
                f"{quoted(path[0])} is an attribute of some types of {quoted(component.variable)} but not of all",
                span,
                f"{path[0]}({component.variable}) always gives the event's own",
            )
        return Attribute(component.position, path, at, found.present_in, type=found.type, span=span)

    def _check_alternatives(self, component: Component, path: tuple[str, ...], span: Span) -> None:
        """Raise an error unless all parts of OR that have this variable also have the attribute."""
        name, variable = ".".join(path), component.variable
        steps = [step for reading in self.readings for step in reading if step.component == component.position]
        for types in dict.fromkeys(step.types for step in steps):
            if types != component.types and self.found(replace(component, types=types), path, span) is None:
                raise self.source.mistake(
                    f"{quoted(name)} is not an attribute of every alternative of {quoted(variable)}",
                    span,
                    "give the alternatives variables of their own",
                )

    def event_field(self, function: str, reference: Reference, place: Place, ranging: Scope | None) -> Intrinsic:
        """The value of `time(v)`, `start(v[1])` or `type(v)`."""
        component, path = self._split(reference)
        if path:
            raise self.source.mistake(
                f"{function}(…) needs an event, not a value",
                reference.span,
                f"write {function}({component.variable})",
            )
        at = self._at(component, reference, place, ranging)
        return self._intrinsic(component, EVENT_FIELDS[function], at, reference.span)

    def kleene_variable(self, reference: Reference, function: str) -> Component:
        """The component that an aggregate ranges over."""
        component, _ = self._split(reference)
        if component.kleene:
            return component
        raise self.source.mistake(
            f"{function}(…) must range over a component with +, and {quoted(component.variable)} is one event",
            reference.span,
            "the least and greatest of several values are least(…) and greatest(…)"
            if function in ("min", "max")
            else None,
        )

    def _intrinsic(self, component: Component, field: EventField, at: At, span: Span) -> Intrinsic:
        kind = STRING if field is EventField.TYPE else self.catalog.time.type
        return Intrinsic(component.position, field, at, type=kind, span=span)

    def _split(self, reference: Reference) -> tuple[Component, tuple[str, ...]]:
        """(component, path): the component to which a reference refers, and the path in its event. An empty path means
        the event itself.
        """
        first, *rest = reference.names
        only = self.components[0] if len(self.components) == 1 else None
        if first in self.variables:
            component = self.components[self.variables[first]]
            is_bare = not rest and reference.index is None and component is only and not self.catalog.open
            if is_bare and self.found(component, (first,), reference.span) is not None:
                return component, (first,)
            return component, tuple(rest)
        if only is not None and reference.index is None:
            is_attribute = not rest or self.catalog.open or self.found(only, (first,), reference.span) is not None
            if is_attribute:
                return only, reference.names
        raise self._unknown_name(reference)

    def variables_hint(self, name: str) -> str | None:
        """The hint for a variable that does not exist."""
        all_of_them = f"the variables are {listed(self.variables, 'and')}" if self.variables else None
        return nearest(name, self.variables) or all_of_them

    def _unknown_name(self, reference: Reference) -> Exception:
        first = reference.names[0]
        if first in self.shared:
            hint = f"give each a variable: {first} {first[0].lower()}1, {first} {first[0].lower()}2"
            return self.source.mistake(f"{quoted(first)} is in the pattern more than once", reference.span, hint)
        if len(reference.names) > 1 or reference.index is not None:
            return self.source.mistake(
                f"there is no variable {quoted(first)}", reference.span, self.variables_hint(first)
            )
        if self.source.text.startswith('"', reference.span.start):
            hint = f"double quotes are for names, single quotes for text: '{first}'"
            return self.source.mistake(f"there is no variable {quoted(first)}", reference.span, hint)
        owners = [
            c for c in self.components if c.variable in self.variables and self.found(c, (first,), reference.span)
        ]
        if owners:
            hint = f"write {listed(f'{c.variable}.{first}' for c in owners[:4])}"
            if self.catalog.open:
                hint = _ADDED.get(first) or strategy_hint(first) or f"{hint}; text is in single quotes: '{first}'"
            return self.source.mistake(
                f"the bare name {quoted(first)} does not say whose attribute it is", reference.span, hint
            )
        names = {name for c in self.components for _, attributes in self.types_of(c) for name in attributes or ()}
        near = _ADDED.get(first) or strategy_hint(first) or nearest(first, names | set(self.variables))
        near = near or f"text is in single quotes: '{first}'"
        return self.source.mistake(f"there is no variable or attribute {quoted(first)}", reference.span, near)

    def _no_value(self, component: Component, reference: Reference) -> Exception:
        name = component.variable
        if component.kleene and reference.index is None:
            return self.source.mistake(
                f"{quoted(name)} is several events, not a value",
                reference.span,
                f"write {name}[1].x, {name}[i].x, {name}[LEN].x or an aggregate over {name}[]",
            )
        return self.source.mistake(
            f"{quoted(name)} is an event, not a value", reference.span, f"name an attribute: {name}.x"
        )

    def _at(self, component: Component, reference: Reference, place: Place, ranging: Scope | None) -> At:
        """The event of its component to which a reference refers."""
        index, name = reference.index, component.variable
        if component.negated and place is not Place.WHERE:
            raise self.source.mistake(f"{quoted(name)} is negated, so {place.value} has no event of it", reference.span)
        if not component.kleene:
            if index is None:
                return At.SINGLE
            raise self.source.mistake(
                f"{quoted(name)} is one event and cannot have an index",
                reference.span,
                f"write {name}.x, or {name}[] with + after its type in the pattern",
            )
        if index is None:
            return At.EVERY
        if index.kind is IndexKind.NUMBER:
            if index.offset == 1:
                return At.FIRST
            raise self._wrong_index(name, f"{name}[{index.offset}]", index.span)
        if index.kind is IndexKind.LAST:
            if index.of in (None, name):
                return At.LAST
            raise self.source.mistake(
                f"{name}[…] cannot be indexed by the length of {quoted(index.of)}",
                index.span,
                f"write {name}[LEN]",
            )
        if index.kind in (IndexKind.ALL, IndexKind.BEFORE):
            scope = Scope.ALL if index.kind is IndexKind.ALL else Scope.BEFORE
            if ranging is scope:
                return At.CURRENT
            if place is Place.RETURN and scope is Scope.ALL:
                return At.EVERY
            written = f"{name}[]" if scope is Scope.ALL else f"{name}[..i-1]"
            raise self.source.mistake(
                f"{written} can be used only inside an aggregate such as count or sum",
                reference.span,
                f"write {name}[1], {name}[i] or {name}[LEN]",
            )
        return self._iteration(name, index, place)

    def _iteration(self, name: str, index: syntax.Index, place: Place) -> At:
        if place is not Place.WHERE:
            raise self.source.mistake(
                f"{name}[i] cannot be used in {place.value}",
                index.span,
                f"write {name}[1], {name}[LEN] or an aggregate over {name}[]",
            )
        if index.offset == 0:
            return At.CURRENT
        if index.offset == -1:
            return At.PREVIOUS
        if index.offset > 0:
            raise self.source.mistake(
                f"{name}[i+{index.offset}] refers to an event that is chosen later",
                index.span,
                f"write the condition with {name}[i] and {name}[i-1]",
            )
        raise self._wrong_index(name, f"{name}[i{index.offset}]", index.span)

    def _wrong_index(self, name: str, written: str, span: Span) -> Exception:
        indexes = f"{name}[1], {name}[i], {name}[i-1], {name}[LEN], {name}[..i-1] and {name}[]"
        hint = f"the indexes are {indexes}; any other event needs a variable of its own"
        return self.source.mistake(f"there is no index {quoted(written)}", span, hint)


def type_at(attributes: Mapping[str, Type], path: tuple[str, ...]) -> Type | None:
    """The type at a dotted path; None if the path does not exist.

    >>> type_at({"address": Type(Kind.STRUCT, fields=(("city", STRING),))}, ("address", "city")) == STRING
    True
    """
    kind = attributes.get(path[0])
    for name in path[1:]:
        if kind is None or kind.kind is Kind.UNKNOWN:
            return kind
        kind = dict(kind.fields).get(name) if kind.kind is Kind.STRUCT else None
    return kind


# ── Patterns ───────────────────────────────────────────────────────────────────────────────────────


def bind_pattern(pattern: syntax.Pattern, catalog: Catalog, source: Source) -> Names:
    """The components of a pattern and their names. Raises an error for unknown types and duplicate variables."""
    if len(pattern.components) > COMPONENTS_MAX:
        raise source.mistake(
            f"a pattern may have {COMPONENTS_MAX} components at most", pattern.components[COMPONENTS_MAX].span
        )
    nested = {leaf: number for number, leaves in enumerate(pattern.nested) for leaf in leaves}
    if all(component.negated or number in nested for number, component in enumerate(pattern.components)):
        raise source.mistake(
            "the pattern has no positive component", pattern.span, "a match needs an event that happened"
        )
    steps: list[Step] = []
    alone = Counter(c.types[0].name for c in pattern.components if c.variable is None and len(c.types) == 1)
    taken = {c.variable for c in pattern.components if c.variable is not None} | set(alone)
    variables: dict[str, int] = {}
    components: list[Component] = []
    numbers: Counter[str] = Counter()
    # The leaves come first; those after WITHOUT follow them.
    leaves = len(pattern.components) - len(pattern.forbidden)
    for number, component in enumerate(pattern.components):
        if component.negated and component.kleene:
            raise source.mistake("+ cannot be under a negation, which forbids single events", component.span)
        types = tuple(dict.fromkeys(name.name for name in component.types)) or None
        for name in component.types:
            _check_type(name, catalog, source)
        variable = component.variable
        if variable is None and types is not None and len(component.types) == 1 and alone[types[0]] == 1:
            variable = types[0]
        where = component.variable_span if component.variable is not None else component.span
        position = len(components) if variable is None else variables.setdefault(variable, len(components))
        if position == len(components):
            shown = variable or _display_name("_or_".join(types or ("event",)), numbers, taken)
            across: tuple[int, ...] = ()
            if number >= leaves:
                places = {steps[leaf].component for leaf in pattern.forbidden[number - leaves][0]}
                across = tuple(sorted(place for place in places if not components[place].negated))
            negated = component.negated or number in nested
            components.append(
                Component(
                    position, shown, types, component.kleene, negated, across, nested.get(number), span=component.span
                )
            )
        else:
            if number >= leaves or number in nested or components[position].nested is not None:
                message = f"the variable {quoted(components[position].variable)} is used twice"
                raise source.mistake(message, where, "give each component its own variable")
            components[position] = _alternative(components[position], component, types, where, source)
        steps.append(Step(position, types, max(component.least, 1), component.most))
    return Names(
        source,
        catalog,
        tuple(components),
        variables,
        frozenset(name for name, count in alone.items() if count > 1),
        expand(pattern, steps[:leaves], components, source),
    )


def _alternative(
    known: Component, written: syntax.Component, types: tuple[str, ...] | None, where: Span, source: Source
) -> Component:
    """A component that has the same variable as another one, which is in another part of OR."""
    if (known.kleene, known.negated) != (written.kleene, written.negated):
        raise source.mistake(
            f"the variable {quoted(known.variable)} is used twice, for different kinds of components",
            where,
            "give each component its own variable",
        )
    both = None if types is None or known.types is None else tuple(dict.fromkeys((*known.types, *types)))
    return replace(known, types=both, span=where)


def _check_type(name: syntax.TypeName, catalog: Catalog, source: Source) -> None:
    if catalog.declared is not None and catalog.common is None and name.name not in catalog.declared:
        hint = nearest_or_all(name.name, catalog.declared, "event types")
        raise source.mistake(f"there is no event type {quoted(name.name)}", name.span, hint)


def _display_name(stem: str, numbers: Counter[str], taken: set[str]) -> str:
    """A name for the output, `A_1`, `A_2`, …, if the query has none."""
    while True:
        numbers[stem] += 1
        name = f"{stem}_{numbers[stem]}"
        if name not in taken:
            taken.add(name)
            return name
