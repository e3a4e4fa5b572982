"""A real server tells a real receiver what is computed from what, and when jobs begin and fail."""

# mypy: disable-error-code="arg-type, list-item, misc, no-untyped-def"

import secrets
from datetime import datetime
from pathlib import Path
from typing import Any

from caraway.client import arguments
from caraway.connectors import Webhook, source
from caraway.datasets import dataset, field, pipeline
from caraway.graph.plan.planner import plan_graph
from caraway.graph.specs import Graph
from caraway.lib import inputs, meta
from caraway.process.settings.monitoring import OpenLineageSettings
from caraway.state.database import connect
from caraway.state.registry import JobRegistry
from tests.integration.server.server_process import ServerProcess, eventually
from tests.services.lineage_receiver import Receiver, check


def clicks() -> Graph:
    """Return definitions with a job, whose topics no other test has."""
    hook, version = Webhook(name="site"), int.from_bytes(secrets.token_bytes(3))

    @meta(owner="site@example.com")
    @source(hook.endpoint("clicks"), disorder="1h", cdc="append")
    @dataset(version=version)
    class Clicks:
        user: int
        page: str
        at: datetime

    @meta(owner="site@example.com")
    @dataset(index=True, version=version)
    class Firsts:
        user: int = field(key=True)
        page: str
        at: datetime

        @pipeline
        @inputs(Clicks)
        def first(cls: Any, clicks: Any) -> Any:
            return clicks.groupby("user").first()

    return arguments.gather([Clicks, Firsts], ())


def test_definitions_and_runs_come_to_the_receiver(kafka: str, postgres: str, tmp_path: Path) -> None:
    graph = clicks()
    (job,) = plan_graph(graph).jobs
    with Receiver() as receiver:
        # The receiver is away at first.
        receiver.codes = [503, 503]
        settings = OpenLineageSettings(url=receiver.url, api_key="key", namespace="site")
        server = ServerProcess(tmp_path / "server", kafka=kafka, postgres=postgres, openlineage=settings)
        server.start()
        server.commit(graph)
        database = connect(postgres)
        registry = JobRegistry(database)

        def jobs() -> set[str]:
            return {event["job"]["name"] for event in receiver.events if "run" not in event}

        def runs() -> list[tuple[str, str]]:
            return [(event["eventType"], event["run"]["runId"]) for event in receiver.events if "run" in event]

        wanted = {"main.sources.Clicks.[Webhook: site](endpoint=clicks)", "main.pipelines.Firsts.first"}
        eventually(lambda: jobs() == wanted, server.said)
        assert runs() == []

        def reported(state: str, turns: int) -> bool:
            registry.report(job.job_id, state=state, mode=job.mode, attempts=1, error="the password is hunter2")
            return len(runs()) == turns

        eventually(lambda: reported("running", 1), server.said)
        # Another process goes on with the run.
        server.kill()
        server.start()
        eventually(lambda: reported("failing", 2), server.said)
        (begun, run_id), (ended, same_id) = runs()
        assert (begun, ended) == ("START", "FAIL")
        assert run_id == same_id
        assert server.stop() == 0, server.said()
        database.dispose()
        for event in receiver.events:
            check(event)
            assert event["job"]["namespace"] == "site"
        assert "hunter2" not in repr(receiver.events)
        assert {request["Authorization"] for request in receiver.requests} == {"Bearer key"}
        assert "Bearer" not in server.log_file.read_text()
        assert receiver.url not in server.log_file.read_text()
