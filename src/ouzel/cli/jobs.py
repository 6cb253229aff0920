"""What `ouzel run` is asked for, and what there is to tell of it afterwards, on whichever engine it runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ouzel
from ouzel.cli.results import Format, Results
from ouzel.cli.sources import Source


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
