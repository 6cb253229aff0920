"""The engine equals the oracle of incomplete streams on random queries, models and streams, however it is fed."""

from __future__ import annotations

import os
import random
import re

import pytest

import ouzel
from ouzel.plan.rules import RULES
from tests.agreement_incomplete import COLUMNS, difference, expected, keyed, matched, streamed, table_of
from tests.generate.incomplete import IncompleteCase, random_case

# Every case is scored by quadrature, so there are fewer than of sequences: 333 by default, over 6,000 in the long run.
CASES = int(os.environ.get("OUZEL_RANDOM_CASES", "1000")) // 3
PARTS = 12


@pytest.mark.parametrize("part", range(PARTS))
def test_random_cases(part: int) -> None:
    ran = matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"incomplete {number}")
        case = random_case(rng)
        if lacks_priors(case):
            with pytest.raises(ouzel.InputError, match="threshold on probability"):
                matched(case)
            continue
        want = expected(case)
        ran, matching = ran + 1, matching + bool(want)
        off = [rule.name for rule in RULES if rng.random() < 0.5]
        for way, found in (
            ("whole", matched(case)),
            (f"without {off}", matched(case, rules_off=off)),
            ("streamed", streamed(case, rng)),
        ):
            wrong = difference(case, found, want)
            assert wrong is None, f"case {number}, {way}: {wrong}\n{case.text}\n{case.model}"
    assert CASES < 200 or matching > 0.2 * ran, "too few cases match for their agreement to mean much"


def lacks_priors(case: IncompleteCase) -> bool:
    """Such a model cannot serve a threshold on probability, unless nothing that may be missing is ever lost."""
    if case.model.priors or "ON probability" not in case.text:
        return False
    try:
        matched(case)
    except ouzel.InputError:
        return True
    return False


def test_without_loss_the_answers_are_those_of_an_exact_query() -> None:
    matching = 0
    for number in range(150):
        case = random_case(random.Random(f"lossless {number}"))
        exact = re.sub(r"THRESHOLD .*\n?|OUTPUT BEST\n?", "", case.text)
        lossless = case._replace(text=exact + "\nTHRESHOLD 0", model=ouzel.LossModel())
        if "RETURN" in exact:
            head, tail = exact.split("RETURN")
            lossless = lossless._replace(text=f"{head}THRESHOLD 0\nRETURN{tail}")
        rows = ouzel.match(table_of(case), exact, **COLUMNS).to_pylist()
        want = keyed({**row, "missing": [], "score": 1.0, "probability": 1.0} for row in rows)
        matching += bool(want)
        assert matched(lossless) == want, f"case {number}:\n{lossless.text}"
    assert matching > 20


def test_a_broken_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges that are thought to be worth less than they are lose answers, which must not go unnoticed."""
    from ouzel.engines.incomplete import operator as incomplete
    from ouzel.engines.incomplete import scores as worths

    right = worths.edges_of

    def wrong(*arguments, **options):  # type: ignore[no-untyped-def]
        edges, curves = right(*arguments, **options)
        return [edge._replace(best=edge.best / 4) for edge in edges], curves

    monkeypatch.setattr(incomplete, "edges_of", wrong)
    cases = [random_case(random.Random(f"incomplete {number}")) for number in range(80)]
    assert any(difference(case, matched(case), expected(case)) for case in cases if not lacks_priors(case))
