"""Prose that nothing runs goes stale: the pages' paths, links, make targets, commands and examples are checked."""

from __future__ import annotations

import doctest
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import ouzel
from ouzel.cli.app import application
from tests.repository.sources import ROOT

PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
    if ".venv" not in path.parts
)
TARGETS = set(re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
FENCE = re.compile(r"^```([^\n]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
CITATION = re.compile(r'docs/semantics\.md, ("[^"\n]+"(?:(?:, | and )"[^"\n]+")*)')
# In code marks: `src/ouzel/lang/`, `tests/golden/*.case`, `Makefile`; not `a/b` in a formula.
TOP_LEVEL = {path.name for path in ROOT.iterdir()} - {"build", "dist"} | {"src", "tests", "docs", "benchmarks"}


@dataclass(frozen=True)
class Block:
    """A fenced block: the words after the fence, its text, and where it stands."""

    page: Path
    line: int
    words: tuple[str, ...]
    text: str


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text(encoding="utf-8")
    for found in FENCE.finditer(text):
        yield Block(page, text.count("\n", 0, found.start()) + 1, tuple(found[1].split()), found[2])


def prose(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def page_name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def paths_named(page: Path) -> Iterator[str]:
    for marked in re.findall(r"`([^`\n]+)`", prose(page)):
        first = marked.split("/")[0]
        if re.fullmatch(r"[\w./*-]+", marked) and ("/" in marked or "." in marked) and first in TOP_LEVEL:
            yield marked


def links(page: Path) -> Iterator[str]:
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if not re.match(r"[a-z]+:", target):
            yield target


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_path_named_exists(page: Path) -> None:
    missing = [name for name in paths_named(page) if not any(ROOT.glob(name))]
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_link_leads_somewhere(page: Path) -> None:
    missing = []
    for target in links(page):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            missing.append(target)
    assert missing == []


def test_the_architecture_names_every_file() -> None:
    sections = re.findall(
        r"^### `(src/ouzel/[a-z_/]*)`: .*\n([^#]*)",
        (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    named = {folder: set(re.findall(r"`([a-z_]+)`", files)) for folder, files in sections}
    shared = {"plan", "tables", "operator"}
    for path in sorted((ROOT / "src" / "ouzel").rglob("*.py")):
        folder = f"{path.parent.relative_to(ROOT).as_posix()}/"
        engine = folder.count("/") > 3
        if path.stem != "__init__" and not (engine and path.stem in shared):
            assert path.stem in named[folder], f"name {path.stem} under {folder} in ARCHITECTURE.md"
    for folder, files in named.items():
        for name in files:
            assert (ROOT / folder / f"{name}.py").exists(), (
                f"ARCHITECTURE.md names {folder}{name}.py, which does not exist"
            )


def test_every_cited_heading_of_the_semantics_exists() -> None:
    """Code and tests cite `docs/semantics.md, "Windows" and "Output"`."""
    cited: dict[str, str] = {}
    for folder in ("src", "tests", "benchmarks", "docs"):
        for path in (ROOT / folder).rglob("*"):
            if path.suffix in {".py", ".md", ".case"}:
                for names in CITATION.findall(path.read_text(encoding="utf-8")):
                    cited |= dict.fromkeys(re.findall(r'"([^"]+)"', names), page_name(path))
    known = set(re.findall(r"^## (.+)$", prose(ROOT / "docs" / "semantics.md"), re.MULTILINE))
    assert {name: where for name, where in cited.items() if name not in known} == {}
    assert {"Windows", "Output"} <= set(cited)


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_public_name_named_exists(page: Path) -> None:
    named = set(re.findall(r"`ouzel\.(\w+)", prose(page)))
    assert named - {*ouzel.__all__, "__version__"} == set()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_make_target_named_exists(page: Path) -> None:
    named = set(re.findall(r"`make ([a-z][a-z-]*)", page.read_text(encoding="utf-8")))
    for block in blocks(page):
        named |= set(re.findall(r"^\$? ?make ([a-z][a-z-]*)", block.text, re.MULTILINE))
    assert named - TARGETS == set()


def test_every_target_is_explained_in_the_contributors_page() -> None:
    page = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    assert {target for target in TARGETS if f"make {target}" not in page} == set()


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_command_named_exists(page: Path) -> None:
    commands = {command.name for command in application.registered_commands}
    named = set(re.findall(r"`ouzel ([a-z]+)", page.read_text(encoding="utf-8")))
    for block in blocks(page):
        named |= set(re.findall(r"^\$? ?ouzel ([a-z]+)", block.text, re.MULTILINE))
    assert named - commands == set()


EXAMPLES = [block for page in PAGES for block in blocks(page) if block.words[:1] == ("python",)]


def test_python_blocks_are_examples_that_can_be_run() -> None:
    """With prompts and answers, so that what a reader sees is what a run gives."""
    assert [f"{page_name(block.page)}:{block.line}" for block in EXAMPLES if ">>> " not in block.text] == []


@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[pytest.mark.spark] if any("spark" in block.words for block in found) else [])
        for page in PAGES
        if (found := [block for block in EXAMPLES if block.page == page])
    ],
    ids=page_name,
)
def test_examples_give_what_they_show(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The blocks of a page are one session. A block that starts Spark is marked: ```python spark."""
    monkeypatch.chdir(ROOT)
    runner = doctest.DocTestRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    names: dict[str, object] = {}
    report: list[str] = []
    for block in EXAMPLES:
        if block.page == page:
            test = doctest.DocTestParser().get_doctest(block.text, names, page_name(page), page_name(page), block.line)
            runner.run(test, out=report.append, clear_globs=False)
            names.update(test.globs)
    assert not runner.summarize(verbose=False).failed, "".join(report)


def anchors(page: Path) -> set[str]:
    """The names by which a page's headings can be linked to, as the usual Markdown viewers make them."""
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        kept = re.sub(r"[^\w\- ]", "", heading.lower())
        found.add(kept.replace(" ", "-"))
    return found


def test_the_checks_see_what_they_should(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "# A Title, here\n\nSee `src/ouzel/lang/`, `Makefile`, `a.price`, [x](other.md#top) and [y](https://example.org).\n"
        "```python\n>>> 1 + 1\n2\n```\n",
        encoding="utf-8",
    )
    assert list(paths_named(page)) == ["src/ouzel/lang/"]
    assert list(links(page)) == ["other.md#top"]
    assert anchors(page) == {"a-title-here"}
    assert [(block.words, block.text) for block in blocks(page)] == [(("python",), ">>> 1 + 1\n2\n")]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_every_query_shown_is_well_formed(page: Path) -> None:
    """Blocks marked ```query hold one query, blocks marked ```script several."""
    for block in blocks(page):
        if block.words[:1] == ("query",):
            ouzel.query(block.text)
        elif block.words[:1] == ("script",):
            ouzel.queries(block.text)


def test_queries_in_the_tables_of_papers_are_well_formed() -> None:
    spans = re.findall(r"`((?:PATTERN|EVENT|SEQUENCE) [^`\n]+)`", prose(ROOT / "docs" / "papers.md"))
    for text in spans:
        ouzel.query(text)
    assert len(spans) > 40
