"""Branches, their assets and the ledger in Postgres, for tests of each rule."""

import itertools
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa

from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import encode_graph
from caraway.state.allocation import AssetState
from caraway.state.branches import Branches
from caraway.state.ledger import ActionOutcome, Claim, Ledger
from caraway.state.model import MAIN, NewCommit
from caraway.state.reader import StateReader
from caraway.state.registry import JobRegistry
from caraway.state.writer import StateWriter
from tests.unit.apps.server.control.graphs import clicks, spend

KEEP = timedelta(hours=1)
FIRST = Graph(datasets=(clicks(), spend()))
SECOND = Graph(datasets=(clicks(), spend(version=2, above=5.0)))
# A limit above the number of assets in any of these tests.
MOST = 50


def new_commit(name: str, parent: str | None, graph: Graph, **more: Any) -> NewCommit:
    """Return a commit of a graph on main, or on the branch that is named."""
    values: dict[str, Any] = {
        "id": name,
        "branch": MAIN,
        "parent": parent,
        "message": f"message of {name}",
        "author": "me@example.com",
        "fingerprint": "graph-1:0",
        "summary": ("line 1", "line 2"),
    }
    return NewCommit(graph=encode_graph(graph), plan=plan_graph(graph), **{**values, **more})


class Deployment:
    """Branches, a ledger and a clock."""

    def __init__(self, engine: sa.Engine) -> None:
        self.now = datetime(2030, 1, 1, tzinfo=UTC)
        self.reader = StateReader(engine)
        self.registry = JobRegistry(engine)
        self.writer = StateWriter(engine, clock=self._clock, keep=KEEP)
        self.branches = Branches(engine, clock=self._clock, keep=KEEP)
        self.ledger = Ledger(engine, clock=self._clock, keep=KEEP)
        self._numbers = itertools.count()

    def _clock(self) -> datetime:
        return self.now

    def commit(self, graph: Graph, branch: str = MAIN, *, restores: str | None = None) -> str:
        name = f"{branch} {next(self._numbers)}"
        parent = self.reader.head_id(branch)
        self.writer.publish(new_commit(name, parent, graph, branch=branch, restores=restores))
        return name

    def claim_all(self) -> list[Claim]:
        claims = list(itertools.islice(iter(self.ledger.claim, None), MOST))
        assert len(claims) < MOST, "what is claimed can't be claimed again"
        return claims

    def work(self) -> None:
        """Do all actions that are due, and switch branches to their heads."""
        while claims := self.claim_all():
            for claim in claims:
                assert self.ledger.close(claim, ActionOutcome.DONE)
        self.ledger.promote()

    def states(self) -> dict[str, AssetState]:
        return {asset.id: asset.state for asset in self.reader.assets()}

    def used(self, branch: str = MAIN) -> set[str]:
        """Return the assets that a branch refers to."""
        return {asset_id for asset_id, branches in self.reader.references().items() if branch in branches}

    def serving(self, branch: str = MAIN) -> str | None:
        return next(found.serving for found in self.reader.branch_heads().branches if found.name == branch)

    def due(self) -> dict[str, datetime]:
        return {entry.asset_id: entry.due_at for entry in self.reader.ledger() if entry.action == "destroy"}
