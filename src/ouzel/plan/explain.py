"""EXPLAIN: what will be done for a query and why, as text, JSON or a picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap

from ouzel.bind.diagnostics import listed
from ouzel.bind.model import At, Attribute, Bound, BoundQuery, Conjunct, EventWindow, Kind, Operation
from ouzel.engines.aggregate.explain import aggregation_lines, counting_kernel, counting_lines
from ouzel.engines.aggregate.plan import AggregatePlan
from ouzel.engines.incomplete.plan import IncompletePlan
from ouzel.engines.kleene.plan import RunPlan
from ouzel.errors import InputError
from ouzel.lang.syntax import OutputForm
from ouzel.plan.diagram import Automaton, automaton, label_of, roles_of, window_of
from ouzel.plan.expressions import walk
from ouzel.plan.model import KeyWay, Plan
from ouzel.plan.render import render, render_conjunct, said_of


def assumptions(plan: Plan) -> str:
    """What the choice of keys and counters takes for granted, in one line; nothing where types decide nothing."""
    query = plan.query
    between = [
        conjunct
        for conjunct in (*plan.construction, *plan.selection)
        if len(conjunct.components) > 1 and any(_has_unknown(one) for one in conjunct.comparisons)
    ]
    equalities = [conjunct for conjunct in between if _is_equality(conjunct)]
    found: dict[str, None] = {}
    # Events can be told apart by what all of them have.
    if {c.position for c in query.positives} <= {c for conjunct in equalities for c in conjunct.components}:
        shown = " AND ".join(render_conjunct(query, conjunct) for conjunct in equalities)
        found[f"{shown} makes no key"] = None
    if query.aggregates:
        others = [conjunct for conjunct in between if not _is_equality(conjunct)]
        found |= {f"{render_conjunct(query, conjunct)} compares numbers": None for conjunct in others}
    for column in query.aggregates:
        if column.argument is not None and column.function != "count" and _has_unknown(column.argument):
            taken = "no text" if column.function in ("min", "max") else "a float"
            found[f"{render(query, column.argument)} is {taken}"] = None
    if not found:
        return ""
    return f"without types= it is assumed that {', that '.join(found)}; a run knows the types and may plan otherwise"


def attributes_read(query: BoundQuery) -> dict[str, tuple[tuple[str, ...], ...]]:
    """The attributes that conditions read of each event type, where they read the same ones of another type, too. Who
    tests for null knows of nulls, so IS NULL and functions for nulls do not count."""
    found: dict[str, dict[tuple[str, ...], None]] = {}
    for conjunct in query.conjuncts:
        for comparison in conjunct.comparisons:
            for attribute in _compared(comparison):
                for name in query.components[attribute.component].types or ():
                    found.setdefault(name, {})[attribute.path] = None
    for test in query.equivalences:
        for component in query.components:
            for name in component.types or ():
                found.setdefault(name, {})[test.path] = None
    readers = Counter(path for paths in found.values() for path in paths)
    return {
        name: shared
        for name, paths in sorted(found.items())
        if (shared := tuple(sorted(path for path in paths if readers[path] > 1)))
    }


def _compared(expression: Bound) -> Iterator[Attribute]:
    if isinstance(expression, Attribute):
        yield expression
    elif isinstance(expression, Operation) and expression.operator not in _OF_NULLS:
        for operand in expression.operands:
            yield from _compared(operand)


_OF_NULLS = ("is_null", "coalesce", "nullif", "if", "case")


def attributes_taken(query: BoundQuery) -> str:
    """Which types are taken to have which attributes, in one line; nothing where no two types share a condition."""
    read = attributes_read(query)
    if not read:
        return ""
    if query.catalog.declared is None:
        having: dict[tuple[tuple[str, ...], ...], list[str]] = {}
        for name, paths in read.items():
            having.setdefault(paths, []).append(name)
        said = [
            f"{listed(names, 'and')} {'have' if len(names) > 1 else 'has'} {listed(map('.'.join, paths), 'and')}"
            for paths, names in having.items()
        ]
        return (
            f"no types= are declared, so it is taken that {', that '.join(said)}, with null where an event has no value"
        )
    said = []
    for name, paths in read.items():
        known = query.catalog.attributes(name) or {}
        lacking = [".".join(path) for path in paths if path[0] not in known]
        own = [".".join(path) for path in paths if path[0] in known]
        parts = [f"has {listed(own, 'and')}"] if own else []
        parts += [f"lacks {listed(lacking, 'and')}, so that comparisons on it are true"] if lacking else []
        said.append(f"{name} {' and '.join(parts)}")
    return f"by the declared types, {'; '.join(said)}"


def _has_unknown(expression: Bound) -> bool:
    return any(isinstance(part, Attribute) and part.type.kind is Kind.UNKNOWN for part in walk(expression))


def _is_equality(conjunct: Conjunct) -> bool:
    return all(isinstance(one, Operation) and one.operator == "=" for one in conjunct.comparisons)


PICTURE_CHARACTERS = 90


@dataclass(frozen=True, slots=True)
class OperatorLine:
    """One operator of the plan and what it does, for people."""

    operator: str
    does: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Explanation:
    """Everything that EXPLAIN shows."""

    name: str
    engine: str
    text: str
    automaton: Automaton
    operators: tuple[OperatorLine, ...]
    notes: tuple[tuple[str, str], ...]
    kernel: str
    because: str
    # What was taken for granted, since no types were given; empty where they would change nothing.
    assumed: str = ""
    # Which types are taken to have which attributes.
    attributes: str = ""

    @property
    def reasons(self) -> tuple[OperatorLine, ...]:
        """Which kernel was chosen and why, and what each rule did, in lines that fit a picture."""
        because = [line for text in (self.because, self.assumed) for line in wrap(text, PICTURE_CHARACTERS)]
        kernel = OperatorLine(f"kernel {self.kernel}", tuple(because))
        did = [line for rule, text in self.notes for line in wrap(f"{rule}: {text}", PICTURE_CHARACTERS)]
        return (kernel, OperatorLine("rules", tuple(did))) if did else (kernel,)


def explanation(plan: Plan) -> Explanation:
    """Describe a plan. Operators come in the order in which events pass them."""
    kernel, because = kernel_of(plan)
    return Explanation(
        name=plan.query.name,
        engine=plan.engine,
        text=plan.query.text.strip(),
        # Where matches are built, their automaton is the one that runs.
        automaton=automaton(plan.inner if isinstance(plan, AggregatePlan) and plan.inner is not None else plan),
        operators=tuple(_operators(plan)),
        notes=tuple((note.rule, note.text) for note in plan.notes),
        kernel=kernel,
        because=because,
        assumed=assumptions(plan),
        attributes=attributes_taken(plan.query),
    )


def kernel_of(plan: Plan) -> tuple[str, str]:
    """Which kernel runs a plan, and why."""
    if isinstance(plan, AggregatePlan):
        return counting_kernel(plan, None if plan.inner is None else kernel_of(plan.inner)[0])
    if isinstance(plan, RunPlan):
        return plan.kernel.value, plan.reason
    if isinstance(plan, IncompletePlan):
        return "arrivals", "THRESHOLD: components may be missing, and every path has a score"
    reason = "no Kleene component and skip_till_any_match: every match is a path through stacks of single events"
    return "stacks", reason


def _operators(plan: Plan) -> list[OperatorLine]:
    if isinstance(plan, AggregatePlan):
        return _counting_operators(plan)
    if isinstance(plan, RunPlan):
        return _run_operators(plan)
    if isinstance(plan, IncompletePlan):
        return _arrival_operators(plan)
    query = plan.query
    lines = [OperatorLine("roles", tuple(_roles(plan)))]
    scan = [f"one stack for each of {', '.join(label_of(c) for c in plan.positives)}"]
    if plan.key:
        scan.append(f"partitioned by {_keys(plan)}")
    if plan.window_in_scan:
        scan.append("events whose latest predecessor has left the window are not stacked")
    lines.append(OperatorLine("sequence scan", tuple(scan)))
    construction = ["backwards from each " + label_of(plan.positives[-1])]
    construction += [f"test {render_conjunct(query, c)}" for c in plan.construction]
    if plan.key_way is KeyWay.DYNAMIC:
        construction += [f"test [{part.label}]" for part in plan.key[1:]]
    if plan.window_in_construction:
        construction.append("stop at the edge of the window")
    lines.append(OperatorLine("sequence construction", tuple(construction)))
    if plan.selection:
        lines.append(OperatorLine("selection", tuple(render_conjunct(query, c) for c in plan.selection)))
    window = window_of(query)
    if window is not None:
        early = plan.window_in_construction and not isinstance(query.window, EventWindow)
        lines.append(OperatorLine("window", (f"within {window}" + (", already checked" if early else ""),)))
    if plan.negatives:
        lines.append(OperatorLine("negation", tuple(_negation(plan))))
    lines.append(OperatorLine("transformation", (_transformation(plan),)))
    return lines


def _counting_operators(plan: AggregatePlan) -> list[OperatorLine]:
    """Counters in the place of stacks and runs; or matches as they are built, and then added up."""
    if plan.inner is not None:
        lines = _operators(plan.inner)[:-1]
    else:
        lines = [OperatorLine("roles", tuple(_roles(plan))), OperatorLine("counters", counting_lines(plan))]
        if plan.negatives:
            lines.append(OperatorLine("negation", tuple(_negation(plan)[: len(plan.negatives)])))
    return [*lines, OperatorLine("aggregation", aggregation_lines(plan))]


def _run_operators(plan: RunPlan) -> list[OperatorLine]:
    """What happens to events and runs under NFA^b; the tests themselves stand on the automaton's edges."""
    reading = ["every event is shown to the runs of its partition"]
    if plan.key:
        reading[0] += f", by {_keys(plan)}"
    if plan.coded:
        labels = ", ".join(".".join(test.path) for test in plan.coded)
        reading.append(f"[{labels}] is compared between events, since a type lacks it")
    if plan.needs_positions:
        counted = "their partition" if plan.key else "the whole stream"
        reading.append(f"events that can play no component count too, in {counted}")
    window = window_of(plan.query)
    if window is not None:
        reading.append(f"runs that have left the window of {window} end")
    if isinstance(plan.query.window, EventWindow) and plan.key:
        reading.append(
            "a window counts the events of its key: every key seen keeps its last ones (max_buffered_events)"
        )
    lines = [OperatorLine("roles", tuple(_roles(plan))), OperatorLine("runs", tuple(reading))]
    if plan.negatives:
        lines.append(OperatorLine("negation", tuple(_negation(plan))))
    lines.append(OperatorLine("transformation", (_transformation(plan),)))
    return lines


