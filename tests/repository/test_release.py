"""What a release needs: one version everywhere, a description that renders, workflows that call our make targets."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
import yaml

import ouzel
from tests.repository.sources import ROOT
from tests.repository.test_pages import TARGETS

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_citation_has_the_version_and_license_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == ouzel.__version__
    assert citation["license"] == PROJECT["license"]
    assert {"cff-version", "title", "message", "authors"} <= set(citation)


def test_description_is_the_readme_and_classifiers_name_the_versions_of_python() -> None:
    assert PROJECT["readme"] == "README.md"
    lowest, above = re.fullmatch(r">=3\.(\d+),<3\.(\d+)", PROJECT["requires-python"]).groups()
    named = {classifier.rpartition(" ")[2] for classifier in PROJECT["classifiers"] if ":: 3." in classifier}
    assert named == {f"3.{minor}" for minor in range(int(lowest), int(above))}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.name)
def test_workflows_only_call_make_targets(workflow: Path) -> None:
    """So that what passes there can be run here."""
    for job in yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"].values():
        given = job.get("strategy", {}).get("matrix", {}).get("target", [])
        commands = [step["run"] for step in job["steps"] if "run" in step]
        targets = {target for command in commands for target in re.findall(r"^make ([a-z-]+)$", command)} | set(given)
        assert all(command.startswith("make ") and "\n" not in command for command in commands)
        assert targets and targets <= TARGETS


def test_workflows_run_what_must_pass() -> None:
    must = set(re.findall(r"^make ([a-z-]+)$", (ROOT / ".ci" / "run").read_text(encoding="utf-8"), re.MULTILINE))
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text(encoding="utf-8")
    assert must == set(re.findall(r"run: make ([a-z-]+)", text))
