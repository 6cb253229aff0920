"""The imports of our sources, read from their syntax trees: those inside functions and for type checkers included."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SOURCE = ROOT / "src"
DOOR = "(door)"


@dataclass(frozen=True)
class Import:
    """`module` of ours imports `target`, the full name of a module, at a line."""

    module: str
    target: str
    line: int


def modules() -> dict[str, Path]:
    """Every module of the package by its full name."""
    found = {}
    for path in sorted((SOURCE / "ouzel").rglob("*.py")):
        parts = path.relative_to(SOURCE).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def room(module: str) -> str:
    """The room that a module of ours lives in: the first name after ouzel."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else DOOR


def imports(module: str, text: str, *, is_package: bool, known: set[str]) -> Iterator[Import]:
    """Every import statement in the text of a module, with the names of ours resolved to modules as far as they go."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, alias.name, node.lineno)
        elif isinstance(node, ast.ImportFrom):
            origin = node.module or ""
            if node.level:
                # One dot is the package that the module is in, each further one the package around it.
                around = module.split(".")
                around = around[: len(around) - node.level + is_package]
                origin = ".".join([*around, origin] if origin else around)
            for alias in node.names:
                # `from ouzel import errors` is the room errors, `from ouzel import match` is the door.
                whole = f"{origin}.{alias.name}"
                yield Import(module, whole if whole in known else origin, node.lineno)


def all_imports() -> list[Import]:
    known = modules()
    return [
        found
        for name, path in known.items()
        for found in imports(
            name, path.read_text(encoding="utf-8"), is_package=path.name == "__init__.py", known=set(known)
        )
    ]
