"""The API reference, made from docstrings: `::: ouzel.match` on a page becomes a heading, a signature and its text."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
from typing import Any

DIRECTIVE = re.compile(r"^::: ([\w.]+)$", re.MULTILINE)


def with_reference(markdown: str) -> str:
    """A page with its directives filled in."""
    return DIRECTIVE.sub(lambda found: described(found[1]), markdown)


def described(path: str) -> str:
    """One public name by its full path, `ouzel.errors` with all the errors in it."""
    module_name, _, name = path.rpartition(".")
    if path == "ouzel.errors":
        errors = importlib.import_module(path)
        return "\n".join(_entry(error) for error in vars(errors).values() if inspect.isclass(error))
    return _entry(getattr(importlib.import_module(module_name), name))


def _entry(value: Any) -> str:
    parts = [f"### {value.__name__}", "", _signature(value), "", fenced(inspect.getdoc(value) or "")]
    if inspect.isclass(value):
        for name, member in vars(value).items():
            inner = member.fget if isinstance(member, property) else getattr(member, "__func__", member)
            if name.startswith("_") or not inspect.isfunction(inner) or not inspect.getdoc(inner):
                continue
            parts += ["", f"#### {value.__name__}.{name}", ""]
            if not isinstance(member, property):
                parts += [_signature(inner), ""]
            parts.append(fenced(inspect.getdoc(inner) or ""))
    return "\n".join(parts) + "\n"


def _signature(value: Any) -> str:
    """The call as one would write it, one argument a line where they are many."""
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    arguments = [argument for name, argument in signature.parameters.items() if name not in ("self", "cls")]
    # Annotations are texts, since modules put off evaluating them.
    shown = [re.sub(r": '([^']*)'", r": \1", str(argument)) for argument in arguments]
    kinds = [argument.kind for argument in arguments]
    if inspect.Parameter.KEYWORD_ONLY in kinds and inspect.Parameter.VAR_POSITIONAL not in kinds:
        shown.insert(kinds.index(inspect.Parameter.KEYWORD_ONLY), "*")
    returned = "" if signature.return_annotation is inspect.Signature.empty else f" -> {signature.return_annotation}"
    returned = "" if inspect.isclass(value) else returned
    line = f"{value.__name__}({', '.join(shown)}){returned}"
    if len(line) > 100:
        line = f"{value.__name__}(\n" + "".join(f"    {argument},\n" for argument in shown) + f"){returned}"
    return f"```python\n{line}\n```"


def fenced(text: str) -> str:
    """A docstring as Markdown: examples and their output are code blocks.

    >>> fenced("Adds.\\n\\n>>> 1 + 1\\n2")
    'Adds.\\n\\n```python\\n>>> 1 + 1\\n2\\n\\n```\\n'
    """
    parts: list[str] = []
    block = ""
    for part in doctest.DocTestParser().parse(text):
        if isinstance(part, doctest.Example):
            source = part.source.replace("# doctest: +SKIP", "").rstrip()
            first, *more = source.split("\n")
            block += "\n".join([f">>> {first.rstrip()}", *(f"... {line}" for line in more)]) + "\n" + part.want
        elif part.strip() or not block:
            parts += [_block(block), part]
            block = ""
    return "".join([*parts, _block(block)])


def _block(text: str) -> str:
    return f"```python\n{text}\n```\n" if text else ""