def _arrival_operators(plan: IncompletePlan) -> list[OperatorLine]:
    """AYAC's operators: arrivals with upper bounds, then paths from each last component backwards."""
    query, threshold = plan.query, plan.query.threshold
    assert threshold is not None
    arrivals = [f"one queue for each of {', '.join(label_of(c) for c in query.components)}"]
    if plan.key:
        arrivals.append(f"hashed by {_keys(plan)}")
    if plan.bounds:
        arrivals.append("with an upper bound of the worth of all paths to each arrival")
    optional = [c.variable for c in plan.positives[:-1]]
    paths = [f"backwards from each {label_of(plan.positives[-1])}"]
    if optional:
        paths.append(f"{', '.join(optional)} may be missing")
    paths += [f"test {render_conjunct(query, c)}" for c in (*plan.selection, *plan.equalities)]
    lines = [
        OperatorLine("roles", tuple(_roles(plan))),
        OperatorLine("arrivals", tuple(arrivals)),
        OperatorLine("paths", tuple(paths)),
        OperatorLine("window", (f"within {window_of(query)}",)),
    ]
    if plan.negatives:
        forbidding = []
        for negative in plan.negatives:
            tests = [render_conjunct(query, c) for c in plan.forbidding.get(negative.position, ())]
            condition = f" with {' AND '.join(tests)}" if tests else ""
            forbidding.append(f"no {label_of(negative)}{condition} between its nearest bound components")
        lines.append(OperatorLine("negation", tuple(forbidding)))
    on = "probability" if threshold.on_probability else "score"
    lines.append(OperatorLine("threshold", (f"{on} of {threshold.value:g} or more",)))
    lines.append(OperatorLine("transformation", (f"{_transformation(plan)}, missing, score, probability",)))
    return lines


