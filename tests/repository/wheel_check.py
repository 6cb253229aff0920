"""Run by `make wheel` with the Python of an empty environment that has only the wheel: does the package stand alone?"""

import importlib.resources
import importlib.util
import sys

KINDS = {
    "sequence": "PATTERN SEQ(Shelf a, Exit c) WHERE [tag_id] WITHIN 12 hours",
    "repetition": "PATTERN SEQ(Shelf+ a[], Exit c) WHERE skip_till_next_match(a[], c) { [tag_id] } WITHIN 12 hours",
    "aggregate": "PATTERN SEQ(Shelf a, Exit c) WHERE [tag_id] AGG COUNT WITHIN 12 hours",
}


def main() -> None:
    import ouzel

    package = importlib.resources.files("ouzel")
    assert "site-packages" in str(package), f"this is not the installed wheel: {package}"
    assert (package / "py.typed").is_file(), "the wheel lacks py.typed"
    assert (package / "lang" / "grammar.lark").is_file(), "the wheel lacks the grammar"

    theft = "PATTERN SEQ(Shelf a, !(Register b), Exit c) WHERE [tag_id] WITHIN 12 hours RETURN Theft(a.tag_id AS tag)"
    day = ouzel.datasets.shop_day(10_000)
    found = ouzel.match(day.events, ouzel.query(theft, types=day.types))
    assert set(found.column("tag").to_pylist()) == set(day.thefts.column("tag_id").to_pylist()), "wrong answers"
    for kind, text in KINDS.items():
        assert ouzel.match(day.events, ouzel.query(text, types=day.types)).num_rows, f"no answer: {kind}"
    from ouzel.kernels import jit

    assert jit.MODE == "library", f"the kernels of the wheel are not used but: {jit.MODE}"
    assert importlib.util.find_spec("numba") is None, "the wheel installs numba"
    try:
        ouzel.query("PATTERN SEQ(Shelf a, Exit")
    except ouzel.QueryError as error:
        assert error.line == 1, error
    else:
        sys.exit("a query that is cut off was accepted")
    print(f"ouzel {ouzel.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
