"""Run by `make wheel` with the Python of an empty environment that has only the wheel: does the package stand alone?"""

import importlib.resources
import sys


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
    try:
        ouzel.query("PATTERN SEQ(Shelf a, Exit")
    except ouzel.QueryError as error:
        assert error.line == 1, error
    else:
        sys.exit("a query that is cut off was accepted")
    print(f"ouzel {ouzel.__version__} works on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
