"""What goes into a commit and what comes out."""

from dataclasses import dataclass

from caraway.plan.model import GraphPlan
from caraway.state.model import MAIN


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitRequest:
    """A commit as it arrives.

    `payload` is the protobuf of `caraway.graph.wire` (message and definitions). `incremental`: entities that aren't
    mentioned stay. `preview`: check and tell, change nothing. `backfill=False`: refuse if a pipeline would have to be
    computed anew.
    """

    payload: bytes
    incremental: bool = False
    preview: bool = False
    backfill: bool = True
    branch: str = MAIN
    author: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """A commit that was made (or previewed: `commit_id` is None). `summary` are lines for people."""

    commit_id: str | None
    summary: tuple[str, ...]
    plan: GraphPlan
