"""The rows of branches, commits, jobs and the ledger in Postgres, as frozen values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum

from caraway.graph.plan.model import GraphPlan

# The branch that always exists.
MAIN = "main"


class DesiredState(StrEnum):
    """The state of a job that the commits ask for."""

    RUNNING = "running"
    STOPPED = "stopped"


# The state that people see for a job that somebody has paused; engines never report it.
PAUSED = "paused"


class JobState(StrEnum):
    """The state of a job that an engine last reported."""

    PENDING = "pending"
    STARTING = "starting"
    RUNNING = "running"
    FAILING = "failing"
    STOPPED = "stopped"


class Role(StrEnum):
    """The reason why a branch needs an asset: for its newest commit, or for the one that it still serves."""

    HEAD = "head"
    SERVING = "serving"


@dataclass(frozen=True, slots=True, kw_only=True)
class Head:
    """A branch's newest commit (None before the first one), the graph of that commit and its generations.

    `generations` are those of contents beyond their first (`caraway.state.blueprints.apply_generations`).
    """

    branch: str
    commit_id: str | None
    graph: bytes
    generations: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class NewCommit:
    """A commit to be written: `graph` is the whole branch afterwards, as protobuf; `id` is chosen by the caller.

    `restores` is the commit that a rollback goes back to, whose assets are reused as far as they still exist. `shares`
    are the ids of the assets of other branches that the author may use; None: all of them.
    """

    id: str
    branch: str
    parent: str | None
    message: str
    author: str
    graph: bytes
    fingerprint: str
    summary: tuple[str, ...]
    plan: GraphPlan
    restores: str | None = None
    shares: frozenset[str] | None = None


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
    """A job in the registry.

    `progress` is the engine's report, `attempts` the number of times that it was started. A job that is `paused`
    isn't run until a person lets it go on.
    """

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
    paused: bool = False

    @property
    def shown_state(self) -> str:
        """The state as people are told of it: "paused", or the one that an engine last reported."""
        return PAUSED if self.paused and self.desired is DesiredState.RUNNING else self.state

    @property
    def standstill(self) -> str:
        """The state of a job that doesn't run, and who has to act, for people."""
        who = "a person has to let it go on" if self.shown_state == PAUSED else "an engine has to run it"
        return f"{self.shown_state}; {who}"


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchRecord:
    """A branch with its newest commit and the commit that it serves; both are None before the first commit."""

    name: str
    head: str | None
    serving: str | None
    created_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class BranchHeads:
    """All branches at one moment."""

    branches: tuple[BranchRecord, ...]

    @property
    def commits(self) -> tuple[str, ...]:
        """The commits that any branch has as its head or serves, each once."""
        found = [commit for branch in self.branches for commit in (branch.head, branch.serving) if commit is not None]
        return tuple(dict.fromkeys(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class LedgerEntry:
    """An open or closed action on an asset. `reason` says why an open one hasn't been done yet."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The lease of a process, by Postgres's clock: `alive` until `expires_at` unless it is renewed."""

    name: str
    owner: str
    alive: bool
    expires_at: datetime
