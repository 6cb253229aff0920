"""What `ouzel run` is asked for, and what there is to tell of it afterwards, on whichever engine it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ouzel
from ouzel.cli.results import Format, Results
from ouzel.cli.sources import Source
from ouzel.lang.syntax import OutputForm


@dataclass(frozen=True)
class Job:
    """Queries, what they read, and where their answers go. `options` are those of `ouzel.match`."""

    queries: dict[str, ouzel.Query]
    sources: list[Source]
    output: Path | None
    format: Format | None
    options: dict[str, Any]
    quiet: bool


@dataclass(frozen=True)
class Ran:
    """What there is to tell of a run."""

    events: int
    results: Results
    # Events whose type is null: they play no component.
    without_type: int = 0


def what_comes_out(queries: dict[str, ouzel.Query]) -> str:
    """A row of an aggregate, or of OUTPUT COMPRESSED, stands for many matches."""
    trees = [query.tree for query in queries.values()]
    many = (
        tree.aggregates or (tree.output is not None and tree.output.form is OutputForm.COMPRESSED) for tree in trees
    )
    return "row" if any(many) else "match"


def counted(number: int, what: str) -> str:
    """
    >>> counted(1, "match"), counted(2_000, "match"), counted(0, "row")
    ('1 match', '2,000 matches', '0 rows')
    """
    return f"{number:,} {what}{'' if number == 1 else 'es' if what == 'match' else 's'}"
