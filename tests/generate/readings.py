"""Random patterns with several readings: optional steps, counts, OR, AND, nested SEQ, ANY without a list, WITHOUT,
repeated groups, negated sequences; with strategies, forms of OUTPUT, windows and AGG. Every query is valid, except that
some patterns may be empty or have too many readings; those are made again."""

from __future__ import annotations

import random
import re
from dataclasses import dataclass, field, replace

import ouzel
from ouzel.errors import QueryError
from tests.generate.cases import RandomCase
from tests.generate.events import TYPES, Component, Types, random_components, random_events, random_types
from tests.generate.patterns import STRATEGIES, random_condition, random_equivalence

FORMS = ("NON_OVERLAPPING", "FIRST", "LATEST", "SKIP TO FIRST", "SKIP TO LAST", "COMPRESSED")


def random_readings(rng: random.Random, *, declared: bool = True) -> RandomCase:
    """A case; the same generator state gives the same case.

    >>> random_readings(random.Random(1)) == random_readings(random.Random(1))
    True
    """
    while True:
        types = random_types(rng) if declared and rng.random() < 0.3 else None
        text = _query(rng, types)
        try:
            ouzel.explain(RandomCase(text, [], types).query)
        except QueryError:
            continue
        any_match = not re.search("skip_till_next|contiguity", text)
        heavy = any_match and re.search(r"[+*}]", text)
        named = [name for name in TYPES if re.search(rf"\b{name}\b", text)] or list(TYPES)
        count = rng.randint(4, 8) if heavy else rng.randint(5, 14)
        case = RandomCase(text, random_events(rng, count, named, types, exact_sums=True), types)
        if "!(SEQ" in text:
            try:
                ouzel.match(case.table, case.query, **case.options)
            except QueryError:
                # Conditions on a negated sequence are those of runs, some of which need known types to be refused.
                continue
        return case


@dataclass
class _Made:
    """The components of a pattern that is being written."""

    types: Types | None
    components: list[Component] = field(default_factory=list)
    # Those that every reading has.
    required: list[Component] = field(default_factory=list)
    # Those of repeated groups.
    repeated: list[Component] = field(default_factory=list)


def _query(rng: random.Random, types: Types | None) -> str:
    if rng.random() < 0.06:
        return _furthest(rng, types)
    made = _Made(types)
    parts = [_part(rng, made, 2, required=True) for _ in range(rng.randint(1, 3))]
    whole = f"SEQ({', '.join(parts)})" if len(parts) > 1 or rng.random() < 0.5 or "!" in parts[0] else parts[0]
    if whole.startswith("SEQ") and len(parts) == 1:
        whole = f"SEQ({parts[0]})"
    clauses = [f"PATTERN {whole}{_without(rng, made, 0.2)}"]
    strategy = rng.choice(STRATEGIES) if rng.random() < 0.4 else None
    aggregates = rng.random() < 0.25
    form = rng.choice(FORMS) if not aggregates and rng.random() < 0.3 else None
    in_events = not aggregates and "!" not in whole and rng.random() < 0.15
    named = [c for c in made.components if not c.negated]
    positives = [c for c in named if c not in made.repeated]
    needs_attribute = strategy == "partition_contiguity" or form is not None or in_events
    keys = [a for a in ("id", "s") if all(a in c.shared for c in named) or not needs_attribute]
    conjuncts = [random_equivalence(rng, made.components, tuple(keys))] if rng.random() < 0.4 else []
    conjuncts += [random_condition(rng, made.components, 0) for _ in range(rng.choice((0, 1, 1, 2)))]
    body = " AND ".join(conjunct for conjunct in conjuncts if conjunct)
    if strategy is not None:
        if rng.random() < 0.3:
            steps = [f"{c.name}{rng.choice(('[i]', '[1]', '')) * c.kleene}" for c in named[1:]]
            rules = [f"{step}: {rng.choice(('strict', 'partition', 'next', 'any'))}" for step in steps]
            strategy = f"contiguity({', '.join(rules)})" if rules else strategy
        clauses.append(f"WHERE {strategy} {{ {body} }}")
    elif body:
        clauses.append(f"WHERE {body}")
    if aggregates:
        clauses.append(_aggregates(rng, positives, named))
    if in_events:
        clauses.append(f"WITHIN {rng.randint(2, 7)} EVENTS")
    elif "!" in whole or rng.random() < 0.7:
        clauses.append(f"WITHIN {rng.randint(2, 12)}")
        if aggregates and rng.random() < 0.4:
            clauses.append("EMIT ON CHANGE")
    if form is not None:
        skips = made.required if form.startswith("SKIP") else []
        if skips or not form.startswith("SKIP"):
            clauses.append(f"OUTPUT {form}" + (f" {rng.choice(skips).name}" if skips else ""))
    if not aggregates and positives and rng.random() < 0.5:
        clauses.append(_returns(rng, positives))
    return "\n".join(clauses)


