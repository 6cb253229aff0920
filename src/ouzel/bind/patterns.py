"""From a pattern to its readings: the linear patterns that it means (docs/semantics.md, "Readings")."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from ouzel.bind.diagnostics import Source, quoted
from ouzel.bind.model import Component, Reading, Step
from ouzel.lang import syntax
from ouzel.lang.syntax import Group, GroupKind

READINGS_MAX = 128


def expand(
    pattern: syntax.Pattern, steps: Sequence[Step], components: Sequence[Component], source: Source
) -> tuple[Reading, ...]:
    """The readings of a pattern. `steps` has a step for each component in the order of the text, except those after
    WITHOUT.
    """
    for group in _groups(pattern.parts):
        _check_group(group, source)
    count = sum(_lengths_of_sequence(pattern.parts).values())
    if count > READINGS_MAX:
        raise source.mistake(
            f"the pattern has {count:,} readings, and may have {READINGS_MAX} at most",
            pattern.span,
            "each optional part doubles them, and AND has one for each order of its parts; split the query with INTO",
        )
    readings = tuple(dict.fromkeys(_of_sequence(pattern.parts, iter(steps))))
    for reading in readings:
        _check_reading(pattern, reading, components, source)
    readings = tuple(with_forbidden(reading, components) for reading in readings)
    used = {step.component for reading in readings for step in reading}
    for component in components:
        if component.across and component.position not in used:
            raise source.mistake(
                "WITHOUT needs a part that may have two events or more",
                component.span,
                "write it after a repetition such as T+ v[], or after SEQ(…)",
            )
    return readings


def with_forbidden(reading: Reading, components: Sequence[Component]) -> Reading:
    """The reading with those components after WITHOUT that apply to it."""

    def may_forbid(component: Component) -> bool:
        own = [step for step in reading if step.component in component.across]
        return len(own) > 1 or any(components[step.component].kleene and step.most != 1 for step in own)

    forbidden = [component for component in components if component.across and may_forbid(component)]
    return (*reading, *(Step(component.position, component.types) for component in forbidden))


def _groups(parts: Sequence[syntax.Component | Group]) -> Iterator[Group]:
    for part in parts:
        if isinstance(part, Group):
            yield part
            yield from _groups(part.parts)


def _check_group(group: Group, source: Source) -> None:
    if group.most is None:
        raise source.mistake(
            f"{group.kind.value}(…) cannot be repeated without an upper bound",
            group.span,
            "write {1,5} for one to five times; MATCH_RECOGNIZE repeats groups any number of times",
        )
    if group.kind is GroupKind.AND:
        inside: list[syntax.Component | Group] = [*group.leaves, *_groups(group.parts)]
        for part in inside:
            if part.negated:
                raise source.mistake(
                    "a negation cannot be inside AND, where its neighbours are not known",
                    part.span,
                    "put it before or after AND",
                )


def _check_reading(pattern: syntax.Pattern, reading: Reading, components: Sequence[Component], source: Source) -> None:
    if all(components[step.component].negated for step in reading):
        raise source.mistake(
            "the pattern may be empty: all its components may be absent",
            pattern.span,
            "at least one component must be required",
        )
    for position, count in Counter(step.component for step in reading).items():
        if count > 1:
            raise source.mistake(
                f"the variable {quoted(components[position].variable)} is used twice",
                components[position].span,
                "give each component its own variable",
            )


# The number of readings of each length is known before the readings are made.


def _lengths_of_sequence(parts: Sequence[syntax.Component | Group]) -> Counter[int]:
    total = Counter({0: 1})
    for part in parts:
        total = _joined(total, _lengths(part), lambda left, right: 1)
    return total


def _lengths(part: syntax.Component | Group) -> Counter[int]:
    if isinstance(part, syntax.Component):
        found = Counter({1: 1})
    elif part.kind is GroupKind.SEQ:
        found = _lengths_of_sequence(part.parts)
    elif part.kind is GroupKind.OR:
        found = Counter()
        for one in part.parts:
            found.update(_lengths(one))
    else:
        found = Counter({0: 1})
        for one in part.parts:
            found = _joined(found, _lengths(one), lambda left, right: math.comb(left + right, left))
    if part.least == 0:
        found[0] += 1
    return found


def _joined(lefts: Counter[int], rights: Counter[int], ways: Callable[[int, int], int]) -> Counter[int]:
    found: Counter[int] = Counter()
    for (left, many), (right, others) in itertools.product(lefts.items(), rights.items()):
        found[left + right] += many * others * ways(left, right)
    return found


def _of_sequence(parts: Sequence[syntax.Component | Group], steps: Iterator[Step]) -> list[Reading]:
    each = [_of_part(part, steps) for part in parts]
    return [tuple(itertools.chain(*choice)) for choice in itertools.product(*each)]


def _of_part(part: syntax.Component | Group, steps: Iterator[Step]) -> list[Reading]:
    """The readings of a part in their order: present before absent, left before right, and for AND the lexicographic
    order of its parts.
    """
    found: list[Reading]
    if isinstance(part, syntax.Component):
        found = [(next(steps),)]
    elif part.kind is GroupKind.SEQ:
        found = _of_sequence(part.parts, steps)
    else:
        each = [_of_part(one, steps) for one in part.parts]
        if part.kind is GroupKind.OR:
            found = list(itertools.chain(*each))
        else:
            found = [order for choice in itertools.product(*each) for order in _interleaved(choice)]
    return [*found, ()] if part.least == 0 else found


def _interleaved(parts: tuple[Reading, ...]) -> Iterator[Reading]:
    if not any(parts):
        yield ()
    for number, part in enumerate(parts):
        if part:
            for rest in _interleaved((*parts[:number], part[1:], *parts[number + 1 :])):
                yield (part[0], *rest)


def overlapping(readings: Sequence[Reading], components: Sequence[Component]) -> frozenset[int]:
    """The readings that may repeat a match of an earlier reading, because they have the same variables with common
    types.
    """
    found = set()
    for later, reading in enumerate(readings):
        steps = [step for step in reading if not components[step.component].negated]
        for other in readings[:later]:
            others = [step for step in other if not components[step.component].negated]
            if [step.component for step in steps] == [step.component for step in others] and all(
                one.types is None or two.types is None or set(one.types) & set(two.types)
                for one, two in zip(steps, others, strict=True)
            ):
                found.add(later)
    return frozenset(found)
