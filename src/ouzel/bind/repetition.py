"""Writes out repeated groups such as `SEQ(B b, C c){2,3}` (docs/semantics.md, "Repeated groups")."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from ouzel.bind.diagnostics import Source, quoted
from ouzel.lang import syntax
from ouzel.lang.syntax import Component, Expr, Group, GroupKind, Index, Logical, Node, Presence, Reference

NodeT = TypeVar("NodeT", bound=Node)
Part = Component | Group


@dataclass(frozen=True, slots=True)
class _Repeated:
    """A repeated group: its variables, and how many copies are written."""

    names: frozenset[str]
    times: int

    def iterations(self) -> Iterator[Mapping[str, str]]:
        for number in range(1, self.times + 1):
            yield {name: f"{name}_{number}" for name in self.names}


def written_out(query: syntax.Query, components_max: int, source: Source) -> syntax.Query:
    """The query with repeated groups written out: for each variable `b` of the group, iteration k has the variable
    `b_k`. A condition that names `b`, or a step of contiguity(…), applies to each iteration.
    """
    repeated = [part for part in _parts(query.pattern.parts) if _is_repeated(part)]
    if not repeated:
        return query
    _check(query.pattern, repeated, components_max, source)
    _check_names(query.pattern, repeated, source)
    groups: list[_Repeated] = []
    pattern = replace(query.pattern, parts=tuple(_of_part(part, groups) for part in query.pattern.parts))
    where, selection = query.where, query.selection
    if where is not None:
        where = _conditions(where, groups)
    if selection is not None:
        variables = [name for written in selection.variables for name in _names(written, groups)]
        steps = [replace(step, variable=name) for step in selection.steps for name in _names(step.variable, groups)]
        selection = replace(selection, variables=tuple(variables), steps=tuple(steps))
    return replace(query, pattern=pattern, where=where, selection=selection)


def _parts(parts: Iterable[Part]) -> Iterator[Part]:
    for part in parts:
        yield part
        if isinstance(part, Group):
            yield from _parts(part.parts)


def _is_repeated(part: Part) -> bool:
    return isinstance(part, Group) and part.most is not None and part.most > 1


def _check(pattern: syntax.Pattern, repeated: Sequence[Part], components_max: int, source: Source) -> None:
    """Raise an error for nested groups, or if a pattern would have too many components once they are written out."""

    def count(part: Part) -> int:
        own = sum(count(one) for one in part.parts) * (part.most or 1) if isinstance(part, Group) else 1
        return own + len(part.without)

    total = sum(count(part) for part in pattern.parts) + len(pattern.without)
    if total > components_max:
        message = f"a pattern may have {components_max} components at most, and written out it has {total:,}"
        raise source.mistake(message, repeated[0].span, "MATCH_RECOGNIZE repeats groups any number of times")
    for group in repeated:
        inner = (
            next((one for one in _parts(group.parts) if _is_repeated(one)), None) if isinstance(group, Group) else None
        )
        if inner is not None:
            raise source.mistake(
                "a repeated group cannot be inside another one",
                inner.span,
                "write one of them out, or use MATCH_RECOGNIZE",
            )


def _check_names(pattern: syntax.Pattern, repeated: Sequence[Part], source: Source) -> None:
    """Refuse a name that would mean two things: outside its group, or as that of an iteration."""
    inside = {id(leaf) for group in repeated for leaf in _leaves(group)}
    outside = {
        name for part in pattern.parts for leaf in _leaves(part) if id(leaf) not in inside and (name := _name(leaf))
    }
    outside |= {name for leaf in pattern.without if (name := _name(leaf))}
    for group in repeated:
        names = {name: leaf for leaf in _leaves(group) if (name := _name(leaf))}
        numbered = {f"{name}_{number}" for name in names for number in range(1, (group.most or 1) + 1)}
        for name, leaf in names.items():
            if name in numbered or name in outside:
                message = f"the variable {quoted(name)} is used in a repeated group and outside it"
                if name in numbered:
                    message = f"the variable {quoted(name)} has the name of an iteration of another one"
                raise source.mistake(message, leaf.span, "give each component its own variable")


def _leaves(part: Part) -> Iterator[Component]:
    for one in _parts((part,)):
        if isinstance(one, Component):
            yield one
        yield from one.without


def _of_part(part: Part, groups: list[_Repeated]) -> Part:
    if not isinstance(part, Group):
        return part
    if not _is_repeated(part):
        return replace(part, parts=tuple(_of_part(one, groups) for one in part.parts))
    assert part.most is not None
    once = replace(part, least=1, most=1, without=())
    group = _Repeated(frozenset(name for leaf in _leaves(once) if (name := _name(leaf))), part.most)
    groups.append(group)
    copies = [_copy(once, names) for names in group.iterations()]
    # Each iteration that is not required is optional together with those behind it.
    rest: tuple[Part, ...] = ()
    for number, copy in reversed(list(enumerate(copies, 1))):
        rest = (copy, *rest)
        if number > max(part.least, 1):
            rest = (Group(GroupKind.SEQ, rest, 0, 1, span=part.span),)
    return Group(GroupKind.SEQ, rest, min(part.least, 1), 1, without=part.without, span=part.span)


def _name(component: Component) -> str | None:
    """The variable of a component. A type without a variable is its own variable."""
    if component.variable is None and len(component.types) == 1:
        return component.types[0].name
    return component.variable


def _copy(part: Part, names: Mapping[str, str]) -> Part:
    without = tuple(_component(leaf, names) for leaf in part.without)
    if isinstance(part, Group):
        return replace(part, parts=tuple(_copy(one, names) for one in part.parts), without=without)
    return replace(_component(part, names), without=without)


def _component(component: Component, names: Mapping[str, str]) -> Component:
    name = _name(component)
    return component if name is None else replace(component, variable=names[name])


# ── Names ──────────────────────────────────────────────────────────────────────────────────────────


def _names(variable: str, groups: Sequence[_Repeated]) -> list[str]:
    """The names of a variable in each iteration."""
    for group in groups:
        if variable in group.names:
            return [names[variable] for names in group.iterations()]
    return [variable]


def _conditions(where: Expr, groups: Sequence[_Repeated]) -> Expr:
    """The conditions that AND joins, each repeated for every iteration of the groups whose variables it names."""
    conditions = where.operands if isinstance(where, Logical) and where.operator == "AND" else (where,)
    found: list[Expr] = []
    for condition in conditions:
        named = set(_variables(condition))
        used = [list(group.iterations()) for group in groups if group.names & named]
        for choice in itertools.product(*used):
            found.append(_renamed(condition, {old: new for names in choice for old, new in names.items()}))
    return found[0] if len(found) == 1 else Logical("AND", tuple(found), span=where.span)


def _variables(node: Node) -> Iterator[str]:
    if isinstance(node, Reference):
        yield node.names[0]
    if isinstance(node, Presence):
        yield node.variable
    for child in syntax.children(node):
        yield from _variables(child)


def _renamed(node: NodeT, names: Mapping[str, str]) -> NodeT:
    """An expression with other names for its variables."""
    changes: dict[str, Any] = {}
    for one in dataclasses.fields(node):
        value = getattr(node, one.name)
        if isinstance(value, Node):
            changes[one.name] = _renamed(value, names)
        elif isinstance(value, tuple):
            changes[one.name] = tuple(_renamed(item, names) if isinstance(item, Node) else item for item in value)
    if isinstance(node, Reference):
        changes["names"] = (names.get(node.names[0], node.names[0]), *node.names[1:])
    elif isinstance(node, Presence):
        changes["variable"] = names.get(node.variable, node.variable)
    elif isinstance(node, Index) and node.of is not None:
        changes["of"] = names.get(node.of, node.of)
    return replace(node, **changes)