def _furthest(rng: random.Random, types: Types | None) -> str:
    """A linear pattern whose runs are returned though they are not complete."""
    signs = rng.choice(("..", "...", ".+.", "+.", ".-..", "....", ".+", ".-+."))
    components = random_components(rng, signs, types)
    written = [
        f"!({_kinds(c)} {c.name})" if c.negated else f"{_kinds(c)}{'+' * c.kleene} {c.name}{'[]' * c.kleene}"
        for c in components
    ]
    positives = [c for c in components if not c.negated]
    made = _Made(types, list(components))
    without = _without(rng, made, 0.3)
    components = made.components
    keys = tuple(a for a in ("id", "s") if all(a in c.shared for c in positives))
    conjuncts = [random_equivalence(rng, components, keys)] if keys and rng.random() < 0.5 else []
    conjuncts += [random_condition(rng, components, 0) for _ in range(rng.choice((0, 1, 2)))]
    strategy = rng.choice(("skip_till_next_match()", "strict_contiguity()", "contiguity({})"))
    steps = ", ".join(f"{c.name}: {rng.choice(('strict', 'partition', 'next', 'any'))}" for c in positives[1:])
    clauses = [
        f"PATTERN SEQ({', '.join(written)}){without}",
        f"WHERE {strategy.format(steps)} {{ {' AND '.join(one for one in conjuncts if one)} }}",
        f"WITHIN {rng.randint(2, 12)}",
        "OUTPUT FURTHEST",
    ]
    return "\n".join([*clauses, _returns(rng, positives)] if rng.random() < 0.5 else clauses)


def _kinds(component: Component) -> str:
    return f"ANY({', '.join(component.types)})" if len(component.types) > 1 else component.types[0]


def _part(
    rng: random.Random, made: _Made, depth: int, *, required: bool, negatable: bool = True, repeatable: bool = True
) -> str:
    roll = rng.random()
    if depth == 0 or roll < 0.5 or len(made.components) > 4:
        return _leaf(rng, made, required, negatable)
    kind = rng.choice(("SEQ", "OR", "OR", "AND"))
    if repeatable and rng.random() < 0.15:
        return _repeated(rng, made, kind)
    optional = rng.random() < 0.25
    without = _without(rng, made, 0.15)
    inside = required and not optional and kind != "OR"
    count = 2 if kind == "AND" else rng.randint(2, 3)
    # A negation is between steps of SEQ, and not inside AND.
    parts = [_part(rng, made, depth - 1, required=inside, negatable=negatable and kind == "SEQ") for _ in range(count)]
    if kind == "OR" and rng.random() < 0.3:
        return f"({' | '.join(parts)}){'?' * optional}{without}"
    return f"{kind}({', '.join(parts)}){'?' * optional}{without}"


def _negated_sequence(rng: random.Random, made: _Made) -> str:
    """A negated SEQ or repetition in the place of the last component, which is negative."""
    made.components.pop()
    parts = []
    for _ in range(rng.choice((1, 2, 2, 3))):
        name = "abcdefghjklmnopqrstuvw"[len(made.components)]
        component = random_components(rng, "+" if rng.random() < 0.4 else ".", made.types, any_share=0.15)[0]
        component = replace(component, name=name, negated=True)
        made.components.append(component)
        quantifier = rng.choice(("+", "{2}", "{2,}", "{1,2}", "{3,}")) if component.kleene else ""
        parts.append(f"{_kinds(component)}{quantifier} {name}{'[]' * component.kleene}")
    return f"!(SEQ({', '.join(parts)}))" if len(parts) > 1 else f"!({parts[0]})"


