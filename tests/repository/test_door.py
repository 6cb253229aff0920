"""The door: the exported names are the intended ones, and opening it is cheap."""

from __future__ import annotations

import json
import pkgutil
import re
import subprocess
import sys
from types import ModuleType

import pytest

import ouzel
from tests.repository.sources import ROOT, SOURCE

EXPORTED = [
    "EmptyAnswerWarning",
    "Engine",
    "InputError",
    "LimitError",
    "LossModel",
    "ManyMatchesWarning",
    "ModelWarning",
    "OrderWarning",
    "OuzelError",
    "ProblemWarning",
    "Query",
    "QueryError",
    "QuerySet",
    "StateError",
    "TypesWarning",
    "Why",
    "algebra",
    "datasets",
    "expand",
    "explain",
    "loss",
    "match",
    "match_recognize",
    "plot",
    "queries",
    "query",
    "spark",
    "sql",
    "stream",
    "why",
]
HEAVY = ["lark", "llvmlite", "numba", "pandas", "polars", "pyspark", "rich", "scipy", "typer"]


def test_exported_names_are_the_intended_ones() -> None:
    assert sorted(ouzel.__all__) == EXPORTED
    assert set(EXPORTED) <= set(dir(ouzel))


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_is_there(name: str) -> None:
    assert getattr(ouzel, name) is not None


def test_unknown_names_are_refused_as_python_does() -> None:
    with pytest.raises(AttributeError, match="has no attribute 'quary'"):
        ouzel.quary  # noqa: B018


def test_no_submodule_has_the_name_of_a_function() -> None:
    """A submodule's name lands in its package when it is imported, and would hide a function of the same name."""
    submodules = {module.name for module in pkgutil.iter_modules(ouzel.__path__)}
    assert {"algebra", "datasets", "loss", "spark"} <= submodules
    assert {name for name in EXPORTED if not isinstance(getattr(ouzel, name), ModuleType)}.isdisjoint(submodules)


def test_importing_loads_nothing_heavy() -> None:
    code = f"import sys, json, ouzel; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    assert json.loads(_run(code)) == []


def test_checking_a_query_loads_no_kernels() -> None:
    code = "import sys, ouzel; ouzel.query('PATTERN SEQ(A a, B b) WHERE [id] WITHIN 5'); print('numba' in sys.modules)"
    assert _run(code).strip() == "False"


def test_datasets_load_nothing_heavy() -> None:
    code = (
        f"import sys, json, ouzel; ouzel.datasets; print(json.dumps([name for name in {HEAVY} if name in sys.modules]))"
    )
    assert json.loads(_run(code)) == []


def test_the_package_is_typed_and_carries_its_grammar() -> None:
    assert (SOURCE / "ouzel" / "py.typed").is_file()
    assert (SOURCE / "ouzel" / "lang" / "grammar.lark").is_file()


def test_the_version_is_a_version_and_in_the_changelog() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", ouzel.__version__)
    assert f"## {ouzel.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def _run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT / "src")
    assert done.returncode == 0, done.stderr
    return done.stdout
