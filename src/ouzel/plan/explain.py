"""EXPLAIN: the plan of a query and the reasons for it, as text, JSON or a picture."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from textwrap import wrap

from ouzel.bind.diagnostics import listed
from ouzel.bind.model import At, Attribute, Bound, BoundQuery, Component, Conjunct, Interval, Kind, Operation
from ouzel.errors import InputError
from ouzel.lang.syntax import OutputForm
from ouzel.plan.choose import by_engine, engine_of, not_by_key, reach_ticks
from ouzel.plan.diagram import Automaton, automaton, label_of
from ouzel.plan.expressions import render, render_conjunct, said_of, walk
from ouzel.plan.model import KeyStrategy, Plan, Statistics


def assumptions(plan: Plan) -> str:
    """One line about what the choice of keys and counters assumes; empty if declared types would not change the
    plan.
    """
    query = plan.query
    between = [
        conjunct
        for conjunct in (*plan.construction, *plan.selection)
        if len(conjunct.components) > 1 and any(_has_unknown(one) for one in conjunct.comparisons)
    ]
    equalities = [conjunct for conjunct in between if _is_equality(conjunct)]
    found: dict[str, None] = {}
    # Only equalities that cover all positive components could be a key.
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
    return (
        f"without types= EXPLAIN assumes that {', that '.join(found)}; a run knows the types and may plan differently"
    )


def attributes_read(query: BoundQuery) -> dict[str, tuple[tuple[str, ...], ...]]:
    """For each event type, the attributes in conditions that are also read from another type. Attributes in IS NULL and
    in functions for nulls do not count, because a query that uses these expects nulls.
    """
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
    """A line that lists which type is assumed to have which attribute. Empty if no attribute is read from two types."""
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
        assumed = ", that ".join(said)
        return f"no types= are declared, so Ouzel assumes that {assumed}, with null where an event has no value"
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
    """One operator of a plan, with its description."""

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
    # The assumptions made because no types were declared; empty if declared types would change nothing.
    assumed: str = ""
    # Which types are assumed to have which attributes.
    attributes: str = ""
    # How `match` divides the events over threads.
    threads: str = ""

    @property
    def reasons(self) -> tuple[OperatorLine, ...]:
        """The chosen kernel with the reason, and the effect of each rule, as lines that fit into a picture."""
        because = [line for text in (self.because, self.assumed) for line in wrap(text, PICTURE_CHARACTERS)]
        kernel = OperatorLine(f"kernel {self.kernel}", tuple(because))
        did = [line for rule, text in self.notes for line in wrap(f"{rule}: {text}", PICTURE_CHARACTERS)]
        return (kernel, OperatorLine("rules", tuple(did))) if did else (kernel,)


def explanation(plan: Plan) -> Explanation:
    """The explanation of a plan."""
    return engine_of(plan).explain(plan)


def explained(plan: Plan, kernel: str, because: str, operators: Sequence[OperatorLine]) -> Explanation:
    """The explanation of a plan, given the engine's texts about its kernel and its operators, which are in the order in
    which events pass them.
    """
    return Explanation(
        name=plan.query.name,
        engine=plan.engine,
        text=plan.query.text.strip(),
        automaton=automaton(plan.matching),
        operators=tuple(operators),
        notes=tuple((note.rule, note.text) for note in plan.notes),
        kernel=kernel,
        because=because,
        assumed=assumptions(plan),
        attributes=attributes_taken(plan.query),
        threads=_threads(plan),
    )


def _threads(plan: Plan) -> str:
    reason = not_by_key(plan)
    ways = [] if reach_ticks(plan) is None else ["by time"]
    ways += [] if reason else [f"by {', '.join(plan.shared_columns())}"]
    return ", else ".join(ways) or f"one: {reason}"


def explain_together(
    plans: Mapping[str, Plan], statistics: Statistics | None = None, off: Collection[str] = ()
) -> list[str]:
    """Lines about what several queries share."""
    return [line for engine, own in by_engine(plans) for line in engine.explain_together(own, statistics, off)]


def role_lines(plan: Plan) -> list[str]:
    """For each component, the conditions that an event must satisfy to fill it."""
    lines = []
    for component in plan.query.components:
        first, later = plan.roles_of(component)
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


def key_labels(plan: Plan) -> str:
    """The names of the partition keys."""
    if plan.key_strategy is KeyStrategy.DYNAMIC:
        return plan.key[0].label
    return ", ".join(part.label for part in plan.key)


def negation_lines(plan: Plan) -> list[str]:
    """Lines about which events are forbidden, and where."""
    lines = []
    for negative in plan.negatives:
        interval = plan.query.interval(negative)
        after, before = interval.after, interval.before
        if interval.across:
            where = _across(interval)
        elif after is None:
            where = f"in the window before {before.variable if before else ''}"
        elif before is None:
            where = f"after {after.variable} until the window ends; matches wait for that"
        else:
            where = f"between {after.variable} and {before.variable}"
        tests = [render_conjunct(plan.query, c) for c in plan.forbidding.get(negative.position, ())]
        condition = f" with {' AND '.join(tests)}" if tests else ""
        everywhere = "; its events forbid in every partition" if negative in plan.unguarded else ""
        lines.append(f"no {label_of(negative)}{condition} {where}{everywhere}")
    if all(plan.query.interval(negative).before is None for negative in plan.negatives):
        return lines
    return [*lines, f"checked {plan.negation.value}"]


def _across(interval: Interval) -> str:
    first, last = interval.after, interval.before
    assert first is not None and last is not None, "WITHOUT is about events of the match"
    if first == last:
        return f"between the first and the last event of {first.variable}[]"
    return f"between {_end_of(first, 'first')} and {_end_of(last, 'last')}"


def _end_of(component: Component, which: str) -> str:
    return f"the {which} event of {component.variable}[]" if component.kleene else component.variable


def transformation_line(plan: Plan) -> str:
    """A line with the columns of the answer."""
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
    """An explanation as text, JSON or SVG."""
    if form == "text":
        return _text(explained)
    if form == "json":
        return json.dumps(asdict(explained), indent=2, ensure_ascii=False)
    if form == "svg":
        from ouzel.plan.diagram import svg

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
    lines += [f"  threads: {explained.threads}"] if explained.threads else []
    if explained.notes:
        lines += ["", "rules"]
        lines += [f"  {rule}: {text}" for rule, text in explained.notes]
    return "\n".join(lines)