def _repeated(rng: random.Random, made: _Made, kind: str) -> str:
    """A group of two components, repeated. Conditions name its variables; RETURN and the like do not."""
    parts = []
    for _ in range(2):
        name = "abcdefghjklmnopqrstuvw"[len(made.components)]
        (component,) = random_components(rng, ".", made.types, any_share=0.15)
        component = replace(component, name=name)
        made.components.append(component)
        made.repeated.append(component)
        parts.append(f"{_kinds(component)}{'?' * (rng.random() < 0.2)} {name}")
    written = f"{kind}({', '.join(parts)}){rng.choice(('{2}', '{1,2}', '{,2}', '{2,3}'))}"
    return written + _without(rng, made, 0.2)


def _without(rng: random.Random, made: _Made, share: float) -> str:
    """`WITHOUT T v` after a part, or nothing."""
    if rng.random() >= share:
        return ""
    name = "abcdefghjklmnopqrstuvw"[len(made.components)]
    component = replace(random_components(rng, "-", made.types, any_share=0.15)[0], name=name)
    made.components.append(component)
    return f" WITHOUT {_kinds(component)} {name}"


def _leaf(rng: random.Random, made: _Made, required: bool, negatable: bool) -> str:
    roll = rng.random()
    name = "abcdefghjklmnopqr"[len(made.components)]
    sign = "-" if negatable and roll < 0.16 else "+" if roll < 0.4 else "."
    (component,) = random_components(rng, sign, made.types, any_share=0.15)
    component = replace(component, name=name)
    if rng.random() < 0.08 and not component.negated and made.types is None:
        component = replace(component, types=())
    made.components.append(component)
    kinds = ", ".join(component.types)
    kinds = f"ANY({kinds})" if len(component.types) > 1 else kinds or "ANY"
    if component.negated:
        return f"!({kinds} {name})" if rng.random() < 0.5 else _negated_sequence(rng, made)
    if component.kleene:
        quantifier = rng.choice(("+", "*", "{2}", "{1,2}", "{2,}", "{,2}", "{2,3}", "{,1}"))
        written = f"{kinds}{quantifier} {name}[]{_without(rng, made, 0.15)}"
        absent = quantifier in ("*", "{,2}", "{,1}")
    else:
        absent = rng.random() < 0.3
        written = f"{kinds}{'?' * absent} {name}"
    if required and not absent:
        made.required.append(component)
    if component.types and rng.random() < 0.08:
        # Alternatives that may find the same match.
        one = f"{component.types[0]}{'{,2}' if component.kleene else ''} {name}{'[]' * component.kleene}"
        return f"OR({one}, {written})"
    return written


def _returns(rng: random.Random, positives: list[Component]) -> str:
    columns = []
    for component in positives:
        name = component.name
        columns.append(f"{name}.n AS {name}_n")
        if component.kleene:
            columns.append(f"{name}.LEN AS {name}_count")
            columns.append(f"last({name}[].n) AS {name}_last")
            if "f" in component.attributes:
                columns.append(f"count(DISTINCT {name}[].f) AS {name}_different")
        if rng.random() < 0.4:
            columns.append(f"{name} IS {rng.choice(('PRESENT', 'ABSENT', 'NOT ABSENT'))} AS {name}_is")
        if rng.random() < 0.2 and not component.kleene:
            columns.append(f"CASE WHEN {name} IS ABSENT THEN -1 ELSE {name}.n + 1 END AS {name}_case")
    return f"RETURN R({', '.join(columns)})"


def _aggregates(rng: random.Random, positives: list[Component], named: list[Component]) -> str:
    columns = ["COUNT"]
    for component in positives:
        if rng.random() < 0.5 and "x" in component.attributes:
            columns.append(
                f"{rng.choice(('SUM', 'AVG', 'MIN', 'MAX', 'COUNT'))}({component.name}.x) AS {component.name}_x"
            )
    clause = f"AGG {', '.join(columns)}"
    if rng.random() < 0.4:
        if all("id" in c.shared for c in named) and rng.random() < 0.6:
            clause = f"GROUP BY id {clause}"
        else:
            single = [c for c in positives if not c.kleene and "y" in c.attributes]
            clause = f"GROUP BY {rng.choice(single).name}.y {clause}" if single else clause
    return f"{clause} HAVING count >= 2" if rng.random() < 0.2 else clause
