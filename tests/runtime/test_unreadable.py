"""Files that cannot be read: which line, and what to do."""

from __future__ import annotations

from pathlib import Path

import pytest

import ouzel
from ouzel.errors import InputError

QUERY = "PATTERN SEQ(A a, B b) WITHIN 5"
HEADER = "ts,type,x\n"
LATE = "".join(f"{ts},A,{ts % 9}\n" for ts in range(200_000))


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        (
            "few.csv",
            HEADER + '1,A,"two\nlines"\n2,B\n',
            "line 4: 2 values where the header names 3 columns: 2,B; correct the line, and put values that contain",
        ),
        ("many.csv", HEADER + "1,A,3,4\n", "line 2: 4 values where the header names 3 columns: 1,A,3,4; correct"),
        # Beyond the first megabyte, from which Arrow takes the types.
        (
            "late.csv",
            HEADER + LATE + "7,A,n/k\n",
            "line 200002: 'n/k' in column 'x' is not int64, as the values before",
        ),
        ("array.json", '[{"ts": 1},\n{"ts": 2}]', "line 1 is not JSON (Expecting value), and every line must be one"),
        ("list.jsonl", '\n[{"ts": 1}]\n', "line 2 is not an event: each line must be one JSON object, got [{"),
        (
            "kinds.jsonl",
            '{"ts": 1, "type": "A", "x": null}\n{"ts": 2, "x": 1}\n{"ts": 3, "x": "one"}\n',
            "line 3: 'x' is a string here and a number before; convert its values to one type",
        ),
    ],
)
def test_the_line_is_told(tmp_path: Path, name: str, text: str, told: str) -> None:
    (tmp_path / name).write_text(text, encoding="utf-8")
    for given in (tmp_path / name, tmp_path):
        with pytest.raises(InputError) as raised:
            ouzel.match(given, QUERY)
        assert str(raised.value).startswith(f"'{tmp_path / name}', {told}")


def test_what_is_not_understood_is_told_in_the_words_of_arrow(tmp_path: Path) -> None:
    (tmp_path / "x.parquet").write_bytes(b"no parquet")
    with pytest.raises(InputError, match=r"x.parquet' cannot be read as parquet: "):
        ouzel.match(tmp_path / "x.parquet", QUERY)
