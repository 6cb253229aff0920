"""docs/semantics.md, "Repeated groups": `SEQ(B b){1,2}` is `SEQ(B b_1, SEQ(B b_2)?)`."""

from __future__ import annotations

import itertools
from dataclasses import replace

from ouzel.lang import syntax
from ouzel.lang.syntax import Component, Expr, Group, GroupKind, Reference
from tests.oracle.expressions import references, rewritten

Part = Component | Group


def written_out(query: syntax.Query) -> syntax.Query:
    """ "Iteration k has the variable b_k for each variable b of the group." """
    groups: list[tuple[set[str], int]] = []
    pattern = replace(query.pattern, parts=tuple(_of_part(part, groups) for part in query.pattern.parts))
    if not groups:
        return query
    where = query.where
    if where is not None:
        conditions = where.operands if isinstance(where, syntax.Logical) and where.operator == "AND" else (where,)
        each = tuple(one for condition in conditions for one in _for_each_iteration(condition, groups))
        where = each[0] if len(each) == 1 else syntax.Logical("AND", each)
    selection = query.selection
    if selection is not None:
        steps = [
            replace(step, variable=f"{step.variable}{ending}")
            for step in selection.steps
            for ending in _endings(step.variable, groups)
        ]
        selection = replace(selection, variables=(), steps=tuple(steps))
    return replace(query, pattern=pattern, where=where, selection=selection)


def _of_part(part: Part, groups: list[tuple[set[str], int]]) -> Part:
    if isinstance(part, Component):
        return part
    if part.most is None or part.most == 1:
        return replace(part, parts=tuple(_of_part(one, groups) for one in part.parts))
    groups.append((set().union(*(_variables(one) for one in part.parts)), part.most))
    once = replace(part, least=1, most=1, without=())
    return replace(_iterations_from(1, once, part.least, part.most), without=part.without)


def _iterations_from(number: int, once: Group, least: int, most: int) -> Group:
    """An iteration and those after it. "Present before absent": one that need not be may be absent with all later."""
    later = (_iterations_from(number + 1, once, least, most),) if number < most else ()
    return Group(GroupKind.SEQ, (_numbered(once, number), *later), int(number <= least), 1)


def _variables(part: Part) -> set[str]:
    own = {_name(one) for one in part.without}
    if isinstance(part, Component):
        return own | {_name(part)}
    return own.union(*(_variables(one) for one in part.parts))


def _name(component: Component) -> str:
    """ "A lone name in SEQ is a type, and is its own variable." """
    return component.variable or component.types[0].name


def _numbered(part: Part, number: int) -> Part:
    without = tuple(replace(one, variable=f"{_name(one)}_{number}") for one in part.without)
    if isinstance(part, Component):
        return replace(part, variable=f"{_name(part)}_{number}", without=without)
    return replace(part, parts=tuple(_numbered(one, number) for one in part.parts), without=without)


def _endings(variable: str, groups: list[tuple[set[str], int]]) -> list[str]:
    for names, times in groups:
        if variable in names:
            return [f"_{number}" for number in range(1, times + 1)]
    return [""]


def _for_each_iteration(condition: Expr, groups: list[tuple[set[str], int]]) -> list[Expr]:
    """ "A condition that names variables of a group must hold in each iteration." """
    named = {reference.names[0] for reference in references(condition)}
    used = [(names, times) for names, times in groups if names & named]
    found = []
    for choice in itertools.product(*(range(1, times + 1) for _, times in used)):

        def change(reference: Reference, choice: tuple[int, ...] = choice) -> Reference:
            for (names, _), number in zip(used, choice, strict=True):
                if reference.names[0] in names:
                    first, *rest = reference.names
                    index = reference.index and replace(reference.index, of=None)
                    return replace(reference, names=(f"{first}_{number}", *rest), index=index)
            return reference

        found.append(rewritten(condition, change))
    return found
