"""Rows of the state as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from caraway.plan.model import JobPlan

# The branch that always exists.
MAIN = "main"


class DesiredState(StrEnum):
    """What the commits want of a job."""

    RUNNING = "running"
    STOPPED = "stopped"


class JobState(StrEnum):
    """What an engine last said of a job."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    FAILING = "failing"
    STOPPED = "stopped"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """Where a branch stands: its newest commit (None before the first one) and that commit's graph."""

    branch: str
    commit_id: str | None
    graph: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """A commit to be written: `graph` is the whole branch afterwards, as protobuf; `id` is chosen by the caller."""

    id: str
    branch: str
    parent: str | None
    message: str
    author: str
    graph: bytes
    fingerprint: str
    summary: tuple[str, ...]
    jobs: tuple[JobPlan, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRecord:
    """A commit as history shows it, without its graph."""

    id: str
    branch: str
    parent: str | None
    message: str
    author: str
    created_at: datetime
    fingerprint: str
    summary: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRecord:
    """A job in the registry. `progress` is what the engine tells of it, `attempts` how often it was started."""

    job_id: str
    commit_id: str
    dataset: str
    pipeline: str
    mode: str
    mode_reason: str
    desired: DesiredState
    state: JobState
    error: str
    attempts: int
    updated_at: datetime
    progress: Mapping[str, object] = field(default_factory=dict)
