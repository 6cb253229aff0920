"""Words that our prose avoids, and how often each file still has them.

`python -m tests.repository.wording` lowers the numbers in wording.json to what is left; it never raises one.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from tests.repository.sources import ROOT

# Sources that report, evict or continue say so: "emits", "evicts", "continues", "is at", "any caller that".
WORDS = ("told", "tells", "lets go", "let go", "whoever", "goes on", "stands", "lies", "speaks")

ALLOWED = Path(__file__).with_name("wording.json")
_PATTERN = re.compile(r"\b(?:" + "|".join(WORDS).replace(" ", r"\s+") + r")\b", re.IGNORECASE)


def found_in(text: str) -> list[str]:
    """The avoided words of a text.

    >>> found_in("The engine tells whoever\\nasks; it lets\\n go of rows.")
    ['tells', 'whoever', 'lets go']
    """
    return [" ".join(word.split()) for word in _PATTERN.findall(text)]


def files() -> dict[str, str]:
    """Sources with their error texts, and pages."""
    paths = [*(ROOT / "src").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    return {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in sorted(paths)}


def counts() -> dict[str, int]:
    return {name: count for name, text in files().items() if (count := len(found_in(text)))}


def allowed() -> dict[str, int]:
    return json.loads(ALLOWED.read_text(encoding="utf-8"))


def lower() -> None:
    now = counts()
    left = {name: min(count, now[name]) for name, count in allowed().items() if name in now}
    ALLOWED.write_text(json.dumps(left, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    lower()
