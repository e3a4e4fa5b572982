"""Rows of the state as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from caraway.plan.model import GraphPlan

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


class Role(StrEnum):
    """What a branch needs an asset for: its newest commit, or the one that it serves until that is ready."""

    HEAD = "head"
    SERVING = "serving"


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
    plan: GraphPlan


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
    """A job in the registry. `progress` is what the engine reports of it, `attempts` how often it was started."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRecord:
    """A branch: its newest commit and the one that it serves, None before the first."""

    name: str
    head: str | None
    serving: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchHeads:
    """All branches at one moment; `generations` are those of contents that aren't in their first one."""

    branches: tuple[BranchRecord, ...]
    generations: Mapping[str, int]

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits that any branch needs, each once."""
        found = [commit for branch in self.branches for commit in (branch.head, branch.serving) if commit is not None]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """Something to be done, or that was done, for an asset. `reason` says why it isn't done yet."""

    id: int
    asset_id: str
    asset_state: str
    dataset: str
    action: str
    state: str
    reason: str
    attempts: int
    due_at: datetime
    opened_at: datetime
    closed_at: datetime | None
