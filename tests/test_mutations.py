"""A comparison that is turned round in a kernel is caught by `make test-fast`.

Run alone: `pytest -m long tests/test_mutations.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.repository.sources import ROOT


class Mutation(NamedTuple):
    """One comparison of a kernel, right and wrong, and the suite that must notice."""

    file: str
    right: str
    wrong: str
    suite: str


# Answers depend on each of these; a comparison that only saves work would pass. So would, in `_next_timestamp` of
# `scan.py`, `expiry <= event_tick` for `expiry < event_tick`: where the two are equal, either branch gives that tick.
MUTATIONS = (
    Mutation("kernels/predicates.py", "return order <= 0", "return order < 0", "engines/sequence"),
    Mutation(
        "kernels/staging.py",
        "TIED if ticks[row] == before",
        "TIED if ticks[row] != before",
        "runtime/test_small_pushes.py",
    ),
    Mutation(
        "kernels/staging.py", "LANE_COMPONENT] != source", "LANE_COMPONENT] == source", "runtime/test_small_pushes.py"
    ),
    Mutation("kernels/groups.py", "ranks[place] < ranks[best]", "ranks[place] > ranks[best]", "engines/kleene"),
    Mutation(
        "engines/sequence/stacks.py",
        "or end[node] < barrier[level]",
        "or end[node] > barrier[level]",
        "engines/sequence",
    ),
    Mutation(
        "engines/sequence/stacks.py", "Mark.GUARD, node] > after", "Mark.GUARD, node] < after", "engines/sequence"
    ),
    Mutation(
        "engines/sequence/stacks_plain.py",
        "end[oldest] < window_start",
        "end[oldest] <= window_start",
        "engines/sequence",
    ),
    Mutation("engines/kleene/runs_loop.py", "start > runs.end[here]", "start >= runs.end[here]", "engines/kleene"),
    Mutation(
        "engines/kleene/runs.py", "guard[here, begins] == CLOSED", "guard[here, begins] != CLOSED", "engines/kleene"
    ),
    Mutation("engines/kleene/graph.py", "if since >= oldest and", "if since > oldest and", "engines/kleene"),
    Mutation(
        "engines/kleene/graph_paths.py", "_STARTS if since >= oldest", "_STARTS if since > oldest", "engines/kleene"
    ),
    Mutation("engines/kleene/edges.py", "and code != common", "and code == common", "engines/kleene"),
    Mutation(
        "engines/aggregate/matrix.py",
        "] > state.oldest_negative[key]",
        "] < state.oldest_negative[key]",
        "engines/aggregate",
    ),
    Mutation("engines/aggregate/scan.py", "if expiry <= until", "if expiry < until", "engines/aggregate"),
    Mutation(
        "engines/aggregate/cumulative.py",
        "at = 2 * (tables.columns + column)",
        "at = 2 * column",
        "engines/aggregate",
    ),
    Mutation("engines/aggregate/per_start.py", "Cell.GROUP] != group", "Cell.GROUP] == group", "engines/aggregate"),
    Mutation(
        "engines/aggregate/stacked.py",
        "range(tables.level[coordinate] + 1)",
        "range(tables.level[coordinate])",
        "engines/aggregate",
    ),
    Mutation(
        "engines/aggregate/tree.py",
        "np.uint64(tick[oldest]) >= window",
        "np.uint64(tick[oldest]) > window",
        "engines/aggregate",
    ),
    Mutation("engines/automata/advance.py", "if inside == (atoms", "if inside != (atoms", "engines/automata"),
    Mutation(
        "engines/incomplete/search.py",
        "if instances.start[node] > after:",
        "if instances.start[node] < after:",
        "engines/incomplete",
    ),
    Mutation(
        "engines/rows/partitions.py",
        "times[end] - times[row] < window",
        "times[end] - times[row] <= window",
        "engines/rows",
    ),
    Mutation("engines/rows/search.py", "if first <= row < last", "if first < row < last", "engines/rows"),
    Mutation("engines/rows/views.py", "if seen == offsets[quantity]:", "if seen != offsets[quantity]:", "engines/rows"),
)


def test_every_mutation_has_its_place() -> None:
    for mutation in MUTATIONS:
        text = (ROOT / "src" / "ouzel" / mutation.file).read_text(encoding="utf-8")
        assert mutation.right in text, f"{mutation.file} has changed: choose another comparison"


@pytest.mark.long
@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: f"{mutation.file}, {mutation.wrong}")
def test_fast_tests_catch_mutation(mutation: Mutation, tmp_path: Path) -> None:
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for folder in ("src", "tests"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    file = tmp_path / "src" / "ouzel" / mutation.file
    text = file.read_text(encoding="utf-8")
    file.write_text(text.replace(mutation.right, mutation.wrong, 1), encoding="utf-8")
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1", "OUZEL_RANDOM_SHARE": "0.3"}
    environment.pop("OUZEL_RANDOM_CASES", None)
    suites = [f"tests/{mutation.suite}", "tests/test_golden.py"]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        "-m",
        "not spark and not long and not compiled",
        *suites,
    ]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    failed = [line for line in done.stdout.splitlines() if line.startswith("FAILED")]
    print(f"{mutation.file}: {mutation.right} became {mutation.wrong}: {failed or 'not noticed'}")
    assert done.returncode == 1 and failed, done.stdout + done.stderr
