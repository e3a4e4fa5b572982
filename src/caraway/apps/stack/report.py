"""The report on a stack from outside: from its record, the engine's heartbeat and the system's process table."""

import time
from collections.abc import Mapping
from typing import Any

import msgspec

from caraway.apps.stack.folder import DataFolder
from caraway.apps.stack.record import StackRecord, read_record
from caraway.process.children.part import PartState, PartStatus
from caraway.process.children.process_table import is_alive, memory_bytes
from caraway.process.confinement.configured import read_note


class PartReport(msgspec.Struct, frozen=True, kw_only=True):
    """A part, as shown to people and programs.

    Attributes:
        name: The name of the part.
        state: Its state in its life; "dead" if its process has ended and its supervisor hasn't noticed yet.
        message: More about the state.
        pid: The pid of its process.
        port: The port on which it listens.
        uptime_seconds: The time since it became ready.
        memory_bytes: Resident memory of it and all processes below it.
        restarts: How often it was started again.
        external: True if it runs outside of the stack.
        log: Its log file.
    """

    name: str
    state: str
    message: str
    pid: int | None
    port: int | None
    uptime_seconds: float | None
    memory_bytes: int | None
    restarts: int
    external: bool
    log: str | None


class JobProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of a job (docs/inside/jobs.md); a figure that its engine doesn't know yet is None."""

    phase: str = ""
    lag_records: int | None = None
    lag_seconds: float | None = None
    rows_per_second: float | None = None
    state_bytes: int | None = None
    checkpoint_ms: float | None = None
    dead_letters: int | None = None


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """A job of the engine.

    Attributes:
        id: Its id.
        state: "starting", "running", "failing" or "stopped".
        mode: "real-time" or "micro-batch".
        error: The last error, until the job has recovered.
        attempts: How often it was started.
        progress: Its progress.
        engine: The engine that runs it, if there may be several.
    """

    id: str
    state: str
    mode: str = ""
    error: str = ""
    attempts: int = 0
    progress: JobProgress = JobProgress()
    engine: str = ""


class SourceProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a load of a source is: `done` of `total` `unit`s, its pace in a second, and the seconds that are left."""

    done: int
    total: int
    unit: str
    per_second: float | None = None
    remaining_seconds: float | None = None


class SourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """A source that the server reads by itself, such as a Kafka topic.

    Attributes:
        source: The connector, as people read it.
        dataset: The dataset that it feeds.
        state: "reading", "waiting" while what is computed from its rows is too far behind, "closed", "failing", or
            "standby" if the server doesn't read it now.
        lag: How many rows aren't read yet, if that is known.
        rows: How many rows the server has read since it started.
        progress: How far the current load is, if its size is known.
        read_at: When the last row was read, in seconds since the epoch.
        dead_letters: How many rows became dead letters since the server started to read.
        error: Why it can't be read.
    """

    source: str
    dataset: str
    state: str
    lag: int | None = None
    rows: int = 0
    progress: SourceProgress | None = None
    read_at: float | None = None
    dead_letters: int = 0
    error: str = ""


class SinkReport(msgspec.Struct, frozen=True, kw_only=True):
    """A sink that the server writes.

    Attributes:
        sink: The connector, as people read it.
        target: The name of the thing that is written, such as the address of a table.
        dataset: The dataset whose changes are written.
        state: "writing", "refused" if the other side refused the last batch, "failing", or "standby" if the server
            doesn't write it now.
        guarantee: "exactly once" or "at least once".
        backlog: How many messages of the dataset's topic aren't written yet, if that is known.
        written_at: When the server wrote last, in seconds since the epoch.
        dead_letters: How many changes became dead letters since the server started to write.
        error: Why it can't be written.
    """

    sink: str
    target: str
    dataset: str
    state: str
    guarantee: str = ""
    backlog: int | None = None
    written_at: float | None = None
    dead_letters: int = 0
    error: str = ""


class IndexReport(msgspec.Struct, frozen=True, kw_only=True):
    """The index of a dataset.

    Attributes:
        dataset: The dataset.
        lag: How many records of the dataset aren't in it; None if that isn't known yet.
        held: True while it reads no records, since it is loaded by files.
        lag_seconds: The age of what it lacks, 0 if it lacks nothing; None if that isn't known yet.
        freshness_seconds: How old what queries read is, jobs before the index included; None if it isn't measured.
    """

    dataset: str
    lag: int | None = None
    held: bool = False
    lag_seconds: float | None = None
    freshness_seconds: float | None = None


class StackReport(msgspec.Struct, frozen=True, kw_only=True):
    """The whole stack.

    Attributes:
        state: "running"; "starting" while a part starts, also for another time; "stopping", "stopped", "failed", or
            "killed" if its supervisor is gone.
        message: More about the state.
        data_dir: The data folder.
        url: The URL of the server.
        memory_bytes: Resident memory of supervisor and parts.
        parts: The parts.
        jobs: The engine's jobs.
        sources: The sources that the server reads; empty if the server doesn't answer.
        indexes: The indexes of the server; empty if the server doesn't answer.
        functions: The means by which users' functions are isolated, and those that are missing.
        problems: The faults of now, as `GET /problems` answers them; empty if the server doesn't answer.
    """

    state: str
    message: str
    data_dir: str
    url: str | None
    memory_bytes: int
    parts: tuple[PartReport, ...]
    jobs: tuple[JobReport, ...]
    functions: str = ""
    sources: tuple[SourceReport, ...] = ()
    sinks: tuple[SinkReport, ...] = ()
    indexes: tuple[IndexReport, ...] = ()
    problems: tuple[Mapping[str, Any], ...] = ()


def with_status(report: StackReport, status: Mapping[str, Any]) -> StackReport:
    """Return a report with the sources, sinks and indexes in a server's answer to `GET /status`.

    Raises:
        KeyError, msgspec.ValidationError: The answer has another structure.
    """
    return msgspec.structs.replace(
        report,
        sources=msgspec.convert(status["sources"], tuple[SourceReport, ...]),
        sinks=msgspec.convert(status.get("sinks", ()), tuple[SinkReport, ...]),
        indexes=msgspec.convert(status["index"]["indexes"], tuple[IndexReport, ...]),
    )


def report_stack(folder: DataFolder) -> StackReport:
    """Return a report on the stack in a data folder, running or not."""
    record = read_record(folder.record) or StackRecord(state="stopped")
    supervised = is_alive(record.pid, record.process_created_at)
    state = record.state if supervised or record.state in {"stopped", "failed"} else "killed"
    parts = tuple(_report_part(part, folder) for part in record.parts)
    if state == "running" and any(_starts(part) for part in parts):
        state = "starting"
    own = memory_bytes(record.pid, with_children=False) if supervised else 0
    return StackReport(
        state=state,
        message=record.message,
        data_dir=str(folder.path),
        url=record.urls.get("server"),
        memory_bytes=(own or 0) + sum(part.memory_bytes or 0 for part in parts),
        parts=parts,
        jobs=_jobs(folder) if supervised else (),
        functions=read_note(folder.path) if supervised else "",
    )


def report_job(name: str, answer: Mapping[str, Any]) -> JobReport:
    """Return a report on a job from the JSON of an engine's heartbeat file, or from that of a server's status.

    Raises:
        KeyError, TypeError, AttributeError, msgspec.ValidationError: The JSON has another structure.
    """
    progress = answer.get("progress") or {}
    return JobReport(
        id=name,
        state=str(answer["state"]),
        mode=str(answer.get("mode") or ""),
        error=str(answer.get("error") or ""),
        attempts=int(answer.get("attempts") or 0),
        progress=msgspec.convert(progress, JobProgress),
        engine=str(progress.get("engine") or ""),
    )


def _report_part(part: PartStatus, folder: DataFolder) -> PartReport:
    alive = is_alive(part.pid, part.process_created_at)
    claims_life = part.state not in {PartState.STOPPED, PartState.FAILED, PartState.WAITING}
    dead = part.pid is not None and not alive and claims_life
    return PartReport(
        name=part.name,
        state="dead" if dead else str(part.state),
        message=part.message,
        pid=part.pid if alive else None,
        port=part.port,
        uptime_seconds=time.time() - part.ready_at if alive and part.ready_at else None,
        memory_bytes=memory_bytes(part.pid) if alive else None,
        restarts=part.restarts,
        external=part.external,
        log=None if part.external else str(folder.log(part.name)),
    )


def _starts(part: PartReport) -> bool:
    """Return whether a part isn't there yet or is to be started again, other than one whose process only is slow."""
    return not part.external and part.state not in {PartState.RUNNING, PartState.UNRESPONSIVE}


def _jobs(folder: DataFolder) -> tuple[JobReport, ...]:
    try:
        jobs: dict[str, Any] = msgspec.json.decode(folder.heartbeat.read_bytes())["jobs"]
        return tuple(report_job(name, job) for name, job in sorted(jobs.items()))
    except (OSError, msgspec.MsgspecError, KeyError, TypeError, AttributeError):
        return ()
