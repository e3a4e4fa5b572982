"""A source that is gone for good leaves nothing in its system, and nothing in Postgres."""

from dataclasses import replace

from google.pubsub_v1.types import Subscription

from caraway.dataplane.sources.positions import Checkpoint, SourcePositions
from caraway.dataplane.sources.reader import DEFINITION
from caraway.dataplane.sources.removal import SourceRemoval, definition_of
from caraway.graph.connectors import PubSubConnector
from caraway.graph.sources import Cdc
from caraway.graph.systems import PubSubSystem
from caraway.process.settings.connectors import SourcesSettings
from caraway.state.database import connect
from tests.integration.sources.pubsub_server import PubSubServer, running
from tests.unit.dataplane.sources.test_sources import SOURCE, plan_of

SYSTEM = PubSubSystem(name="ps", project_id="bees", service_account_key="{}")
CONNECTOR = PubSubConnector(system=SYSTEM, topic="raw")


def test_a_source_that_is_gone_leaves_nothing(postgres: str) -> None:
    engine = connect(postgres)
    positions = SourcePositions(engine)
    definition = definition_of(plan_of(replace(SOURCE, connector=CONNECTOR, cdc=Cdc.UPSERT)))
    made = Checkpoint(position={"subscription": "caraway-1", "made": True, "messages": 3})
    for name, checkpoint, items in (
        ("made", made, {DEFINITION: definition, "3": b"id"}),
        ("never read", Checkpoint(), {DEFINITION: definition}),
        ("of kafka", Checkpoint(position={"0": 7}), {}),
        ("alive", made, {DEFINITION: definition}),
    ):
        assert positions.save(name, 1, checkpoint, items)
    gone = {"made", "never read", "of kafka", "unknown"}
    with running(PubSubServer()) as server:
        settings = SourcesSettings(endpoints={"ps": server.address})
        subscription = "projects/bees/subscriptions/caraway-1"
        server.subscriptions[subscription] = Subscription(name=subscription)
        SourceRemoval(positions, str, settings).remove(gone)
        assert server.subscriptions == {}
    assert [positions.load(name) for name in gone] == [None] * 4
    assert positions.items("made") == {}
    # A system that doesn't answer is asked again later.
    SourceRemoval(positions, str, settings).remove({"alive"})
    assert positions.load("alive") == made
    assert positions.items("alive") == {DEFINITION: definition}
    with running(PubSubServer()) as server:
        SourceRemoval(positions, str, SourcesSettings(endpoints={"ps": server.address})).remove({"alive"})
    assert positions.load("alive") is None
    engine.dispose()
