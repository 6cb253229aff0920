"""What explodes ends in an error that names its limit, in the memory that the limit implies."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.runtime.explosive import EXPLOSIVE

pytestmark = pytest.mark.compiled

BYTES_EACH = 512
BYTES_MORE = 64_000_000
# A limit may allow the answers of these, since runs are merged or nothing is built. All others pass it.
MAY_ANSWER = {"next match, no B", "next match, few moments", "compressed, by runs", "counted", "next"}
# These pass a limit only after more events than the limit.
LATE = {"first", "skip to first", "next, no B"}


def check(limit: int, events: int, *names: str) -> None:
    """Run queries in a process of their own: each ends as it should, and none takes more than the limit implies."""
    command = [sys.executable, "-W", "ignore", "-m", "tests.runtime.explosive", str(limit), str(events), *names]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ended = {name: (how, grown) for name, how, grown in map(json.loads, done.stdout.splitlines())}
    assert set(ended) == set(names or EXPLOSIVE)
    for name, (how, grown) in ended.items():
        assert how == "LimitError" or name in MAY_ANSWER, f"{name}: {how}"
        assert grown <= BYTES_EACH * limit + BYTES_MORE, f"{name}: {grown:,} bytes"


def test_what_explodes_stays_within_a_small_limit() -> None:
    check(5_000, 20_000)


@pytest.mark.long
@pytest.mark.parametrize("name", EXPLOSIVE)
def test_what_explodes_stays_within_a_large_limit(name: str) -> None:
    # Rows found before the limit was passed take memory, too, so no query gets more events than it needs.
    check(100_000, 200_000 if name in LATE else 100_000, name)
