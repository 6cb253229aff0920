"""The automaton of a query as a small graph (states, edges and the predicates on them), and as an SVG picture, which
needs no other program.

The edges are those of NFA^b (SASE+ 3.1): begin binds an event, take adds an event to a Kleene component, proceed leaves
the component, and ignore skips an event. A negative component is drawn between the two states whose events are the ends
of its interval.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from xml.sax.saxutils import escape

from ouzel.bind.model import BoundQuery, Component, Conjunct, Edge, EventWindow, TimeWindow
from ouzel.lang.syntax import Contiguity, Strategy
from ouzel.plan.expressions import render_conjunct
from ouzel.plan.model import Plan

if TYPE_CHECKING:
    from ouzel.plan.explain import Explanation


@dataclass(frozen=True, slots=True)
class State:
    name: str
    final: bool = False


@dataclass(frozen=True, slots=True)
class Arrow:
    """An edge from one state to another, by their numbers. `kind` is begin, take, proceed, ignore or forbid."""

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
    """The automaton that a plan runs, with each predicate on the edge where it is tested."""
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
    """One automaton for several linear patterns. States with the same future are merged. So an optional step adds a
    second path to the state after it, and alternatives are parallel paths.
    """
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
    """The tests on an edge that begins one of several components, joined by OR."""
    begun = [test.removeprefix(_BEGINS) for test in tests if test.startswith(_BEGINS)]
    others = tuple(test for test in tests if not test.startswith(_BEGINS))
    return (*others, _BEGINS + " or ".join(begun)) if begun else others


def pattern_label(query: BoundQuery) -> str:
    """A linear pattern as text."""
    labels = [f"!({label_of(c)})" if c.negated else label_of(c) for c in query.components if not c.across]
    text = f"SEQ({', '.join(labels)})"
    for negative in query.negatives:
        if negative.across:
            names = [query.components[position].variable for position in negative.across]
            inside = "" if len(names) == len(query.positives) else f" in {', '.join(names)}"
            text += f" WITHOUT {label_of(negative)}{inside}"
    return text


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
    """The loop for events that a run ignores in a state, while it waits to take an edge of a component."""
    query = plan.query
    by_step = query.strategy is Strategy.CONTIGUITY
    ignored = _IGNORED[query.contiguity(component.position, edge) if by_step else query.strategy]
    return Arrow("ignore", state, state, ignored, () if ignored == "nothing" else _within(plan))


def _within(plan: Plan) -> tuple[str, ...]:
    """The test that every event outside the window ends a run (SASE+ 3.2, step 5)."""
    window = window_of(plan.query)
    return (f"within {window}",) if plan.has_runs and window is not None else ()


def _tested(plan: Plan, component: Component, edge: Edge) -> tuple[str, ...]:
    """The predicates on one edge: from the role, from the key, and between events."""
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
    """The test for leaving a Kleene component: a run leaves it only with an event that begins the next component (SASE+
    3.2, step 6).
    """
    following = [c for c in plan.positives if c.position > component.position]
    return (f"{_BEGINS}{following[0].variable}",) if plan.has_runs and following else ()


def _is_key_null_check(plan: Plan, text: str) -> bool:
    """Whether a test is `x.id IS NOT NULL` and [id] is a key. It is not shown then, because the key implies it."""
    return any(text.endswith(f".{part.label} IS NOT NULL") for part in plan.key)


def _negatives(plan: Plan) -> list[Arrow]:
    arrows = []
    # The state in which each positive component is awaited, and the last state.
    awaited: dict[int, int] = {}
    states = 0
    for component in plan.positives:
        awaited[component.position] = states
        states += 1 + component.kleene
    for negative in plan.negatives:
        interval = plan.query.interval(negative)
        first = last = states if interval.before is None else awaited[interval.before.position]
        if interval.across and interval.after is not None and interval.before is not None:
            first, last = awaited[interval.after.position] + 1, last + interval.before.kleene
        conjuncts = (*plan.roles.get(negative.position, ()), *plan.forbidding.get(negative.position, ()))
        texts = [render_conjunct(plan.query, c) for c in conjuncts]
        keys = [f"[{part.label}]" for part in plan.key if negative.position in part.expressions]
        shown = (*keys, *dict.fromkeys(text for text in texts if not _is_key_null_check(plan, text)))
        arrows += [Arrow("forbid", state, state, label_of(negative), shown) for state in range(first, last + 1)]
    return arrows


_RADIUS = 26
_CHARACTER = 6.7  # width of one character of the 11 px monospace font
_LINE = 15
_MARGIN = 30
_STYLE = """
  text { font: 11px ui-monospace, Menlo, Consolas, monospace; fill: #1f2933; }
  .state { fill: #ffffff; stroke: #334e68; stroke-width: 1.6; }
  .name { font-weight: 600; text-anchor: middle; dominant-baseline: central; }
  .edge { fill: none; stroke: #334e68; stroke-width: 1.4; }
  .dashed { stroke-dasharray: 4 3; }
  .forbid { stroke: #c0392b; }
  .forbidden { fill: #c0392b; }
  .middle { text-anchor: middle; paint-order: stroke; stroke: #ffffff; stroke-width: 4px; }
  .test { fill: #627d98; }
  .box { fill: #f0f4f8; stroke: #bcccdc; rx: 6; }
  .title { font-weight: 600; }
"""


def svg(explained: Explanation) -> str:
    """The SVG picture of an explanation: the automaton, below it the operators in the order in which events pass them,
    then the reasons.
    """
    arrows = explained.automaton.arrows
    states = explained.automaton.states
    loops: dict[int, list[Arrow]] = {}
    forwards: dict[int, list[Arrow]] = {}
    jumps: list[Arrow] = []
    for arrow in arrows:
        if arrow.source == arrow.target:
            loops.setdefault(arrow.source, []).append(arrow)
        elif arrow.target == arrow.source + 1:
            forwards.setdefault(arrow.source, []).append(arrow)
        else:
            jumps.append(arrow)
    above = max((sum(_height(a) for a in group) for group in loops.values()), default=0)
    below = max((sum(_height(a) for a in group) for group in forwards.values()), default=0)
    baseline = _MARGIN + above + 40 + _RADIUS
    centres = _centres(len(states), forwards, loops)
    parts: list[str] = []
    for source, group in forwards.items():
        parts += _forward(group, centres[source], centres[source + 1], baseline)
    # Short ones first: a longer one below them crosses fewer.
    for arrow in sorted(jumps, key=lambda arrow: arrow.target - arrow.source):
        depth = below + 26
        below = depth + _height(arrow)
        parts += _jump(arrow, centres[arrow.source], centres[arrow.target], baseline, depth)
    for source, group in loops.items():
        parts += _loops(group, centres[source], baseline)
    # Texts cover the arrows that pass them.
    parts.sort(key=lambda part: part.startswith("<text"))
    for centre, state in zip(centres, states, strict=True):
        parts.append(f'<circle class="state" cx="{centre:.0f}" cy="{baseline}" r="{_RADIUS}"/>')
        if state.final:
            parts.append(f'<circle class="state" cx="{centre:.0f}" cy="{baseline}" r="{_RADIUS - 4}"/>')
        parts.append(f'<text class="name" x="{centre:.0f}" y="{baseline}">{escape(_short(state.name))}</text>')
    top = baseline + _RADIUS + below + 30
    boxes, bottom, box_width = _operator_boxes(explained, top)
    parts += boxes
    width = max(centres[-1] + _RADIUS, _MARGIN + box_width) + _MARGIN
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{bottom + _MARGIN:.0f}" '
        f'viewBox="0 0 {width:.0f} {bottom + _MARGIN:.0f}" role="img" '
        f'aria-label="plan of {_attribute(explained.name)}">'
    )
    marker = (
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" '
        'orient="auto-start-reverse"><path d="M0,0 L8,4 L0,8 z" fill="#334e68"/></marker></defs>'
    )
    background = '<rect width="100%" height="100%" fill="#ffffff"/>'
    return "\n".join([head, f"<style>{_STYLE}</style>", marker, background, *parts, "</svg>"])


def _attribute(text: str) -> str:
    return escape(text, {'"': "&quot;"})


def _short(name: str) -> str:
    name = name if len(name) <= 7 else name.replace(" or ", "|")
    return name if len(name) <= 7 else name[:6] + "…"


def _title(arrow: Arrow) -> str:
    return " ".join(part for part in (arrow.kind, arrow.label) if part)


def _height(arrow: Arrow) -> float:
    return _LINE * (1 + len(arrow.predicates)) + 8


def _width(arrow: Arrow) -> float:
    return max(len(text) for text in (_title(arrow), *arrow.predicates)) * _CHARACTER


def _centres(count: int, forwards: dict[int, list[Arrow]], loops: dict[int, list[Arrow]]) -> list[float]:
    """Centres of states, far enough apart for the widest text between and above adjacent states."""
    reach = [max((_width(a) / 2 for a in loops.get(i, ())), default=0.0) for i in range(count)]
    centres = [_MARGIN + max(_RADIUS, reach[0])]
    for i in range(count - 1):
        between = max((_width(a) for a in forwards.get(i, ())), default=0.0) + 2 * _RADIUS + 24
        centres.append(centres[-1] + max(110.0, between, reach[i] + reach[i + 1] + 20))
    return centres


def _forward(group: list[Arrow], left: float, right: float, baseline: float) -> list[str]:
    dashed = " dashed" if all(a.kind == "proceed" for a in group) else ""
    parts = [
        f'<path class="edge{dashed}" marker-end="url(#tip)" '
        f'd="M{left + _RADIUS:.0f},{baseline} L{right - _RADIUS:.0f},{baseline}"/>'
    ]
    middle, y = (left + right) / 2, baseline + 18.0
    for arrow in group:
        parts.append(f'<text class="middle" x="{middle:.0f}" y="{y:.0f}">{escape(_title(arrow))}</text>')
        y += _LINE
        for predicate in arrow.predicates:
            parts.append(f'<text class="middle test" x="{middle:.0f}" y="{y:.0f}">{escape(predicate)}</text>')
            y += _LINE
        y += 8
    return parts


def _jump(arrow: Arrow, left: float, right: float, baseline: float, depth: float) -> list[str]:
    """An arrow past other states. It is drawn below the straight arrows and their tests."""
    top, bottom = baseline + _RADIUS, baseline + _RADIUS + depth
    dashed = " dashed" if arrow.kind == "proceed" else ""
    parts = [
        f'<path class="edge{dashed}" marker-end="url(#tip)" '
        f'd="M{left:.0f},{top} C{left + 10:.0f},{bottom} {left + 30:.0f},{bottom} {left + 50:.0f},{bottom} '
        f'L{right - 50:.0f},{bottom} C{right - 30:.0f},{bottom} {right - 10:.0f},{bottom} {right:.0f},{top}"/>'
    ]
    middle = (left + right) / 2
    for number, text in enumerate((_title(arrow), *arrow.predicates)):
        tone = "middle test" if number else "middle"
        y = bottom + _LINE * (number + 1)
        parts.append(f'<text class="{tone}" x="{middle:.0f}" y="{y:.0f}">{escape(text)}</text>')
    return parts


def _loops(group: list[Arrow], centre: float, baseline: float) -> list[str]:
    top = baseline - _RADIUS
    only_forbidding = all(a.kind == "forbid" for a in group)
    style = "edge forbid dashed" if only_forbidding else "edge dashed" if _only_quiet(group) else "edge"
    parts = [
        f'<path class="{style}" marker-end="url(#tip)" '
        f'd="M{centre - 11:.0f},{top + 3} C{centre - 30:.0f},{top - 40} {centre + 30:.0f},{top - 40} '
        f'{centre + 11:.0f},{top + 3}"/>'
    ]
    y = top - 38.0
    for arrow in reversed(group):
        for predicate in reversed(arrow.predicates):
            parts.append(f'<text class="middle test" x="{centre:.0f}" y="{y:.0f}">{escape(predicate)}</text>')
            y -= _LINE
        tone = "middle forbidden" if arrow.kind == "forbid" else "middle"
        parts.append(f'<text class="{tone}" x="{centre:.0f}" y="{y:.0f}">{escape(_title(arrow))}</text>')
        y -= _LINE + 8
    return parts


def _only_quiet(group: list[Arrow]) -> bool:
    return all(a.kind in ("ignore", "forbid") for a in group)


def _operator_boxes(explained: Explanation, top: float) -> tuple[list[str], float, float]:
    lines = (*explained.operators, *explained.reasons)
    longest = max(len(text) for line in lines for text in (line.operator, *line.does))
    width = longest * _CHARACTER + 30
    parts: list[str] = []
    y = top
    for number, line in enumerate(lines):
        height = _LINE * (1 + len(line.does)) + 14
        if 0 < number < len(explained.operators):
            middle = _MARGIN + 40
            parts.append(f'<path class="edge" marker-end="url(#tip)" d="M{middle},{y - 18:.0f} L{middle},{y:.0f}"/>')
        parts.append(f'<rect class="box" x="{_MARGIN}" y="{y:.0f}" width="{width:.0f}" height="{height}"/>')
        parts.append(f'<text class="title" x="{_MARGIN + 12}" y="{y + 18:.0f}">{escape(line.operator)}</text>')
        for i, text in enumerate(line.does):
            parts.append(f'<text x="{_MARGIN + 18}" y="{y + 18 + _LINE * (i + 1):.0f}">{escape(text)}</text>')
        y += height + 18
    return parts, y - 18, width
