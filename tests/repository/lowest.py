"""The lowest versions that pyproject.toml declares, as lines for pip: `python -m tests.repository.lowest`."""

from __future__ import annotations

import re
import tomllib

from tests.repository.sources import ROOT

# What users install; tools of the tests come in their newest versions.
EXTRAS = ("cli", "spark")


def lowest() -> list[str]:
    """One line for each requirement of the package and of the extras that users install.

    >>> [line for line in lowest() if line.startswith("lark")]
    ['lark==1.2.1']
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    declared = [*project["dependencies"], *(one for name in EXTRAS for one in project["optional-dependencies"][name])]
    return [re.sub(r">=([\w.]+).*", r"==\1", one) for one in declared]


if __name__ == "__main__":
    print("\n".join(lowest()))
