"""What the site needs beside Markdown: our own kinds of blocks are shown as the languages that highlighters know."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from docs.reference import with_reference

# The words after a fence tell the tests what to do with a block; readers see the language alone.
SHOWN_AS = {"python": "python", "py": "python", "query": "sql", "script": "sql", "console": "console"}
FENCE = re.compile(r"^```(\w+)[^\n]*$", re.MULTILINE)


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Rewrite the fences of a page.

    >>> on_page_markdown("```python spark")
    '```python'
    """
    return with_reference(FENCE.sub(lambda fence: "```" + SHOWN_AS.get(fence[1], fence[1]), markdown))


def on_config(config: Any) -> Any:
    """Pages that the navigation does not name are listed with queries."""
    folder = Path(config["docs_dir"])
    named = set(re.findall(r"[\w/-]+\.md", str(config["nav"])))
    sections = {title: pages for entry in config["nav"] for title, pages in entry.items()}
    for page in sorted(folder.glob("*.md")):
        if page.name not in named:
            sections["Queries"].append(page.name)
    return config
