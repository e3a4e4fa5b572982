"""What comes out of a commit."""

from dataclasses import dataclass

from caraway.plan.model import GraphPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitResult:
    """A commit that was made (or previewed: `commit_id` is None). `summary` are lines for people."""

    commit_id: str | None
    summary: tuple[str, ...]
    plan: GraphPlan
