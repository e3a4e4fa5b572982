"""What comes out of a commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from caraway.plan.model import GraphPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """A commit that was made (or previewed: `commit_id` is None).

    Attributes:
        commit_id: Its id.
        summary: Lines for people.
        plan: What runs for it.
        details: What it changes, as plain values (`caraway.control.summary.details`).
    """

    commit_id: str | None
    summary: tuple[str, ...]
    plan: GraphPlan
    details: Mapping[str, object] = field(default_factory=dict)
