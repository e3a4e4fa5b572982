"""The problems of now in plain words: which part doesn't run, since when, what that means, and what to do about it."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any
from urllib.parse import quote

from caraway.observations.figures import ago, duration, instant, number
from caraway.process.estimates import counted
from caraway.state.model import PAUSED

# The seconds by which an index or a job may be behind without being reported. Bursts of rows are served within this
# time.
LATE_S = 30.0
# A job's engine reports every few seconds. After this time without a report nobody knows what the job does.
SILENT = timedelta(seconds=60)
# The most names that a sentence lists, and the most problems of a kind that are listed.
LISTED = 5
# Matches values within a reason. Reasons of dead letters that differ only in values become one problem.
VALUES = re.compile(r"'[^']*'|\"[^\"]*\"|-?\d[\d.,:+TZ-]*")

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
    found = [*_parts(status), *_warned(status), *_engines(status["engines"], jobs, now)]
    # Without an engine no job can report anything. The missing engine is then reported as a problem, instead of the
    # jobs.
    if not jobs or any(engine["alive"] for engine in status["engines"]):
        found += _jobs(jobs, now)
    found += _ends("source", status["sources"], seen, now)
    found += _ends("sink", status["sinks"], seen, now)
    found += _indexes(status["index"].get("indexes", ()), seen)
    return found


def problems_found(answers: Mapping[str, Any]) -> list[Problem]:
    """Return what is wrong with rows and features, at most some problems of each kind and the number of the others.

    Args:
        answers: The answers about dead letters, expectations, skew and drift; or a text with the reason why one of
            these can't be answered.
    """
    problems: list[Problem] = []
    for kind, answer in answers.items():
        page, faults_of, described = FOUND[kind]
        link = f"/console/{page}?"
        if isinstance(answer, str):
            what = f"The {kind} can't be looked at: {answer}."
            problems.append(Problem(what=what, remedy="Try again later.", link=link))
            continue
        # An answer may have thousands of faults, so sentences are made only for those that are listed.
        found = faults_of(answer)
        problems += map(described, found[:LISTED])
        if len(found) > LISTED:
            what = f"{counted(len(found) - LISTED, 'more problem')} of this sort: {kind}."
            remedy = f"The console lists all of them on its page /console/{page}."
            problems.append(Problem(what=what, remedy=remedy, link=link))
    return problems


def _letters(letters: Iterable[Json]) -> list[list[Json]]:
    groups: dict[tuple[str, str], list[Json]] = {}
    for letter in letters:
        groups.setdefault((letter["dataset"], VALUES.sub("", letter["reason"])), []).append(letter)
    return sorted(groups.values(), key=lambda group: -len(group))


def _of_letters(group: Sequence[Json]) -> Problem:
    dataset = group[0]["dataset"]
    return Problem(
        what=f"{dataset}: {counted(len(group), 'waiting dead letter')}: {group[0]['reason'].rstrip('.')}.",
        remedy="Correct what sends such rows, then send them again with `caraway dead-letters replay`; rows at "
        "which a pipeline failed need another pipeline, records that an index left out a new index.",
        since=min(filter(None, (instant(letter["at"]) for letter in group)), default=None),
        datasets=(dataset,),
        link=f"/console/dead-letters?dataset={quote(dataset)}",
    )


def _expectations(answer: Json) -> list[Json]:
    return [found for found in answer["expectations"] if found["status"] == "violated"]


def _of_expectation(found: Json) -> Problem:
    rows = f"{number(found['total']['failed'])} of {number(found['total']['evaluated'])} rows failed so far"
    return Problem(
        what=f"{found['dataset']}: {found['expectation']} is violated; {rows}.",
        remedy="The page /console/quality has some of the rows: correct what sends them, or the expectation.",
        since=instant(found["status_since"]),
        datasets=(found["dataset"],),
        link=f"/console/quality?dataset={quote(found['dataset'])}",
    )


def _skew(answer: Json) -> list[Json]:
    return [found for found in answer["features"] if found["served_now"] and _reasons(found)]


def _reasons(found: Json) -> dict[str, int]:
    # Training sets include late rows on purpose. A served value that differs only because of such rows is no fault.
    return {why: count for why, count in found["reasons"].items() if why != "late data" and count}


def _of_skew(found: Json) -> Problem:
    reasons = ", ".join(f"{why} {number(count)}" for why, count in _reasons(found).items())
    return Problem(
        what=f"{found['feature']}: of {number(found['checked'])} values that were served in the last day, some "
        f"aren't as computed again: {reasons}.",
        remedy="`caraway skew` shows samples, and what to do about each reason.",
        link=f"/console/feature?name={quote(found['feature'])}",
    )


def _drift(answer: Json) -> list[tuple[tuple[str, str], list[Json]]]:
    drifted: dict[tuple[str, str], list[Json]] = {}
    for found in answer["findings"]:
        if found["drifted"]:
            page = f"dataset={found['dataset']}" if "dataset" in found else f"feature={found['feature']}"
            name = found.get("feature") or f"{found['dataset']}.{found['field']}"
            drifted.setdefault((name, page), []).append(found)
    return list(drifted.items())


def _of_drift(drifted: tuple[tuple[str, str], Sequence[Json]]) -> Problem:
    (name, page), group = drifted
    distances = ", ".join(f"{found['distance']} {number(found['value'])}" for found in group)
    return Problem(
        what=f"{name} has drifted: {distances}.",
        remedy="The page /console/drift compares it with its reference. If the values are right, set a new reference.",
        link=f"/console/drift?{page}",
    )


# For each kind of findings: the page that shows them, the function that finds the faults in an answer, and the function
# that makes a problem of a fault.
FOUND: Mapping[str, tuple[str, Callable[[Any], list[Any]], Callable[[Any], Problem]]] = {
    "dead letters": ("dead-letters", _letters, _of_letters),
    "expectations": ("quality", _expectations, _of_expectation),
    "skew": ("skew", _skew, _of_skew),
    "drift of features": ("drift", _drift, _of_drift),
    "drift of datasets": ("drift", _drift, _of_drift),
}


def _parts(status: Json) -> Iterator[Problem]:
    for part, reason in status["problems"].items():
        yield Problem(
            what=f"The part {part} of this server doesn't work: {reason}.",
            remedy="`caraway status` shows the parts of the stack on its machine. They are found again by themselves "
            "when they are back.",
        )


def _warned(status: Json) -> Iterator[Problem]:
    if warning := status.get("warning"):
        yield Problem(what=warning, remedy="docs/operate/operations.md tells more.", link="/console?")


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
        what=f"{when}, so {counted(len(jobs), 'job')} of {_names(datasets)} {compute} nothing. All that is computed "
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
                what=f"The job of {name} fails, and was started {counted(job['attempts'], 'time')}: {job['error']}",
                remedy="The engine starts it again by itself. If the rows are the cause, commit a pipeline that takes "
                "them.",
                since=updated,
                datasets=(dataset,),
                link=link,
            )
        elif job["state"] == PAUSED:
            yield Problem(
                what=f"The job of {name} is paused, so {dataset} gets staler with each row that comes.",
                remedy="Its page has a button that lets it go on from where it stopped.",
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
