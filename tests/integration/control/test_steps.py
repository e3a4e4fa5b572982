"""A commit that is interrupted at any of its steps exists as a whole or not at all."""

import multiprocessing
import signal
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, decode_graph
from caraway.state.allocation import AssetState
from caraway.state.blueprints import AssetKind, blueprints
from caraway.state.model import DesiredState, Head, JobState
from caraway.state.reader import StateReader
from caraway.state.registry import JobRegistry
from tests.integration.control.steps import Clock, Plant, Steps, commit_and_die, content
from tests.unit.apps.server.control.graphs import clicks, spend, users

# Longer than the lease of a worker that died.
LATER = timedelta(minutes=5)
ROUNDS = 200
# The first nineteen steps are those of the commit; some fifty similar ones of the ledger follow.
FIRST = 25
AFTER = 6
STRIDE = 7
# Only every fifth commit is followed to the end of its actions, which takes longer than the commit itself.
REST = 5


def graph(version: int) -> Graph:
    """Return a graph; each version replaces a topic, a job and two indexes of the version before."""
    return Graph(datasets=(clicks(), spend(version=version, above=float(version)), users(version=version)))


@dataclass
class Deployment:
    """The parts of a deployment that outlive a control process."""

    url: str
    folder: Path
    clock: Clock

    def restart(self) -> Plant:
        """Start a control process, long after the end of the one before."""
        self.clock.now += LATER
        return Plant(self.url, self.folder, Steps(), self.clock)


@pytest.fixture
def deployment(postgres: str, tmp_path: Path) -> Deployment:
    folder = tmp_path / "topics"
    folder.mkdir()
    found = Deployment(postgres, folder, Clock())
    plant = found.restart()
    plant.commits.commit(CommitRequest(message="1", graph=graph(1)))
    settle(found, plant)
    plant.close()
    return found


def settle(deployment: Deployment, plant: Plant) -> None:
    """Act as engine and workers until no action is left."""
    for _ in range(ROUNDS):
        deployment.clock.now += timedelta(minutes=2)
        for job in plant.reader.jobs():
            state = JobState.RUNNING if job.desired is DesiredState.RUNNING else JobState.STOPPED
            JobRegistry(plant.engine).report(
                job.job_id, state=state, mode=job.mode, attempts=1, error="", progress={"lag_records": 0}
            )
        plant.reconciler.converge()
        if not plant.reader.ledger():
            return
    raise AssertionError(plant.reader.ledger())


def check_whole(reader: StateReader, before: Head, wanted: Graph) -> None:
    """Check that the branch has the commit with all the assets that it needs."""
    head = reader.head()
    assert head.commit_id is not None
    assert reader.commit(head.commit_id).parent == before.commit_id
    assert decode_graph(head.graph) == wanted
    live = {asset.content for asset in reader.assets() if asset.id in reader.references()}
    assert live >= {blueprint.content for blueprint in blueprints(plan_graph(wanted))}


def check_rest(plant: Plant, wanted: Graph) -> None:
    """Check that exactly the assets exist that the branch needs, and that it serves its head."""
    (main,) = plant.reader.branch_heads().branches
    assert main.serving == main.head
    live = [asset for asset in plant.reader.assets() if asset.state is not AssetState.GONE]
    assert {asset.state for asset in live} == {AssetState.READY}
    assert {asset.content for asset in live} == {blueprint.content for blueprint in blueprints(plan_graph(wanted))}
    assert set(plant.topics()) == {asset.name for asset in live if asset.kind is AssetKind.TOPIC}


@pytest.mark.full(reason="kills; tests/integration/state/test_state.py has commits that fail half way")
def test_a_control_process_that_is_killed_leaves_a_commit_whole_or_nothing(deployment: Deployment) -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["caraway.apps.server.control.reconciler", commit_and_die.__module__])
    version, at, outcomes = 1, 0, list[bool]()
    while True:
        wanted = graph(version + 1)
        plant = deployment.restart()
        before, rows = plant.reader.head(), content(deployment.url)
        request = CommitRequest(message=str(version + 1), graph=wanted)
        arguments = (deployment.url, deployment.folder, at, deployment.clock.now, request)
        child = context.Process(target=commit_and_die, args=arguments)
        child.start()
        child.join()
        assert child.exitcode in {0, -signal.SIGKILL}
        committed = plant.reader.head_id() != before.commit_id
        if committed:
            check_whole(plant.reader, before, wanted)
            version += 1
            settle(deployment, plant)
            check_rest(plant, wanted)
        else:
            # Nothing has changed, so the commit can be made again.
            assert content(deployment.url) == rows
        plant.close()
        if child.exitcode == 0:
            break
        outcomes.append(committed)
        # Every step is tried up to the end of the transaction, then the first ones of the ledger and samples of its
        # others.
        at += 1 if outcomes.count(True) < AFTER else STRIDE
    # Up to some step nothing is committed, and from it on all; both sides have several steps.
    assert outcomes == sorted(outcomes)
    assert outcomes.count(False) >= 15
    assert outcomes.count(True) >= AFTER
