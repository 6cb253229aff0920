"""docs/semantics.md, "Readings": the linear patterns that a pattern stands for."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ouzel.lang.syntax import Component, Group, GroupKind, Pattern, leaves


@dataclass(frozen=True)
class Forbidden:
    """`WITHOUT T v`, and the variables of the components of its part."""

    component: Component
    variables: frozenset[str | None]


@dataclass(frozen=True)
class Reading:
    """Components in order, and what WITHOUT forbids."""

    components: tuple[Component, ...]
    forbidden: tuple[Forbidden, ...] = ()
    # Negated sequences, each with the number of components before it.
    nested: tuple[tuple[int, tuple[Component, ...]], ...] = ()


# A negated group is a part of its own.
Linear = tuple[Component | Group, ...]


def with_names(pattern: Pattern) -> Pattern:
    """The pattern with a variable for every component. "A lone name in SEQ is a type, and is its own variable if it
    occurs once"; two components `A` without variables come out as A_1 and A_2."""
    lone = Counter(c.types[0].name for c in pattern.components if c.variable is None and len(c.types) == 1)
    taken = {c.variable for c in pattern.components} | set(lone)

    def named(part: Component | Group) -> Component | Group:
        if isinstance(part, Group):
            # No match has an event of a negated sequence.
            inside = [replace(one, negated=True) for one in part.parts] if part.negated else part.parts
            parts = tuple(named(one) for one in inside)
            return replace(part, parts=parts, without=tuple(component(one) for one in part.without))
        return replace(component(part), without=tuple(component(one) for one in part.without))

    def component(part: Component) -> Component:
        if part.variable is not None:
            return part
        types = tuple(dict.fromkeys(type_name.name for type_name in part.types))
        if len(part.types) == 1 and lone[types[0]] == 1:
            return replace(part, variable=types[0])
        stem = "_or_".join(types or ("event",))
        name = next(f"{stem}_{n}" for n in itertools.count(1) if f"{stem}_{n}" not in taken)
        taken.add(name)
        return replace(part, variable=name)

    parts = tuple(named(part) for part in pattern.parts)
    return replace(pattern, parts=parts, without=tuple(component(one) for one in pattern.without))


def readings(pattern: Pattern) -> list[Reading]:
    """ "Readings are listed in the order written: present before absent, left before right, AND in lexicographic order
    of its parts." Two equal readings are one."""
    forbidden = [
        Forbidden(one, frozenset(leaf.variable for leaf in leaves((part,))))
        for part in _all_parts(pattern.parts)
        for one in part.without
    ]
    whole = frozenset(leaf.variable for leaf in leaves(pattern.parts))
    forbidden += [Forbidden(one, whole) for one in pattern.without]
    linear = dict.fromkeys(_of_sequence(pattern.parts))
    return [_reading(parts, tuple(dict.fromkeys(forbidden))) for parts in linear]


def _reading(parts: tuple[Component | Group, ...], forbidden: tuple[Forbidden, ...]) -> Reading:
    components: list[Component] = []
    nested = []
    for part in parts:
        if isinstance(part, Group):
            nested.append((len(components), part.leaves))
        else:
            components.append(part)
    return Reading(tuple(components), forbidden, tuple(nested))


def _all_parts(parts: tuple[Component | Group, ...]) -> Iterator[Component | Group]:
    for part in parts:
        yield part
        if isinstance(part, Group):
            yield from _all_parts(part.parts)


def beginnings(reading: Reading) -> list[Reading]:
    """OUTPUT FURTHEST: "the run that bound the most components". The beginnings that end with a positive component, the
    longest first."""
    ends = [place for place, component in enumerate(reading.components, 1) if not component.negated]
    return [replace(reading, components=reading.components[:end]) for end in reversed(ends)]


def _of_sequence(parts: tuple[Component | Group, ...]) -> Iterator[Linear]:
    for choice in itertools.product(*(list(_of_part(part)) for part in parts)):
        yield tuple(itertools.chain(*choice))


def _of_part(part: Component | Group) -> Iterator[Linear]:
    """ "`p?` gives the readings with p and those without; `T*` those of `T+` and the one without." """
    if isinstance(part, Component):
        yield (replace(part, least=max(part.least, 1), without=()),)
    elif part.negated:
        yield (part,)
    elif part.kind is GroupKind.SEQ:
        yield from _of_sequence(part.parts)
    elif part.kind is GroupKind.OR:
        for one in part.parts:
            yield from _of_part(one)
    else:
        for choice in itertools.product(*(list(_of_part(one)) for one in part.parts)):
            yield from _interleaved(choice)
    if part.least == 0:
        yield ()


def _interleaved(parts: tuple[Linear, ...]) -> Iterator[Linear]:
    """ "Every interleaving that keeps each part's own order." """
    if not any(parts):
        yield ()
    for number, part in enumerate(parts):
        if part:
            for rest in _interleaved((*parts[:number], part[1:], *parts[number + 1 :])):
                yield (part[0], *rest)
