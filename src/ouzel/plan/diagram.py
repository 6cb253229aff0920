"""The automaton of a query as a small graph, for pictures: states, edges and the predicates on them.

The edges are those of NFA^b (SASE+ 3.1): begin binds an event, take adds one to a Kleene component, proceed leaves it,
ignore skips an event. Negative components are drawn between the states whose events bound their interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ouzel.bind.model import (
    BoundQuery,
    Component,
    Conjunct,
    Edge,
    EventWindow,
    TimeWindow,
)
from ouzel.lang.syntax import Contiguity, Strategy
from ouzel.plan.model import Plan
from ouzel.plan.render import render_conjunct


@dataclass(frozen=True, slots=True)
class State:
    name: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge from one state number to another. `kind` is begin, take, proceed, ignore or forbid."""

    kind: str
    source: int
    target: int
    label: str
    predicates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Automaton:
    states: tuple[State, ...]
    arrows: tuple[Arrow, ...]


def automaton(plan: Plan) -> Automaton:
    """The automaton that a plan runs, with every predicate on the edge where it is tested."""
    query = plan.query
    states: list[State] = []
    arrows: list[Arrow] = []
    for component in query.positives:
        number = len(states)
        label = label_of(component)
        if component.kleene:
            states += [State(f"{component.variable}[1]"), State(f"{component.variable}[i]")]
            arrows.append(Arrow("begin", number, number + 1, label, _tested(plan, component, Edge.BEGIN)))
            take = _tested(plan, component, Edge.TAKE)
            arrows.append(Arrow("take", number + 1, number + 1, label, take))
            proceed = (*_tested(plan, component, Edge.PROCEED), *_peek(plan, component))
            arrows.append(Arrow("proceed", number + 1, number + 2, "", proceed))
        else:
            states.append(State(component.variable))
            arrows.append(Arrow("begin", number, number + 1, label, _tested(plan, component, Edge.BEGIN)))
        if component.kleene:
            arrows.append(_ignore(plan, number + 1, component, Edge.TAKE))
        if number > 0:
            arrows.append(_ignore(plan, number, component, Edge.BEGIN))
    states.append(State("F", final=True))
    arrows += _negatives(plan)
    return Automaton(tuple(states), tuple(arrows))


def merged(parts: Sequence[Plan]) -> Automaton:
    """One automaton for several linear patterns: states with the same future are one, so that an optional step is a
    second way to the state behind it, and alternatives are ways side by side."""
    orders = [tuple(component.variable for component in plan.positives) for plan in parts]
    names: dict[tuple[object, ...], str] = {}
    found: dict[tuple[tuple[object, ...], tuple[object, ...], str, str], dict[str, None]] = {}
    for plan, order in zip(parts, orders, strict=True):
        places: list[tuple[object, ...]] = []
        for length in range(len(order) + 1):
            futures = frozenset(other[length:] for other in orders if other[:length] == order[:length])
            ready = dict.fromkeys(other[length] for other in orders if other[:length] == order[:length] != other)
            places.append((futures,))
            names[futures,] = " or ".join([*ready, *(["F"] if () in futures else [])])
            if length < len(order) and plan.positives[length].kleene:
                # The state in which events are added to a repetition, and the one behind it.
                places.append((futures, order[length]))
                names[futures, order[length]] = f"{order[length]}[i]"
                names[futures,] = " or ".join(
                    [
                        *(f"{one}[1]" if one == order[length] else one for one in ready),
                        *(["F"] if () in futures else []),
                    ]
                )
        for arrow in automaton(plan).arrows:
            # A test that names an absent variable holds, so an arrow may have the tests of all patterns.
            tests = found.setdefault((places[arrow.source], places[arrow.target], arrow.kind, arrow.label), {})
            tests |= dict.fromkeys(arrow.predicates)
    # A state is drawn behind all that lead to it.
    depth = dict.fromkeys(names, 0)
    for _ in names:
        for source, target, *_ in found:
            if source != target:
                depth[target] = max(depth[target], depth[source] + 1)
    numbers = {state: number for number, state in enumerate(sorted(names, key=lambda state: depth[state]))}
    states = tuple(State(names[state], final=names[state].endswith("F") and len(state) == 1) for state in numbers)
    arrows = [
        Arrow(kind, numbers[source], numbers[target], label, _either(tuple(tests)))
        for (source, target, kind, label), tests in found.items()
    ]
    return Automaton(states, tuple(sorted(arrows, key=lambda arrow: arrow.source)))


