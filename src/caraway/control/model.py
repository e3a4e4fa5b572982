"""The outcome of a commit."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from caraway.plan.model import GraphPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitOutcome:
    """The outcome of a commit or of its preview, which has a `commit_id` of None.

    Attributes:
        commit_id: The id of the commit.
        summary: The changes, in lines for people.
        plan: The topics, jobs and indexes that the branch needs afterwards.
        details: The changes, as plain values (`caraway.control.summary.details`).
    """

    commit_id: str | None
    summary: tuple[str, ...]
    plan: GraphPlan
    details: Mapping[str, object] = field(default_factory=dict)
