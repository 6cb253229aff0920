"""EXPLAIN for algebra expressions: the automata of the paper's figures, with forward, filter and rebind edges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ouzel.algebra.model import (
    CURRENT,
    PARAMETERS,
    REGISTERS,
    BoundAlgebra,
    Branch,
    Operator,
    Source,
    Step,
    duration,
)
from ouzel.algebra.normal_form import normal_form
from ouzel.bind.model import Attribute, Bound, Type, rewritten
from ouzel.engines.automata.plan import disjunctive_form
from ouzel.plan.diagram import Arrow, Automaton, State
from ouzel.plan.explain import Explanation, OperatorLine
from ouzel.plan.render import render


@dataclass(frozen=True)
class _Named:
    """A component of a pattern for `render`, which reads only its variable."""

    variable: str


class _Components:
    """The names of the components of edge predicates."""

    def __getitem__(self, component: int) -> _Named:
        special = {CURRENT: "event", REGISTERS: "carried", PARAMETERS: ":"}
        return _Named(special.get(component, f"e{component + 1}"))


class _Query:
    components = _Components()


def explain(query: BoundAlgebra) -> Explanation:
    """Describe the automata of an expression, those that others read first."""
    states: list[State] = []
    arrows: list[Arrow] = []
    lines: list[OperatorLine] = []
    time = query.catalog.time.type
    for number, stream in enumerate(query.streams):
        is_answer = number == len(query.streams) - 1
        shown = []
        for branch in stream.branches:
            first = len(states)
            _draw(branch, states, arrows, time)
            shown.append(f"states {first + 1} to {len(states)}: {_summary(branch)}")
        title = "answer" if is_answer else f"stream {number + 1}, read by later automata"
        lines.append(OperatorLine(title, tuple(shown)))
    linear = len(query.streams) == 1
    because = (
        "a linear-plus expression: one automaton, acyclic except for filter and rebind loops"
        if linear
        else "not linear-plus: split into linear-plus parts that read each other's results (resubscription)"
    )
    normal = normal_form(query.expression, query.catalog)
    shown = ["only σ costs anything; σ, ρ, α and π have a normal form (Theorem 3)"]
    shown.append("written so already" if normal == query.expression else f"rewritten: {normal!r}")
    lines.append(OperatorLine("unary operators", tuple(shown)))
    if any(len(stream.branches) > 1 for stream in query.streams):
        text = "one automaton for each side; results with the same sources and values are one"
        lines.append(OperatorLine("union", (text,)))
    return Explanation(
        name=query.name,
        engine="automata",
        text=query.text,
        automaton=Automaton(tuple(states), tuple(arrows)),
        operators=tuple(lines),
        notes=(),
        kernel="automata",
        because=because,
    )


def _draw(branch: Branch, states: list[State], arrows: list[Arrow], time: Type) -> None:
    place = len(states)
    states.append(State("start"))
    label = _source(branch.start.source)
    arrows.append(Arrow("forward", place, place + 1, label, _texts(branch.start.conditions, time)))
    for number, step in enumerate(branch.steps, start=1):
        place += 1
        states.append(State(_letter(number)))
        first = step.iterations[0]
        source = _source(step.operand.source)
        theta = _texts((*step.operand.conditions, *first.theta), time)
        passed = f"NOT ({' AND '.join([source, *theta])})"
        arrows.append(Arrow("filter", place, place, "every event", (passed,)))
        later = step.iterations[-1]
        if step.operator is Operator.FOLD:
            tests = _texts((*later.theta, *later.keeps), time)
            arrows.append(Arrow("rebind", place, place, source, (*tests, *_registers(step, time))))
        tests = _texts((*later.theta, *later.keeps, *later.results), time)
        arrows.append(Arrow("forward", place, place + 1, source, tests))
    states.append(State(_letter(len(branch.steps) + 1), final=True))


def _letter(number: int) -> str:
    return chr(ord("A") + number - 1) if number <= 26 else f"N{number}"


def _source(source: Source) -> str:
    if source.derived is not None:
        return f"stream {source.derived + 1}"
    assert source.base is not None
    return source.base.type or "any event"


def _texts(conditions: Iterable[Bound], time: Type) -> tuple[str, ...]:
    """The conditions of an edge as text, one for each conjunct."""
    alternatives = disjunctive_form(conditions)
    texts = [[_text(one, time) for one in conjunct] for conjunct in alternatives]
    if len(texts) == 1:
        return tuple(texts[0])
    return (" OR ".join(f"({' AND '.join(conjunct)})" for conjunct in texts),)


def _text(expression: Bound, time: Type) -> str:
    wholes = {duration(0, CURRENT, time), duration(CURRENT, CURRENT, time)}

    def change(part: Bound) -> Bound | None:
        return Attribute(CURRENT, ("DUR",), type=part.type) if part in wholes else None

    query: Any = _Query()
    return render(query, rewritten(expression, change)).replace("event.DUR", "DUR").replace(":.", ":")


def _registers(step: Step, time: Type) -> tuple[str, ...]:
    values = step.iterations[-1].registers
    return tuple(f"carried.{step.first_register + k} := {_text(value, time)}" for k, value in enumerate(values))


def _summary(branch: Branch) -> str:
    parts = [_source(branch.start.source)]
    parts += [f"{step.operator.value} {_source(step.operand.source)}" for step in branch.steps]
    return ", ".join(parts)
