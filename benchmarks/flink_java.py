"""Flink CEP in a Java process of its own, compiled against the jars of apache-flink-libraries when it is needed.

Nothing of it is kept: sources stand in benchmarks/flink, classes go into a temporary folder. `missing` says what a
machine lacks to run it, so that a benchmark can tell that it is left out.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO

SOURCES = Path(__file__).parent / "flink"
PACKAGE = "apache-flink-libraries"
# One thread collects garbage, so that Flink's only task is not helped, nor held up, by others.
JAVA = ("java", "-Xmx4g", "-XX:+UseSerialGC")


def missing() -> str | None:
    """What is not there and should be; None where all is."""
    if not jars():
        return f"{PACKAGE} is not installed: pip install 'ouzel[flink]'"
    if shutil.which("javac") is None or shutil.which("java") is None:
        return "there is no Java development kit: java and javac are needed"
    return None


def jars() -> list[Path]:
    """Flink's, CEP among them; empty where the package is not installed."""
    found = importlib.util.find_spec("pyflink")
    folders = found.submodule_search_locations if found else None
    libraries = [jar for folder in folders or () for jar in sorted(Path(folder).glob("lib/*.jar"))]
    return libraries if any(jar.name.startswith("flink-cep") for jar in libraries) else []


def versions() -> str:
    told = subprocess.run(["java", "-version"], capture_output=True, text=True, check=True).stderr
    return f"Flink {importlib.metadata.version(PACKAGE)}, {told.splitlines()[0].replace(chr(34), '')}"


class FlinkProcess:
    """A program of ours beside Flink: a line goes in, a line comes out."""

    def __init__(self, command: list[str], errors: IO[bytes]) -> None:
        self._errors = errors
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True
        )

    def ask(self, line: str) -> str:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            self._process.wait()
            self._errors.seek(0)
            raise RuntimeError(f"Flink failed on {line!r}:\n{self._errors.read().decode()[-3000:]}")
        return answer.rstrip("\n")

    def close(self) -> None:
        """The end of its input ends it; whatever does not end by that is ended."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            self._process.kill()


@contextmanager
def program(name: str, *arguments: str, more: dict[str, str] | None = None) -> Iterator[FlinkProcess]:
    """The compiled class `name` of benchmarks/flink, running; `more` are sources to compile beside it, by file name."""
    class_path = os.pathsep.join(map(str, jars()))
    with TemporaryDirectory() as folder, open(Path(folder) / "errors", "w+b") as errors:
        sources = [SOURCES / "FlinkCep.java", SOURCES / f"{name}.java"]
        for file, text in (more or {}).items():
            sources.append(Path(folder) / file)
            sources[-1].write_text(text, encoding="utf-8")
        compiler = ["javac", "-cp", class_path, "-d", folder, *map(str, dict.fromkeys(sources))]
        subprocess.run(compiler, check=True)
        # Flink tells of every step of every job otherwise.
        (Path(folder) / "log4j2.properties").write_text("rootLogger.level = OFF\n", encoding="utf-8")
        process = FlinkProcess([*JAVA, "-cp", f"{folder}{os.pathsep}{class_path}", name, *arguments], errors)
        try:
            yield process
        finally:
            process.close()