def _either(tests: tuple[str, ...]) -> tuple[str, ...]:
    """Tests, with one for all components of which an event may begin the next."""
    begun = [test.removeprefix(_BEGINS) for test in tests if test.startswith(_BEGINS)]
    others = tuple(test for test in tests if not test.startswith(_BEGINS))
    return (*others, _BEGINS + " or ".join(begun)) if begun else others


def label_of(component: Component) -> str:
    """A component as written in SEQ."""
    if component.types is None:
        types = ""
    elif len(component.types) == 1:
        types = component.types[0]
    else:
        types = f"ANY({', '.join(component.types)})"
    if component.kleene:
        return f"{types}+ {component.variable}[]".strip()
    return types if types == component.variable else f"{types} {component.variable}".strip()


def window_of(query: BoundQuery) -> str | None:
    """The window as text."""
    if isinstance(query.window, EventWindow):
        return f"{query.window.count} events"
    if isinstance(query.window, TimeWindow):
        return query.window.written if not query.window.written.isdigit() else f"{query.window.written} ticks"
    return None


_BEGINS = "the event begins "
_IGNORED = {
    Strategy.STRICT_CONTIGUITY: "nothing",
    Strategy.PARTITION_CONTIGUITY: "other partitions",
    Strategy.SKIP_TILL_NEXT_MATCH: "what does not match",
    Strategy.SKIP_TILL_ANY_MATCH: "anything",
    Contiguity.STRICT: "nothing",
    Contiguity.PARTITION: "other partitions",
    Contiguity.NEXT: "what does not match",
    Contiguity.ANY: "anything",
}


def _ignore(plan: Plan, state: int, component: Component, edge: Edge) -> Arrow:
    """What a run ignores in a state, in which it waits to take an edge of a component."""
    query = plan.query
    by_step = query.strategy is Strategy.CONTIGUITY
    ignored = _IGNORED[query.contiguity(component.position, edge) if by_step else query.strategy]
    return Arrow("ignore", state, state, ignored, () if ignored == "nothing" else _within(plan))


def _within(plan: Plan) -> tuple[str, ...]:
    """A run ends with the first event outside its window, whatever the event (SASE+ 3.2, step 5)."""
    window = window_of(plan.query)
    return (f"within {window}",) if plan.has_runs and window is not None else ()


def _tested(plan: Plan, component: Component, edge: Edge) -> tuple[str, ...]:
    """The predicates on one edge: those of the role, of the key, and between events."""
    texts: list[str] = []
    conjuncts: list[Conjunct] = []
    first = plan.positives[0].position
    if edge is Edge.BEGIN:
        conjuncts += plan.roles_of(component)[0]
        texts += [f"[{part.label}]" for part in plan.key if component.position != first]
    if edge is Edge.TAKE:
        conjuncts += plan.roles_of(component)[1]
        texts += [f"[{part.label}]" for part in plan.key]
    if edge is Edge.TAKE or (edge is Edge.BEGIN and component.position != first):
        texts += _within(plan)
    conjuncts += [
        c for c in (*plan.construction, *plan.selection) if c.tested_at == component.position and c.edge is edge
    ]
    shown = [render_conjunct(plan.query, c) for c in conjuncts]
    return (*texts, *dict.fromkeys(text for text in shown if not _is_key_null_check(plan, text)))


def _peek(plan: Plan, component: Component) -> tuple[str, ...]:
    """A run leaves a Kleene component only with an event that begins the next one (SASE+ 3.2, step 6)."""
    following = [c for c in plan.positives if c.position > component.position]
    return (f"{_BEGINS}{following[0].variable}",) if plan.has_runs and following else ()


def _is_key_null_check(plan: Plan, text: str) -> bool:
    """`x.id IS NOT NULL` is not shown if [id] is a key, which implies it."""
    return any(text.endswith(f".{part.label} IS NOT NULL") for part in plan.key)


def _negatives(plan: Plan) -> list[Arrow]:
    arrows = []
    bounds = [c.position for c in plan.positives]
    for negative in plan.negatives:
        before = sum(1 for position in bounds if position < negative.position)
        conjuncts = (*plan.roles.get(negative.position, ()), *plan.forbidding.get(negative.position, ()))
        texts = [render_conjunct(plan.query, c) for c in conjuncts]
        keys = [f"[{part.label}]" for part in plan.key if negative.position in part.expressions]
        shown = (*keys, *dict.fromkeys(text for text in texts if not _is_key_null_check(plan, text)))
        arrows.append(Arrow("forbid", before, before, label_of(negative), shown))
    return arrows
