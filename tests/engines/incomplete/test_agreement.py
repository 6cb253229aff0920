"""The engine equals the oracle of incomplete streams on random queries, models and streams, however it is fed."""

from __future__ import annotations

import random
import re

import pytest

import ouzel
from tests.agreement import agree, case_count, matched, ways_of
from tests.generate import random_case
from tests.generate.cases import COLUMNS, IncompleteCase

pytestmark = pytest.mark.quick

# Every case is scored by quadrature, so there are fewer than of sequences: 333 by default, over 6,000 in the long run.
CASES = case_count(1000) // 3
PARTS = 12


@pytest.mark.parametrize("part", range(PARTS))
def test_random_cases(part: int) -> None:
    ran = matching = 0
    for number in range(part, CASES, PARTS):
        rng = random.Random(f"incomplete {number}")
        case = random_case(rng, "incomplete")
        if lacks_priors(case):
            with pytest.raises(ouzel.InputError, match="threshold on probability"):
                matched(case)
            continue
        ran, matching = ran + 1, matching + agree(case, ways_of(case), rng, number)
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
    matching, cases = 0, case_count(150)
    for number in range(cases):
        case = random_case(random.Random(f"lossless {number}"), "incomplete")
        plain = re.sub(r"THRESHOLD .*\n?|OUTPUT BEST\n?", "", case.text)
        # Without THRESHOLD a constant in brackets is refused.
        exact = re.sub(r"\[(?:'[^']*'|-?[\d.]+)\]", "", plain)
        lossless = case._replace(text=plain + "\nTHRESHOLD 0", model=ouzel.LossModel())
        if "RETURN" in plain:
            head, tail = plain.split("RETURN")
            lossless = lossless._replace(text=f"{head}THRESHOLD 0\nRETURN{tail}")
        rows = ouzel.match(case.table, exact, **COLUMNS).to_pylist()
        want = case.read({**row, "missing": [], "score": 1.0, "probability": None} for row in rows)
        matching += bool(want)
        # Without gaps the probability is not known, unless there is no other event.
        found = {key: (score, None) for key, (score, _) in matched(lossless).items()}
        assert found == want, f"case {number}:\n{lossless.text}"
    assert cases < 150 or matching > 20


def test_a_broken_bound_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    """Edges that are thought to be worth less than they are lose answers, which must not go unnoticed."""
    from ouzel.engines.incomplete import operator as incomplete
    from ouzel.engines.incomplete import scores as worths

    right = worths.edges_of

    def wrong(*arguments, **options):  # type: ignore[no-untyped-def]
        return [edge._replace(best=edge.best / 4) for edge in right(*arguments, **options)]

    monkeypatch.setattr(incomplete, "edges_of", wrong)
    cases = [random_case(random.Random(f"incomplete {number}"), "incomplete") for number in range(80)]
    assert any(case.difference(matched(case), case.expected()) for case in cases if not lacks_priors(case))