def _roles(plan: Plan) -> list[str]:
    lines = []
    for component in plan.query.components:
        first, later = roles_of(plan, component)
        alike = _conditions(plan, first, At.EVERY)
        if not component.kleene or alike == _conditions(plan, later, At.EVERY):
            lines.append(f"{'!' if component.negated else ''}{label_of(component)}{alike}")
        else:
            kind = label_of(component).rpartition("+")[0]
            lines.append(f"{kind} {component.variable}[1]{_conditions(plan, first, At.FIRST)}")
            lines.append(f"{kind} {component.variable}[i]{_conditions(plan, later, At.CURRENT)}")
    return lines


def _conditions(plan: Plan, conjuncts: Sequence[Conjunct], at: At) -> str:
    tests = [render_conjunct(plan.query, said_of(conjunct, at)) for conjunct in conjuncts]
    return f" if {' AND '.join(tests)}" if tests else ""


def _keys(plan: Plan) -> str:
    if plan.key_way is KeyWay.DYNAMIC:
        return plan.key[0].label
    return ", ".join(part.label for part in plan.key)


def _negation(plan: Plan) -> list[str]:
    lines = []
    positives = plan.positives
    for negative in plan.negatives:
        before = [c for c in positives if c.position < negative.position]
        after = [c for c in positives if c.position > negative.position]
        if before and after:
            where = f"between {before[-1].variable} and {after[0].variable}"
        elif after:
            where = f"in the window before {after[0].variable}"
        else:
            where = f"after {before[-1].variable} until the window ends; matches wait for that"
        tests = [render_conjunct(plan.query, c) for c in plan.forbidding.get(negative.position, ())]
        condition = f" with {' AND '.join(tests)}" if tests else ""
        everywhere = "; its events forbid in every partition" if negative in plan.unguarded else ""
        lines.append(f"no {label_of(negative)}{condition} {where}{everywhere}")
    if all(negative.position > positives[-1].position for negative in plan.negatives):
        return lines
    return [*lines, f"checked {plan.negation.value}"]


