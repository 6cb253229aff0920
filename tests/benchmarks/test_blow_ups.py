"""Every case of the benchmark has the rows that it says; its figures mean nothing here."""

from __future__ import annotations

import warnings

import pytest

import ouzel
from benchmarks import blow_ups


@pytest.mark.parametrize("name", blow_ups.GROWING)
def test_growing_cases_have_the_rows_they_say(name: str) -> None:
    make, _ = blow_ups.GROWING[name]
    for size in (4, 10):
        make(size).run()


def test_pairs_have_the_rows_they_say() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ouzel.EmptyAnswerWarning)
        for pair in (
            blow_ups.negative_that_never_occurs(400),
            blow_ups.equalities_written_out(40),
            *blow_ups.forms(40).values(),
        ):
            for case in pair:
                case.run()
