"""Random sequences and Kleene queries with their events, small enough for the oracle and dense enough to match often.

The profile "sase" has sequences under the default strategy: ANY, negations anywhere, equivalence tests, comparisons
between events, OR and NOT, nulls, absent attributes, simultaneous events, window edges. The profile "kleene" has
Kleene components, the strategies, contiguity by step, windows in events and the forms of OUTPUT. Every query is valid.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable

from tests.generate.cases import RandomCase
from tests.generate.events import (
    COMPARISONS,
    NUMBERS,
    TYPES,
    VALUES,
    Component,
    Types,
    random_components,
    random_events,
    random_types,
)

FORMS = ("NON_OVERLAPPING", "FIRST", "SKIP TO FIRST", "SKIP TO LAST", "COMPRESSED")
STRATEGIES = ("strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match", "contiguity")


def random_pattern(rng: random.Random, profile: str, *, depth: int = 0, declared: bool = True) -> RandomCase:
    """A case of the profile "sase" or "kleene"; the same generator state gives the same case. With a `depth`, every
    condition has AND, OR and NOT nested up to it. Some event types are declared, if they may be.

    >>> random_pattern(random.Random(1), "sase") == random_pattern(random.Random(1), "sase")
    True
    """
    types = random_types(rng) if declared and rng.random() < 0.4 else None
    if profile == "sase":
        text = _sase_query(rng, types, depth)
        count = rng.randint(5, 16)
    else:
        assert profile == "kleene", f"there is no profile {profile!r}"
        text = _kleene_query(rng, types, depth)
        # Under any-match a Kleene component chooses any subset.
        chooses = "skip_till_any_match" in text or "contiguity(" in text.replace("_contiguity(", "")
        count = rng.randint(4, 9) if chooses else rng.randint(5, 16)
    named = [name for name in TYPES if re.search(rf"\b{name}\b", text)]
    return RandomCase(text, random_events(rng, count, named, types), types)


# ── Queries ────────────────────────────────────────────────────────────────────────────────────────


def _sase_query(rng: random.Random, types: Types | None, depth: int) -> str:
    while True:
        kinds = [rng.random() < 0.3 for _ in range(rng.randint(1, 4))]
        if not all(kinds):
            break
    components = random_components(rng, ["-" if negated else "." for negated in kinds], types)
    clauses = [f"PATTERN SEQ({', '.join(c.text for c in components)})"]
    conjuncts = [random_equivalence(rng, components)] if rng.random() < 0.5 else []
    conjuncts += [random_condition(rng, components, depth) for _ in range(rng.choice((0, 0, 1, 1, 2)) or bool(depth))]
    conjuncts = [conjunct for conjunct in conjuncts if conjunct]
    if conjuncts:
        clauses.append("WHERE " + " AND ".join(conjuncts))
    if kinds[0] or kinds[-1] or rng.random() < 0.7:
        clauses.append(f"WITHIN {rng.randint(2, 14)}")
    if rng.random() < 0.2:
        clauses.append(_returns(rng, components))
    return "\n".join(clauses)


def _kleene_query(rng: random.Random, types: Types | None, depth: int) -> str:
    shape = rng.choice(("+", "+", "+.", "+.", ".+", ".+.", "++", "+-.", ".+-.", "-+.", "+.-", "..", ".-."))
    components = random_components(rng, shape, types)
    positives = [c for c in components if not c.negated]
    clauses = [f"PATTERN SEQ({', '.join(c.text for c in components)})"]

    name = rng.choice(STRATEGIES)
    strategy = f"{name}({', '.join(c.name + '[]' * c.kleene for c in components)})"
    if name == "contiguity":
        strategy = f"contiguity({_steps(rng, positives)})" if shape != "." else "skip_till_any_match"
    form = rng.choice(FORMS) if rng.random() < 0.45 else None
    in_events = shape[0] != "-" and shape[-1] != "-" and rng.random() < 0.25
    # These are refused where a positive component's type lacks an [attr].
    needs_attribute = "partition" in strategy or form is not None or in_events
    keys = [a for a in ("id", "s") if all(a in c.shared for c in positives) or not needs_attribute]
    conjuncts = []
    if rng.random() < 0.45:
        conjuncts.append(random_equivalence(rng, components, tuple(keys)))
    conjuncts += [random_condition(rng, components, depth) for _ in range(rng.choice((0, 1, 1, 2)) or bool(depth))]
    body = " AND ".join(conjunct for conjunct in conjuncts if conjunct)
    clauses.append(f"WHERE {strategy} {{ {body} }}")

    if in_events:
        clauses.append(f"WITHIN {rng.randint(2, 7)} EVENTS")
    elif "-" in (shape[0], shape[-1]) or rng.random() < 0.6:
        clauses.append(f"WITHIN {rng.randint(2, 14)}")
    if form is not None:
        variable = f" {rng.choice(positives).name}" if form.startswith("SKIP") else ""
        clauses.append(f"OUTPUT {form}{variable}")
    if form != "COMPRESSED" and rng.random() < 0.2:
        clauses.append(_returns(rng, components))
    return "\n".join(clauses)


def _steps(rng: random.Random, positives: list[Component]) -> str:
    """At least one of the steps of contiguity(…), each with a rule."""
    names = [c.name for c in positives[1:]] + [f"{c.name}[i]" for c in positives if c.kleene]
    chosen = [name for name in names if rng.random() < 0.7] or [rng.choice(names)]
    return ", ".join(f"{name}: {rng.choice(('strict', 'partition', 'next', 'next', 'any'))}" for name in chosen)


def _returns(rng: random.Random, components: list[Component]) -> str:
    columns = []
    for component in components:
        if component.negated:
            continue
        name = component.name
        columns.append(f"{name}.n AS {name}_n")
        if component.kleene:
            columns.append(f"count({name}[]) AS {name}_count")
            if "x" in component.attributes:
                columns.append(f"sum({name}[].x) AS {name}_sum")
                columns.append(f"stddev({name}[].x) AS {name}_deviation")
                columns.append(f"count(DISTINCT {name}[].x) AS {name}_different")
        elif "x" in component.attributes:
            columns.append(f"{name}.x {rng.choice('+-*/%')} {rng.randint(0, 2)} AS {name}_value")
    return f"RETURN R({', '.join(columns)})"


# ── Conditions ─────────────────────────────────────────────────────────────────────────────────────


def random_equivalence(
    rng: random.Random, components: list[Component], keys: tuple[str, ...] = ("id", "id", "s")
) -> str:
    usable = [key for key in keys if any(key in c.attributes for c in components if not c.negated)]
    if not usable:
        return ""
    key = rng.choice(usable)
    value = rng.choice([repr(v) for v in VALUES[key] if v is not None])
    return f"[{key} = {value}]" if rng.random() < 0.15 else f"[{key}]"


def random_condition(rng: random.Random, components: list[Component], depth: int) -> str:
    """A conjunct, perhaps with OR and NOT inside, over at most one negative component and at most one Kleene one."""
    positives = [c for c in components if not c.negated and not c.kleene]
    kleene = [c for c in components if c.kleene]
    negatives = [c for c in components if c.negated]
    chosen = rng.sample(positives, min(len(positives), rng.randint(1, 2)))
    if kleene and rng.random() < 0.75:
        chosen.append(rng.choice(kleene))
    if negatives and rng.random() < 0.4:
        chosen.append(rng.choice(negatives))
    chosen = [c for c in chosen if any(a in c.attributes for a in (*NUMBERS, "s"))]
    if not chosen:
        return ""
    # One way of indexing for the whole conjunct: v.attr may not be mixed with v[i].
    index = rng.choice(("[1]", "[i]", "[i]", "[LEN]", "")) if rng.random() < 0.7 else "[i-1]"

    def comparison() -> str:
        return _comparison(rng, chosen, index)

    if depth:
        return _nested(rng, comparison, depth)
    roll = rng.random()
    if roll < 0.65:
        return comparison()
    if roll < 0.8:
        return f"({comparison()} OR {comparison()})"
    if roll < 0.9:
        return f"NOT ({comparison()} {rng.choice(('AND', 'OR'))} {comparison()})"
    return f"({comparison()} OR ({comparison()} AND {comparison()}))"


def _nested(rng: random.Random, comparison: Callable[[], str], depth: int) -> str:
    if depth == 0 or rng.random() < 0.15:
        return comparison()
    operator = rng.choice((" AND ", " OR "))
    operands = [_nested(rng, comparison, depth - 1) for _ in range(rng.choice((2, 2, 3)))]
    return f"{rng.choice(('', '', 'NOT '))}({operator.join(operands)})"


_AGGREGATES = ("avg(", "min(", "max(", "sum(", "count(", "first(", "last(", "stddev(", "count(DISTINCT ")


def _comparison(rng: random.Random, chosen: list[Component], index: str) -> str:
    def event(component: Component) -> str:
        return component.name + (index if component.kleene else "")

    def number(component: Component) -> str | None:
        attributes = [a for a in NUMBERS if a in component.attributes]
        if not attributes:
            return None
        attribute = rng.choice(attributes)
        plain = f"{event(component)}.{attribute}"
        if component.kleene:
            forms: list[Callable[[], str]] = [lambda: plain, lambda: plain]
            if index in ("[i]", "[i-1]"):
                function = rng.choice(_AGGREGATES)
                forms.append(lambda: f"{function}{component.name}[..i-1].{attribute})")
                forms.append(lambda: f"{component.name}[i-1].{attribute}")
            if index == "[LEN]":
                function = rng.choice(_AGGREGATES)
                forms.append(lambda: f"{function}{component.name}[].{attribute})")
                forms.append(lambda: f"{component.name}.LEN")
            return rng.choice(forms)()
        return rng.choice((plain, plain, f"{plain} + 1", f"2 * {plain}", f"{plain} % 2", f"1 / {plain}", f"-{plain}"))

    left_component = rng.choice(chosen)
    left = number(left_component)
    if "s" in left_component.attributes and (left is None or rng.random() < 0.15):
        text = f"{event(left_component)}.s"
        return rng.choice(
            (
                f"{text} LIKE 'u%'",
                f"{text} < 'v'",
                f"{text} IN ('u', 'é')",
                f"upper({text}) = 'U'",
                f"{text} RLIKE '^u'",
                f"{text} NOT ILIKE 'U%'",
            )
        )
    if "l" in left_component.attributes and (left is None or rng.random() < 0.1):
        listed, no = f"{event(left_component)}.l", rng.choice(("", "NOT "))
        bound = f"{event(left_component)}.x" if "x" in left_component.attributes else "1"
        return rng.choice(
            (f"{bound} {no}IN {listed}", f"{no}any({listed}, t -> t > {bound} OR t = 0)", f"size({listed}) > {bound}")
        )
    assert left is not None
    right = number(rng.choice(chosen))
    if right is None or rng.random() < 0.3:
        right = str(rng.choice((0, 1, 2, 1.5)))
    roll = rng.random()
    if roll < 0.7:
        return f"{left} {rng.choice(COMPARISONS)} {right}"
    no = rng.choice(("", "NOT "))
    return rng.choice(
        (
            f"{left} {no}IN (0, 1, {right})",
            f"{left} {no}BETWEEN 0 AND {right}",
            f"{left} IS {no}NULL",
            f"CASE WHEN {left} > 0 THEN {right} ELSE 1 END >= 1",
            f"coalesce({left}, 1) <= {right}",
            f"{event(left_component)}.time % 2 = 0",
        )
    )
