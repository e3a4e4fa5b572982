"""A commit is made while Postgres or the engine dies, at every step of theirs: it finishes, and never half of it."""

# ruff: noqa: ANN202 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, assignment"

import logging
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import pandas as pd
import pytest

from caraway import F, dataset, featureset, field, pipeline
from caraway.apps.server.control.service import CommitService
from caraway.apps.stack import ports
from caraway.apps.stack.postgres import EmbeddedPostgres
from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, Sum
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.featuresets import Featureset
from caraway.graph.wire.graphs import CommitRequest
from caraway.lib import inputs
from caraway.state.migrate import migrate
from tests.alone import running
from tests.faults import dying_engine
from tests.integration.control.steps import Clock, Plant, Steps
from tests.integration.control.test_steps import Deployment, check_rest, check_whole, graph, settle
from tests.integration.engine.rig import Rig
from tests.integration.server.server_process import ServerProcess, eventually
from tests.integration.spark.broker import Broker
from tests.services.postgres import end_all

log = logging.getLogger(__name__)

__owner__ = "faults@example.com"

# Each step of the commit itself; of the ledger, whose steps are much alike each other, where it begins and samples.
FIRST, STRIDE = 25, 7
LITRES = 5
# A start of Spark and of a job, on a machine that does other things as well.
SECONDS = 240.0


class MortalPostgres:
    """A server that can be killed with all its processes."""

    def __init__(self, folder: Path) -> None:
        self.server = EmbeddedPostgres(folder, ports.choose())
        self._log = folder / "postgres.log"
        self.start()

    def start(self) -> None:
        self._running = running(self.server, self._log)
        self._pid = self._running.__enter__()

    def kill(self) -> None:
        end_all(self._pid)
        self.close()

    def close(self) -> None:
        self._running.__exit__(None, None, None)


@pytest.fixture
def mortal(tmp_path: Path) -> Iterator[MortalPostgres]:
    postgres = MortalPostgres(tmp_path / "postgres")
    yield postgres
    postgres.close()


def commit(service: CommitService, version: int) -> str:
    result = service.commit(CommitRequest(message=str(version), graph=graph(version)))
    assert result.commit_id is not None
    return result.commit_id


def test_a_postgres_that_is_killed_at_any_step(mortal: MortalPostgres, tmp_path: Path) -> None:
    url = mortal.server.url
    migrate(url)
    (tmp_path / "topics").mkdir()
    deployment = Deployment(url, tmp_path / "topics", Clock())

    def kill() -> None:
        mortal.kill()
        mortal.start()

    version, at = 0, 0
    while True:
        plant = Plant(url, deployment.folder, steps := Steps(act=kill), deployment.clock)
        before = plant.reader.head()
        steps.taken.clear()
        steps.at = at
        version += 1
        commit_id = commit(plant.commits, version)
        was_killed, steps.at = len(steps.taken) > at, None
        assert plant.reader.head_id() == commit_id
        check_whole(plant.reader, before, graph(version))
        settle(deployment, plant)
        check_rest(plant, graph(version))
        plant.close()
        if not was_killed:
            break
        at += 1 if at < FIRST else STRIDE
    log.info("a commit survived kills of Postgres before %d of its %d steps", version - 1, at)
    assert version > FIRST


def definitions(version: int) -> tuple[list[Dataset], list[Featureset]]:
    """Define a total that a job computes; each version multiplies it by its own number."""
    hook = Webhook(name="mortal")

    @source(hook.endpoint("mortal_taps"), disorder="14d", cdc="append")
    @dataset
    class MortalTaps:
        pipe: int
        litres: int
        at: datetime

    @dataset(index=True, version=version)
    class MortalFlow:
        pipe: int = field(key=True)
        litres: int
        at: datetime

        @pipeline
        @inputs(MortalTaps)
        def add(cls, taps: Dataset):
            times = taps.assign(times=(col("litres") * version).astype(int))
            return times.groupby("pipe").aggregate(litres=Sum(of="times", window=Continuous("forever")))

    @featureset
    class MortalPipe:
        pipe: int
        flow: int = F(MortalFlow.litres, default=0)

    return [MortalTaps, MortalFlow], [MortalPipe]


@dataclass
class Engines:
    """A server, and an engine that dies when it is told to."""

    server: ServerProcess
    rig: Rig
    steps: Path
    version: int = 0

    def serves(self) -> bool:
        """Return whether the newest version is served, not the one before; a mixture of both, or nothing, fails."""
        answer = self.server.query(["MortalPipe.flow"], {"MortalPipe.pipe": [1]}, inputs=("MortalPipe.pipe",))
        assert answer.status_code == 200, answer.text
        (flow,) = answer.json()["MortalPipe.flow"]
        assert flow in {LITRES * (self.version - 1), LITRES * self.version}, (flow, self.version)
        return bool(flow == LITRES * self.version)

    def commit(self, client: Client, order: str) -> list[str]:
        """Change the pipeline while the engine has an order; return the steps that it took until that was served."""
        self.version += 1
        (self.steps / dying_engine.TAKEN).write_text("")
        (self.steps / dying_engine.DIED).unlink(missing_ok=True)
        (self.steps / dying_engine.ORDER).write_text(order)
        client.commit(str(self.version), *definitions(self.version))
        died = self.steps / dying_engine.DIED

        def done() -> bool:
            if self.rig.process.poll() is not None:
                assert died.exists(), self.rig.log()
                self.rig.process.wait()
                self.rig.start()
            # Some steps come only later, such as to remove what is left of the job before.
            return self.serves() and (order == "none" or died.exists())

        eventually(done, self.rig.log, SECONDS)
        (self.steps / dying_engine.ORDER).unlink(missing_ok=True)
        taken = (self.steps / dying_engine.TAKEN).read_text().splitlines()
        return list(dict.fromkeys(taken))


@pytest.fixture
def engines(broker: Broker, postgres: str, tmp_path: Path) -> Iterator[Engines]:
    server = ServerProcess(tmp_path / "server", kafka=broker.bootstrap_servers, postgres=postgres)
    server.start()
    (tmp_path / "engine").mkdir()
    (tmp_path / "steps").mkdir()
    rig = Rig(tmp_path / "engine", broker.bootstrap_servers, CARAWAY_POSTGRES__URL=postgres)
    rig.program, rig.registry = Path(dying_engine.__file__), tmp_path / "steps"
    rig.start()
    yield Engines(server, rig, tmp_path / "steps")
    rig.close()
    server.kill()
    server.http.close()


@pytest.mark.timeout(3600)
def test_an_engine_that_is_killed_at_any_step(engines: Engines) -> None:
    with closing(Client(str(engines.server.settings.server.url))) as client:
        engines.version = 1
        client.commit("1", *definitions(1))
        client.log("mortal", "mortal_taps", pd.DataFrame({"pipe": [1], "litres": [LITRES], "at": [datetime.now(UTC)]}))
        eventually(engines.serves, engines.rig.log, SECONDS)
        steps = engines.commit(client, "none")
        assert len(steps) > 5, steps
        for step in steps:
            engines.commit(client, step)
            log.info("died before: %s", step)
        log.info("a commit survived kills of the engine before each of its %d kinds of steps", len(steps))
