"""The strategies and contiguity by step against a check of single matches: was every step of a match allowed?

The oracle carries sets of runs forward. This check goes the other way: it takes every choice of events there is,
replays the stream beside it, and asks of each chosen event whether its edge was open and of each passed one whether it
could be ignored. Predicates are Python functions that know the edges on which they are tested.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from ouzel.lang import parse
from tests.agreement import case_count
from tests.oracle.events import Event
from tests.oracle.oracle import Match, Result, answer
from tests.oracle.predicates import Choice, Predicate, Row, kleene_predicates, later_predicates, single_predicates

KINDS = (".", "+", "..", "+.", ".+", "++", "...", ".+.", "+..", "+.+")


@dataclass(frozen=True)
class Case:
    strategy: str
    kinds: str  # "." a single component, "+" a Kleene one
    types: str
    predicates: tuple[Predicate, ...]
    window: int | None
    window_is_in_events: bool
    has_key: bool
    rows: list[Row]  # of different times, so that they stand in stream order
    rules: dict[tuple[str, str], str]  # of contiguity, by variable and edge

    @property
    def names(self) -> str:
        return "abc"[: len(self.kinds)]

    @property
    def text(self) -> str:
        components = [
            f"{t}+ {v}[]" if k == "+" else f"{t} {v}"
            for k, t, v in zip(self.kinds, self.types, self.names, strict=True)
        ]
        variables = ", ".join(v + "[]" * (k == "+") for k, v in zip(self.kinds, self.names, strict=True))
        body = " AND ".join(["[k]"] * self.has_key + [predicate.text for predicate in self.predicates])
        within = "" if self.window is None else f"WITHIN {self.window}{' EVENTS' * self.window_is_in_events}"
        if self.rules:
            variables = ", ".join(
                f"{v}[i]: {r}" if edge == "take" else f"{v}: {r}" for (v, edge), r in self.rules.items()
            )
        return f"PATTERN SEQ({', '.join(components)}) WHERE {self.strategy}({variables}) {{ {body} }} {within}"

    def is_open(self, variable: str, edge: str, choice: Choice) -> bool:
        return all(p.function(choice) for p in self.predicates if (variable, edge) in p.edges)


def random_case(rng: random.Random, strategy: str) -> Case:
    kinds = rng.choice(KINDS if strategy != "contiguity" else KINDS[1:])
    names = "abc"[: len(kinds)]
    singles = [v for v, kind in zip(names, kinds, strict=True) if kind == "."]
    pool = [p for v, w in itertools.permutations(singles, 2) for p in single_predicates(v, w)]
    for v, kind in zip(names, kinds, strict=True):
        if kind == "+":
            pool += kleene_predicates(v)
            pool += [predicate for w in singles if w > v for predicate in later_predicates(v, w)]
    predicates = tuple(rng.sample(pool, min(len(pool), rng.randint(0, 2))))
    time = 0
    rows: list[Row] = []
    for number in range(rng.randint(3, 9)):
        time += rng.randint(1, 2)
        row: Row = {"type": rng.choice("AAABBX"), "time": time, "n": number, "k": rng.choice((1, 1, 1, 2, None))}
        rows.append(row | {name: rng.choice((0, 0, 1, 1, 2, None)) for name in ("x", "y")})
    in_events = rng.random() < 0.4
    window = rng.randint(2, 6 if in_events else 12) if rng.random() < 0.6 else None
    types = "".join(rng.choice("AAB") for _ in kinds)
    has_key = rng.random() < 0.4
    rules = {}
    if strategy == "contiguity":
        steps = [(v, "begin") for v in names[1:]]
        steps += [(v, "take") for v, kind in zip(names, kinds, strict=True) if kind == "+"]
        rules = {step: rng.choice(("strict", "partition", "next", "next", "any")) for step in steps}
        rules = {step: rule for step, rule in rules.items() if rng.random() < 0.8} or rules
    return Case(strategy, kinds, types, predicates, window, in_events, has_key, rows, rules)


# ── Replay ─────────────────────────────────────────────────────────────────────────────────────────


def every_choice(case: Case) -> Iterator[Choice]:
    for size in range(len(case.kinds), len(case.rows) + 1):
        for chosen in itertools.combinations(case.rows, size):
            for cuts in itertools.combinations(range(1, size), len(case.kinds) - 1):
                parts = [list(chosen[i:j]) for i, j in itertools.pairwise((0, *cuts, size))]
                if all(kind == "+" or len(part) == 1 for kind, part in zip(case.kinds, parts, strict=True)):
                    yield dict(zip(case.names, parts, strict=True))


def may_bind(case: Case, variable: str, edge: str, bound: Choice, row: Row) -> bool:
    """May the row stand as the next event of the variable, after those bound so far?"""
    longer = {**bound, variable: [*bound.get(variable, []), row]}
    first = longer[case.names[0]][0]
    return (
        row["type"] == case.types[case.names.index(variable)]
        and is_in_window(case, first, row)
        and (not case.has_key or (row["k"] is not None and row["k"] == first["k"]))
        and case.is_open(variable, edge, longer)
    )


def is_in_window(case: Case, first: Row, last: Row) -> bool:
    if case.window is None:
        return True
    if not case.window_is_in_events:
        return bool(last["time"] - first["time"] < case.window)
    between = [r for r in case.rows if first["n"] < r["n"] <= last["n"]]
    return len([r for r in between if not case.has_key or r["k"] == first["k"]]) < case.window


def keeps_rules(case: Case, choice: Choice) -> bool:
    """Does every event keep the rule of its step, given the event bound just before it and those between?"""
    bound: Choice = {}
    previous: Row | None = None
    for variable in case.names:
        for row in choice[variable]:
            edge = "take" if variable in bound else "begin"
            if edge == "begin" and bound:
                before = list(bound)[-1]
                if case.kinds[case.names.index(before)] == "+" and not case.is_open(before, "proceed", bound):
                    return False
            if not may_bind(case, variable, edge, bound, row):
                return False
            between = case.rows[previous["n"] + 1 : row["n"]] if previous is not None else []
            rule = case.rules.get((variable, edge), "any")
            key = choice[case.names[0]][0]["k"]
            broken = {
                "strict": bool(between),
                "partition": any(not case.has_key or other["k"] == key for other in between),
                "next": any(may_bind(case, variable, edge, bound, other) for other in between),
                "any": False,
            }[rule]
            if broken:
                return False
            bound = {**bound, variable: [*bound.get(variable, []), row]}
            previous = row
    return case.kinds[-1] == "." or case.is_open(case.names[-1], "proceed", bound)


def is_allowed(case: Case, choice: Choice) -> bool:
    if case.strategy == "contiguity":
        return keeps_rules(case, choice)
    steps = {row["n"]: variable for variable, part in choice.items() for row in part}
    first, last = min(steps), max(steps)
    if not may_bind(case, case.names[0], "begin", {}, case.rows[first]):
        return False
    bound: Choice = {case.names[0]: [case.rows[first]]}
    for row in case.rows[first + 1 : last + 1]:
        current = list(bound)[-1]
        following = case.names[len(bound)] if len(bound) < len(case.names) else None
        loops = case.kinds[case.names.index(current)] == "+"
        take = loops and may_bind(case, current, "take", bound, row)
        leaves = not loops or case.is_open(current, "proceed", bound)
        begin = following is not None and leaves and may_bind(case, following, "begin", bound, row)
        step = steps.get(row["n"])
        if step is None:
            is_in_partition = not case.has_key or row["k"] == case.rows[first]["k"]
            ignore = {
                "strict_contiguity": False,
                "partition_contiguity": not take and not begin and not is_in_partition,
                "skip_till_next_match": not (take if loops else begin),
                "skip_till_any_match": True,
            }[case.strategy]
            if not ignore:
                return False
        elif step == current and loops:
            if not take:
                return False
            bound = {**bound, current: [*bound[current], row]}
        else:
            if step != following or not begin:
                return False
            bound = {**bound, step: [row]}
    return case.kinds[-1] == "." or case.is_open(case.names[-1], "proceed", bound)


def numbers(match: Result) -> list[tuple[int, ...]]:
    assert isinstance(match, Match)
    return [
        tuple(e.attributes["n"] for e in (events if isinstance(events, tuple) else (events,)))
        for events in match.bound.values()
    ]


@pytest.mark.parametrize(
    "strategy",
    ["strict_contiguity", "partition_contiguity", "skip_till_next_match", "skip_till_any_match", "contiguity"],
)
def test_runs_are_the_choices_whose_every_step_was_allowed(strategy: str) -> None:
    cases = case_count(1_200) // 4
    matched = 0
    for seed in range(cases):
        case = random_case(random.Random(seed), strategy)
        events = [Event(row["type"], row["time"], row["time"], row) for row in case.rows]
        found = [numbers(match) for match in answer(parse(case.text), events)["q1"]]
        expected = [
            [tuple(row["n"] for row in part) for part in choice.values()]
            for choice in every_choice(case)
            if is_allowed(case, choice)
        ]
        assert sorted(found) == sorted(expected), f"seed {seed}: {case.text}\non {case.rows}"
        matched += bool(expected)
    print(f"{strategy}: {cases} random cases, {matched} with a match")
    assert matched > cases / 5
