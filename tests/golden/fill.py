"""Fill in the answers and explanations of golden cases that wait with a `?`:  python -m tests.golden.fill [FILE …]

The answer comes from the fastest way that gives one, and is refused where the oracle disputes it. Read what was filled
in before committing it: a case is worth what its reader checked.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ouzel.errors import QueryError
from tests.golden.answers import Answer, Answers, answer_for, disagreement, written
from tests.golden.embedded import explained
from tests.golden.format import EXPLAIN, FOLDER, Block, Case, read_file
from tests.golden.ways import Oracle, Way, all_ways


class Disputed(Exception):
    """Two ways of running give different answers, or none can answer."""


def filled(case: Case, ways: Sequence[Way] | None = None) -> Case:
    """The case with every `?` replaced by the answer. Raises Disputed where the oracle says otherwise.

    `ways` are in order of preference; the last that can run the case answers, since later ones stand closer to users.
    """
    case = _explained(case)
    if not any(block.unanswered for block in case.expectations):
        return case
    ways = all_ways() if ways is None else ways
    if case.expected_error is not None:
        error = next((text for way in ways if way.gap(case) is None and (text := _error_text(way, case))), None)
        if error is None:
            raise Disputed(f"{case.identity}: no way of running refuses this query")
        return _with_bodies(case, {"error": error.split("\n")})
    answers = [(way, found) for way in ways if way.gap(case) is None and (found := way.run(case)) is not None]
    if not answers:
        raise Disputed(f"{case.identity}: no way of running answers this")
    proposed = replace(case, blocks=tuple(_answered(block, answers[-1][1]) for block in case.blocks))
    for way, found in answers:
        if isinstance(way, Oracle) and (reason := disagreement(proposed, found)):
            raise Disputed(f"{case.identity}: the oracle disputes the answer of {answers[-1][0].name}: {reason}")
    return proposed


def _explained(case: Case) -> Case:
    """The case with every explanation that waits for it."""
    if not any(block.unanswered for block in case.explanations):
        return case
    blocks = (
        block.with_body(explained(case, block.of)) if block.keyword == EXPLAIN and block.unanswered else block
        for block in case.blocks
    )
    return replace(case, blocks=tuple(blocks))


def _error_text(way: Way, case: Case) -> str | None:
    try:
        way.run(case)
    except QueryError as error:
        return str(error)
    return None


def _answered(block: Block, answers: Answers) -> Block:
    if not block.unanswered:
        return block
    answer: Answer = answer_for(block, answers)
    return block.with_body(written(block, answer))


def _with_bodies(case: Case, bodies: dict[str, list[str]]) -> Case:
    blocks = (block.with_body(bodies[block.keyword]) if block.keyword in bodies else block for block in case.blocks)
    return replace(case, blocks=tuple(blocks))


def fill_file(path: Path) -> tuple[int, list[str]]:
    """Fill one file in place; how many cases were filled, and what was refused."""
    file = read_file(path)
    cases, refused, count = [], [], 0
    for case in file.cases:
        try:
            cases.append(filled(case))
            count += cases[-1] is not case
        except Disputed as dispute:
            cases.append(case)
            refused.append(str(dispute))
    if count:
        path.write_text(replace(file, cases=tuple(cases)).write(), encoding="utf-8", newline="\n")
    return count, refused


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.golden.fill", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("files", nargs="*", type=Path, help="case files; all of them by default")
    paths = parser.parse_args(arguments).files or sorted(FOLDER.glob("*.case"))
    total, refused = 0, []
    for path in paths:
        count, disputes = fill_file(path)
        total += count
        refused += disputes
    print(f"{total} answers filled in, {len(refused)} refused, in {len(paths)} files")
    for line in refused:
        print(line, file=sys.stderr)
    return 1 if refused else 0


if __name__ == "__main__":
    sys.exit(main())
