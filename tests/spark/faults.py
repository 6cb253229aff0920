"""Faults without end: drivers, executors and Python workers of random streams are killed, and other things go wrong.

    python -m tests.spark.faults FOLDER --executor-python PYTHON [--before FOLDER] [--streams 10] [--only damaged …]

After every fault the stream starts again from its checkpoint. In the end its sink must have the batch answer, or the
stream must have failed with an error that names the fault and a way on, which is then taken. What was done to which
stream and when is in FOLDER/faults.jsonl and, as a table, in FOLDER/table.md. A run that was interrupted continues
where it was. `make test-faults` runs it.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tests.spark.clusters import LOCAL_CLUSTER, SETTINGS
from tests.spark.faulty import SCHEMA, Faulty
from tests.spark.processes import executors, python_workers

ROOT = Path(__file__).parents[2]
BATCHES = 12
DRIVER_KILLS = 5  # of one stream
CLUSTER_KILLS = 3  # of executors and Python workers of one stream
RIGHT = "right"


@dataclass(frozen=True, slots=True)
class Fault:
    """What was done to a stream, when, and what came of it."""

    stream: str
    what: str
    micro_batches: int  # committed before
    outcome: str


@dataclass
class Log:
    """All faults so far, in a file that is written fault by fault."""

    path: Path
    faults: list[Fault] = field(default_factory=list)

    def __post_init__(self) -> None:
        if self.path.exists():
            self.faults = [Fault(**json.loads(line)) for line in self.path.read_text("utf-8").splitlines()]

    def add(self, fault: Fault) -> None:
        self.faults.append(fault)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(fault)) + "\n")
        print(f"{fault.stream}: {fault.what} after {fault.micro_batches}: {fault.outcome}", flush=True)

    def of(self, stream: str, what: str = "") -> list[Fault]:
        return [fault for fault in self.faults if fault.stream == stream and fault.what.startswith(what)]

    def table(self) -> str:
        lines = ["| stream | fault | micro-batches before | outcome |", "| --- | --- | --- | --- |"]
        cells = [(one.stream, one.what, str(one.micro_batches), one.outcome) for one in self.faults]
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in cells)]) + "\n"


# ── Drivers ────────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Driver:
    """A process that runs the stream of a folder."""

    process: subprocess.Popen[str]
    folder: Path
    said: str = ""  # its last words

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def wait_for(self, micro_batches: int, seconds: float) -> bool:
        """Wait until so many micro-batches are committed, and so long; False if the driver has ended before."""
        while commits(self.folder) < micro_batches and self._reads_line():
            pass
        self.pause(seconds)
        return self.is_alive

    def pause(self, seconds: float) -> None:
        """Wait so long, or until the driver ends."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(seconds)

    def ended(self) -> str:
        """Wait for the end of the driver; what it says then."""
        while self._reads_line():
            pass
        self.process.wait()
        return self.said or f"ended with {self.process.returncode} and without a word"

    def _reads_line(self) -> bool:
        """Wait until the driver has committed a micro-batch, or ends; False if it has ended."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if line not in ("", "committed\n"):
            self.said = line.strip()
        return bool(line)


@contextmanager
def driver(folder: Path, *arguments: object, **environment: str) -> Iterator[Driver]:
    """A driver that has started Spark. At the end it and all that it started are killed."""
    texts = [json.dumps(argument) if isinstance(argument, dict) else str(argument) for argument in arguments]
    with (folder / "driver.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.spark.driver", str(folder), *texts],
            stdout=subprocess.PIPE, stderr=log, text=True, env=os.environ | environment, cwd=ROOT,
            start_new_session=True,
        )  # fmt: skip
    assert process.stdout is not None
    try:
        said = process.stdout.readline()
        if said != "ready\n":
            raise RuntimeError(f"Spark did not start: {said}; see {folder / 'driver.log'}")
        yield Driver(process, folder)
    finally:
        below = executors(process.pid)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        for executor in below:
            with contextlib.suppress(ProcessLookupError):
                os.kill(executor, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def run(folder: Path, *arguments: object, **environment: str) -> str:
    """Run a stream to its end."""
    with driver(folder, *arguments, **environment) as running:
        return running.ended()


def commits(folder: Path) -> int:
    """How many micro-batches were committed, over all lives of the stream."""
    return len(list((folder / "checkpoint" / "commits").glob("[0-9]*")))


# ── Kills ──────────────────────────────────────────────────────────────────────────────────────────


def kill_drivers(log: Log, name: str, folder: Path, kills: int = DRIVER_KILLS) -> None:
    """Kill the driver at random moments of the first half of the stream, each time with other shuffle partitions."""
    chance = random.Random(name)
    moments = sorted((chance.randrange(BATCHES // 2), chance.uniform(0, 3), chance.randint(1, 4)) for _ in range(kills))
    for micro_batches, seconds, partitions in moments[len(log.of(name, "driver")) :]:
        with driver(folder, {"spark.sql.shuffle.partitions": partitions}) as running:
            assert running.wait_for(micro_batches, seconds), f"{name} ended too early: {running.ended()}"
            before = commits(folder)
        log.add(Fault(name, f"driver, {partitions} shuffle partitions", before, "killed"))


def kill_on_cluster(log: Log, name: str, folder: Path, executor_python: Path, kills: int = CLUSTER_KILLS) -> str:
    """Kill executors and Python workers, with nothing but the wheel, in the second half; what the driver says."""
    chance = random.Random(f"cluster {name}")
    settings = SETTINGS | {"spark.master": LOCAL_CLUSTER}
    while True:
        with driver(folder, settings, PYSPARK_PYTHON=str(executor_python)) as running:
            done = len(log.of(name, "executor")) + len(log.of(name, "Python worker"))
            first, last = commits(folder), BATCHES - 1
            moments = sorted(chance.uniform(first, last) for _ in range(kills - done))
            for number, moment in enumerate(moments, start=done):
                what, find = (("executor", executors), ("Python worker", python_workers))[number % 2]
                alive = running.wait_for(int(moment), moment % 1 * 2)
                found: list[int] = []
                while alive and not found:
                    found = find(running.process.pid)
                    if not found:
                        running.pause(0.05)
                    alive = running.is_alive
                if found and commits(folder) <= BATCHES:
                    os.kill(chance.choice(found), signal.SIGKILL)
                    log.add(Fault(name, what, commits(folder), "killed"))
            said = running.ended()
        if said == RIGHT or not ("Python worker" in said or "ExecutorLostFailure" in said):
            return said
        # Spark gives up a task that was killed too often, which fails the stream; it starts again from its checkpoint.
        log.add(Fault(name, "stream restarted", commits(folder), said[:120]))


def kills(log: Log, folder: Path, streams: int, executor_python: Path) -> None:
    """Random streams of all kinds of query, each killed again and again."""
    for number in range(streams):
        kind = {2: "rows", 4: "set"}.get(number % 5, "queries")
        name = f"{kind} {number}"
        own = folder / name.replace(" ", "-")
        if log.of(name, "end"):
            continue
        if not (own / "stream.json").exists():
            Faulty(kind, number, BATCHES).write(own)
        kill_drivers(log, name, own)
        said = kill_on_cluster(log, name, own, executor_python)
        log.add(Fault(name, "end", commits(own), said))


# ── Other faults ───────────────────────────────────────────────────────────────────────────────────


def half_of(folder: Path) -> None:
    """A new stream that was stopped, in the middle of a micro-batch, after half of them."""
    shutil.rmtree(folder, ignore_errors=True)
    Faulty("queries", len(folder.name), BATCHES).write(folder)
    with driver(folder) as running:
        assert running.wait_for(BATCHES // 2, 0.5), running.ended()


def damaged(folder: Path) -> str:
    """Files of the state store are damaged: an error or the right answer; a copy of the checkpoint is the way on."""
    half_of(folder)
    chance = random.Random(1)
    shutil.copytree(folder / "checkpoint", folder / "copy")
    files = [path for path in (folder / "checkpoint" / "state").rglob("*") if path.suffix in (".changelog", ".zip")]
    newest = sorted(files, key=lambda path: path.stat().st_mtime)[-12:]
    for path in newest:
        content = bytearray(path.read_bytes())
        content[chance.randrange(len(content))] ^= 0xFF
        path.write_bytes(bytes(content))
    said = run(folder)
    if said == RIGHT:
        return f"{said}, without the {len(newest)} damaged files"
    shutil.rmtree(folder / "checkpoint")
    shutil.move(folder / "copy", folder / "checkpoint")
    return f"{said[:160]} … From a copy of the checkpoint: {run(folder)}"


def poison(folder: Path) -> str:
    """An event without a time: an error that says what to filter; with the filter the stream continues."""
    half_of(folder)
    path = folder / "source" / f"{BATCHES - 2:05d}.parquet"
    modified = path.stat().st_mtime
    event = pa.table([["A"], [None], [1], [1], [-2]], schema=SCHEMA)
    pq.write_table(pa.concat_tables([pq.read_table(path), event]), path)
    os.utime(path, (modified, modified))
    said = run(folder)
    assert said.startswith("InputError: the time column 'ts' is null in 1 of"), said
    return f"{said[:110]} … With that filter: {run(folder, {}, 'ts IS NOT NULL')}"


def disk_full(folder: Path) -> str:
    """The disk of the checkpoint is full: the stream fails; with more space it continues."""
    shutil.rmtree(folder, ignore_errors=True)
    Faulty("queries", 3, BATCHES).write(folder)
    checkpoint = folder / "checkpoint"
    checkpoint.mkdir()
    # The disk is one of this script's own: its mounts vanish with it.
    command = f"{sys.executable} -m tests.spark.driver '{folder}'"
    script = f"""
