"""The problems of now in plain words: which part doesn't run, since when, what that means, and what to do about it."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from caraway.console.figures import ago, duration, instant, number

# The seconds by which an index or a job may be behind without being reported. Bursts are served within this time.
LATE_S = 30.0
# A job's engine reports every few seconds. After so long without a report nobody knows what the job does.
SILENT = timedelta(seconds=60)
# The most names in a sentence.
LISTED = 5

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A fault, as people are told of it.

    Attributes:
        what: The fault, as a sentence.
        remedy: The thing to do about it.
        since: The time at which it began, if that is known.
        datasets: The datasets that it makes stale or wrong.
        link: The page with more, as a path with its query string; empty if there is none.
    """

    what: str
    remedy: str
    since: datetime | None = None
    datasets: tuple[str, ...] = ()
    link: str = ""


def problems_of(status: Json, datasets: Iterable[str], now: datetime) -> list[Problem]:
    """Return what a status (`GET /status`) shows to be wrong, the causes before their consequences.

    Args:
        status: The status.
        datasets: The datasets that the reader may see. Parts of other datasets aren't mentioned.
        now: The time.
    """
    seen = frozenset(datasets)
    jobs = [job for job in status["jobs"] if job["desired"] == "running" and job["dataset"] in seen]
    found = [*_parts(status), *_engines(status["engines"], jobs, now)]
    # Jobs say nothing as long as no engine runs, and that has been said.
    if not jobs or any(engine["alive"] for engine in status["engines"]):
        found += _jobs(jobs, now)
    found += _ends("source", status["sources"], seen, now)
    found += _ends("sink", status["sinks"], seen, now)
    found += _indexes(status["index"].get("indexes", ()), seen)
    return found


def _parts(status: Json) -> Iterator[Problem]:
    for part, reason in status["problems"].items():
        yield Problem(
            what=f"The part {part} of this server doesn't work: {reason}.",
            remedy="`caraway status` shows the parts of the stack on its machine. They are found again by themselves "
            "when they are back.",
        )


def _engines(engines: Sequence[Json], jobs: Sequence[Json], now: datetime) -> Iterator[Problem]:
    if not jobs or any(engine["alive"] for engine in engines):
        return
    ended = max((found for engine in engines if (found := instant(engine["until"])) is not None), default=None)
    datasets = tuple(dict.fromkeys(job["dataset"] for job in jobs))
    when = (
        "No engine has run yet" if ended is None else f"No engine runs since {ended:%H:%M:%S} UTC ({ago(ended, now)})"
    )
    compute = "computes" if len(jobs) == 1 else "compute"
    yield Problem(
        what=f"{when}, so {_counted(len(jobs), 'job')} of {_names(datasets)} {compute} nothing. All that is computed "
        "from these datasets is stale.",
        remedy="Start an engine: `caraway up` does, and starts one again that ended; its log is logs/engine.log in the "
        "data folder. Jobs go on where they stopped, and nothing is lost.",
        since=ended,
        datasets=datasets,
    )


def _jobs(jobs: Sequence[Json], now: datetime) -> Iterator[Problem]:
    for job in jobs:
        name, dataset, link = f"{job['dataset']}.{job['pipeline']}", job["dataset"], f"/console/job?name={job['id']}"
        updated = instant(job["updated_at"])
        lag = job["progress"].get("lag_seconds")
        if job["state"] == "failing":
            yield Problem(
                what=f"The job of {name} fails, and was started {_counted(job['attempts'], 'time')}: {job['error']}",
                remedy="The engine starts it again by itself. If the rows are the cause, commit a pipeline that takes "
                "them.",
                since=updated,
                datasets=(dataset,),
                link=link,
            )
        elif job["state"] in {"pending", "starting"}:
            yield Problem(
                what=f"The job of {name} doesn't run yet: it is {job['state']}.",
                remedy="Engines start jobs one after the other. If it stays so, the engines lack slots: start another "
                "engine, or give the engine more processors.",
                since=updated,
                datasets=(dataset,),
                link=link,
            )
        elif updated is not None and now - updated > SILENT:
            yield Problem(
                what=f"Nobody has reported on the job of {name} for {duration((now - updated).total_seconds())}.",
                remedy="Its engine may hang; `caraway status` on its machine shows it.",
                since=updated,
                datasets=(dataset,),
                link=link,
            )
        elif isinstance(lag, int | float) and lag > LATE_S:
            yield Problem(
                what=f"The job of {name} is {duration(lag)} behind: {number(job['progress'].get('lag_records'))} "
                "records wait.",
                remedy="It catches up if it processes more records a second than come; the page of the job shows both.",
                datasets=(dataset,),
                link=link,
            )


def _ends(kind: str, statuses: Iterable[Json], seen: frozenset[str], now: datetime) -> Iterator[Problem]:
    for found in statuses:
        if not found["error"] or found["dataset"] not in seen:
            continue
        at = instant(found.get("polled_at") or found.get("written_at"))
        worked = "It hasn't worked since this server started" if at is None else f"It last worked {ago(at, now)}"
        verb = "read" if kind == "source" else "written"
        yield Problem(
            what=f"The {kind} {found[kind]} of {found['dataset']} can't be {verb}: {found['error']}. {worked}.",
            remedy="The server tries again by itself, and nothing is lost meanwhile.",
            since=at,
            datasets=(found["dataset"],) if kind == "source" else (),
        )


def _indexes(indexes: Iterable[Json], seen: frozenset[str]) -> Iterator[Problem]:
    for index in indexes:
        seconds = index["lag_seconds"]
        if index["dataset"] in seen and isinstance(seconds, int | float) and seconds > LATE_S:
            yield Problem(
                what=f"The index of {index['dataset']} is {duration(seconds)} behind its topic: "
                f"{number(index['lag'])} records wait, so queries read old values.",
                remedy="It catches up by itself. If it stays behind, rows come faster than one server can index them: "
                "divide the index (index.shards), or send fewer rows.",
                datasets=(index["dataset"],),
            )


def _names(names: Sequence[str]) -> str:
    shown = ", ".join(names[:LISTED])
    return shown if len(names) <= LISTED else f"{shown} and {len(names) - LISTED} more"


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
