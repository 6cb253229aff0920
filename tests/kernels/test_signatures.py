"""Kernels declare their signatures, and they are exactly the compiled functions that Python calls."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

import pytest

from ouzel.kernels import jit

ROOT = jit.PACKAGE.parent.parent
FOLDERS = ("src", "tests", "benchmarks")


def module_of(file: Path) -> str:
    parts = file.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[1:] if parts[0] == "src" else parts)


def decorators(node: ast.AST) -> set[str]:
    found = node.decorator_list if isinstance(node, ast.FunctionDef) else []
    return {ast.unparse(decorator).split("(")[0] for decorator in found} & {"kernel", "helper"}


class Uses(ast.NodeVisitor):
    """The compiled functions that code outside of compiled functions names."""

    def __init__(self, names: dict[str, str]) -> None:
        self.names = names
        self.found: set[str] = set()

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if not decorators(node):
            self.generic_visit(node)

    def visit_Name(self, node: ast.Name) -> None:
        self._use(node)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        self.generic_visit(node)
        self._use(node)

    def _use(self, node: ast.expr) -> None:
        name = ast.unparse(node)
        if name in self.names:
            self.found.add(self.names[name])


def compiled_functions() -> dict[str, dict[str, str]]:
    """Decorator and docstring of the compiled functions of the package, by module and name."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for file in jit.kernel_files():
        for node in ast.walk(ast.parse(file.read_text())):
            for decorator in decorators(node):
                assert isinstance(node, ast.FunctionDef)
                found[module_of(file)][node.name] = decorator
                examples = ">>>" in (ast.get_docstring(node) or "")
                assert decorator == "kernel" or not examples, f"an example calls {node.name}: make it a kernel"
    return found


def named_in_python() -> set[str]:
    """The compiled functions that Python code names."""
    compiled = compiled_functions()
    found = set()
    for file in (file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py")):
        tree, module = ast.parse(file.read_text()), module_of(file)
        names = {name: f"{module}.{name}" for name in compiled.get(module, ())}
        for node in ast.walk(tree):
            for alias in node.names if isinstance(node, ast.ImportFrom) else ():
                local = alias.asname or alias.name
                if alias.name in compiled.get(node.module or "", ()):
                    names[local] = f"{node.module}.{alias.name}"
                inner = f"{node.module}.{alias.name}"
                names |= {f"{local}.{name}": f"{inner}.{name}" for name in compiled.get(inner, ())}
        uses = Uses(names)
        uses.visit(tree)
        found |= uses.found
    return found


def test_kernels_are_what_python_calls() -> None:
    declared = {
        f"{module}.{name}"
        for module, functions in compiled_functions().items()
        for name, decorator in functions.items()
        if decorator == "kernel"
    }
    assert len(declared) > 80
    assert named_in_python() == declared, "what Python calls is a kernel, everything else a helper"


SIGNATURES = """
from kernel_build.forms import entries
for entry in entries():
    print(entry.name, *(form.layout for form in entry.forms))
"""


@pytest.fixture(scope="module")
def layouts() -> dict[str, list[str]]:
    """The layouts of all kernels."""
    done = subprocess.run(
        [sys.executable, "-c", SIGNATURES],
        cwd=ROOT,
        env={"OUZEL_KERNELS": "jit", "PYTHONPATH": f"{jit.PACKAGE.parent}:{ROOT}"},
        check=True,
        capture_output=True,
        text=True,
    )
    return {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines()}


def test_every_kernel_has_a_signature(layouts: dict[str, list[str]]) -> None:
    assert set(layouts) == named_in_python()
    assert all(len(set(found)) == len(found) for found in layouts.values()), "two forms read the same arguments"


def test_unions_are_one_signature_for_each_member(layouts: dict[str, list[str]]) -> None:
    text = [f"({offsets}1rc1rc1rL)" for offsets in "jl"]
    constants = "(m1rm1rm1rl1rc1rL)"
    assert layouts["ouzel.kernels.text._classify"] == [f"{one}{constants}{codes}1" for one in text for codes in "cj"]
    assert layouts["ouzel.kernels.events.oldest_alive"] == ["LL"]
