"""`caraway xray` prints durations, instants and metadata as people read them, and the JSON of the server on request."""

import json

from typer.testing import CliRunner

from caraway.apps.cli import app
from tests.unit.client.stub import running

EMPTY = {"owner": "", "description": "", "tags": [], "deprecated": False}
ORDERS = {
    "name": "Orders",
    "history": 63_072_000_000_000,
    "last_processed": 1_769_860_800_000_000,
    "field_metadata": {"user": {**EMPTY, "description": "who pays", "tags": ["pii"]}, "amount": EMPTY},
    "is_source_dataset": True,
}


def test_properties_as_people_read_them() -> None:
    with running() as stub:
        stub.will({"datasets": [ORDERS], "featuresets": []})
        told = CliRunner().invoke(app, ["xray", "--url", stub.url])
        assert told.stdout.splitlines() == [
            "dataset Orders",
            "  history: 730d",
            "  last_processed: 2026-01-31T12:00:00+00:00",
            "  field_metadata: user description who pays, tags pii, amount",
            "  is_source_dataset: True",
        ]
        told = CliRunner().invoke(app, ["xray", "--json", "--url", stub.url])
        assert json.loads(told.stdout)["datasets"] == [ORDERS]
