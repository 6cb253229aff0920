"""The list of functions: its page, and that every function of it can be called as its signature says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from ouzel.bind.functions import AGGREGATES, EVENT_FUNCTIONS, FUNCTIONS, Accepts, functions_page
from tests.bind.shop import OPEN, value

PAGE = Path(__file__).parents[2] / "docs" / "functions.md"
EXAMPLES = {
    Accepts.STRING: "a.tag",
    Accepts.LIKE_PATTERN: "'a%'",
    Accepts.REGULAR_EXPRESSION: "'^a'",
    Accepts.NETWORK: "'10.0.0.0/8'",
    Accepts.VALUE: "a.n",
    Accepts.NUMBER: "a.n",
    Accepts.NUMBER_OR_DURATION: "a.at - b.at",
    Accepts.DOUBLE: "a.n",
    Accepts.INTEGER: "a.n",
    Accepts.INTEGER_CONSTANT: "2",
    Accepts.DATE_OR_TIMESTAMP: "a.at",
    Accepts.TIMESTAMP: "a.at",
    Accepts.CONDITION: "a.ok",
    Accepts.ALIKE: "a.n",
    Accepts.ORDERED: "a.n",
    Accepts.LIST: "a.tags",
    Accepts.ELEMENT: "'x'",
}


def test_the_page_is_the_list() -> None:
    assert PAGE.read_text(encoding="utf-8") == functions_page(), "write docs/functions.md from functions_page()"


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_every_function_can_be_called(name: str) -> None:
    function = FUNCTIONS[name]
    arguments = [EXAMPLES[kind] for kind in function.arguments]
    if function.name == "any":
        arguments[1] = "t -> t = 'x'"
    for count in range(function.required, len(arguments) + 1 + function.repeats):
        call = f"{name}({', '.join([*arguments, *arguments[-1:]][:count])})"
        assert value(call).type == value(call.replace(name, name.upper(), 1)).type
        assert value(call, OPEN)
    if function.name == "any":
        assert value(f"{name}(null, t -> null)")
        return
    nulls = ", ".join("2" if kind is Accepts.INTEGER_CONSTANT else "null" for kind in function.arguments)
    assert value(f"{name}({nulls})")


def test_signatures_agree_with_what_is_accepted() -> None:
    for function in FUNCTIONS.values():
        inside = function.signature.partition("(")[2].rstrip(")").replace("t -> ", "")
        named = [part for part in re.split(r"[,\[\]\s]+", inside) if part and part != "…"]
        assert len(named) == len(function.arguments), function.name
        assert ("…" in inside) == function.repeats, function.name
        assert ("[" in inside) == (function.required < len(function.arguments)), function.name


def test_no_name_means_two_things() -> None:
    assert not (FUNCTIONS.keys() & EVENT_FUNCTIONS.keys() | FUNCTIONS.keys() & AGGREGATES.keys())