def _transformation(plan: Plan) -> str:
    query = plan.query
    if query.output.form is OutputForm.COMPRESSED:
        return ", ".join(["end", *(".".join(test.path) for test in query.equivalences), "count", "graph"])
    if query.returns is None:
        shown = ", ".join(c.variable for c in plan.positives)
        text = f"start, end, {shown}"
    else:
        columns = [f"{render(query, column.expression)} AS {column.name}" for column in query.returns]
        text = f"{query.result_type}({', '.join(columns)})"
    if query.output.form is not OutputForm.ALL:
        text += f", output {query.output.form.value}"
    return text


def render_explanation(explained: Explanation, form: str = "text") -> str:
    """An explanation in one of the forms text, json or svg."""
    if form == "text":
        return _text(explained)
    if form == "json":
        return json.dumps(asdict(explained), indent=2, ensure_ascii=False)
    if form == "svg":
        from ouzel.plan.svg import svg

        return svg(explained)
    raise InputError(f"EXPLAIN has no format {form!r}; there are text, json and svg")


def _text(explained: Explanation) -> str:
    lines = [f"query {explained.name}", *(f"  {line}" for line in explained.text.splitlines()), "", "automaton"]
    names = [f"(({s.name}))" if s.final else f"({s.name})" for s in explained.automaton.states]
    for arrow in explained.automaton.arrows:
        where = (
            names[arrow.source] if arrow.source == arrow.target else f"{names[arrow.source]} → {names[arrow.target]}"
        )
        label = " ".join(part for part in (arrow.kind, arrow.label) if part)
        tests = f"  if {' AND '.join(arrow.predicates)}" if arrow.predicates else ""
        lines.append(f"  {where}  {label}{tests}")
    lines += ["", "plan, in the order events pass it"]
    for line in explained.operators:
        lines.append(f"  {line.operator}")
        lines += [f"    {text}" for text in line.does]
    lines += ["", f"kernel {explained.kernel}", f"  {explained.because}"]
    lines += [f"  {said}" for said in (explained.assumed, explained.attributes) if said]
    if explained.notes:
        lines += ["", "rules"]
        lines += [f"  {rule}: {text}" for rule, text in explained.notes]
    return "\n".join(lines)