mount -t tmpfs -o size=200k ouzel '{checkpoint}' || exit 9
{command} >'{folder}/full' 2>'{folder}/full.log'
mount -o remount,size=200m '{checkpoint}'
{command} >'{folder}/more' 2>'{folder}/more.log'
"""
    mounting = ["unshare", "--mount", "sh", "-c", script]
    done = subprocess.run(mounting, cwd=ROOT, check=False, capture_output=True, text=True)
    if done.returncode == 9 or not (folder / "full").exists():
        return f"not run, because this user may not mount a disk: {done.stderr.strip()}"
    full, more = ((folder / name).read_text("utf-8").splitlines()[-1] for name in ("full", "more"))
    assert "No space left" in full, full
    return f"{full[:110]} … With more space: {more}"


def rescaled(folder: Path) -> str:
    """Other numbers of shuffle partitions after each restart."""
    half_of(folder)
    for partitions in (1, 5):
        with driver(folder, {"spark.sql.shuffle.partitions": partitions}) as running:
            assert running.wait_for(commits(folder) + 1, 0.2), running.ended()
    return run(folder, {"spark.sql.shuffle.partitions": 3})


def clock_jump(folder: Path) -> str:
    """A source whose clock jumps a year ahead: what comes after is late for every query, and nothing is wrong."""
    shutil.rmtree(folder, ignore_errors=True)
    faulty = Faulty("queries", 4, BATCHES)
    faulty.write(folder)
    jump = folder / "source" / f"{BATCHES:05d}.parquet"  # the last file, which ends the stream, is the jump
    modified = jump.stat().st_mtime
    for number in range(1, 4):
        # What comes after the jump, once more: all of it is late, so the answer must not change.
        path = folder / "source" / f"{BATCHES + number:05d}.parquet"
        shutil.copy(folder / "source" / f"{number:05d}.parquet", path)
        os.utime(path, (modified + number,) * 2)
    return run(folder)


def upgraded(folder: Path, before: Path | None) -> str:
    """A stream that an earlier version of Ouzel began."""
    if before is None:
        return "not run, because --before names no earlier sources"
    shutil.rmtree(folder, ignore_errors=True)
    Faulty("queries", 5, BATCHES).write(folder)
    with driver(folder, PYTHONPATH=str(before / "src"), OUZEL_KERNELS="python") as running:
        assert running.wait_for(BATCHES // 2, 0.5), running.ended()
    return run(folder)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--executor-python", type=Path, required=True, help="of an environment with the wheel")
    parser.add_argument("--before", type=Path, help="the sources of an earlier version")
    parser.add_argument("--streams", type=int, default=10)
    parser.add_argument("--only", nargs="*", help="names of faults; kills is the first")
    given = parser.parse_args(arguments)
    folder: Path = given.folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    log = Log(folder / "faults.jsonl")
    others: dict[str, Callable[[Path], str]] = {
        "damaged": damaged,
        "poison": poison,
        "disk-full": disk_full,
        "rescaled": rescaled,
        "clock-jump": clock_jump,
        "upgraded": lambda own: upgraded(own, given.before and given.before.absolute()),
    }
    chosen = ["kills", *others] if given.only is None else given.only
    if "kills" in chosen:
        kills(log, folder, given.streams, given.executor_python.absolute())
    for name in chosen:
        if name in others and not log.of(name):
            said = others[name](folder / name)
            log.add(Fault(name, name, commits(folder / name), said))
    (folder / "table.md").write_text(log.table(), encoding="utf-8")
    ends = [fault for fault in log.faults if fault.what == "end" or fault.stream in others]
    wrong = [fault for fault in ends if not fault.outcome.endswith(RIGHT) and not fault.outcome.startswith("not run")]
    killed = [fault.what.split(",")[0] for fault in log.faults if fault.outcome == "killed"]
    print(", ".join(f"{killed.count(what)} times a killed {what}" for what in sorted(set(killed))))
    print(f"{len(ends) - len(wrong)} of {len(ends)} streams ended right; the table is in {folder / 'table.md'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
