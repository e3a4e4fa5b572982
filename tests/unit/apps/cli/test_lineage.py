"""`caraway lineage` shows what users have defined, and the JSON of the server on request."""

import json

from typer.testing import CliRunner

from caraway.apps.cli import app
from tests.unit.client.stub import running

LOOKUP, OWN = "extractor:Payment._caraway_lookup_Spending.mean", "extractor:Payment.rate"
ANSWER = {
    "nodes": [
        {"id": "dataset:Spending", "kind": "dataset", "name": "Spending", "of": None, "owner": ""},
        *(
            {"id": name, "kind": "extractor", "name": name.partition(":")[2], "of": "Payment", "owner": ""}
            for name in (LOOKUP, OWN)
        ),
        *(
            {"id": f"feature:Payment.{name}", "kind": "feature", "name": f"Payment.{name}", "of": "Payment"}
            for name in ("card", "mean", "score")
        ),
    ],
    "edges": [
        {"from": "dataset:Spending", "to": LOOKUP, "columns": [["mean", "Payment.mean"]]},
        {"from": "feature:Payment.card", "to": LOOKUP, "columns": []},
        {"from": LOOKUP, "to": "feature:Payment.mean", "columns": []},
        {"from": "feature:Payment.mean", "to": OWN, "columns": []},
        {"from": OWN, "to": "feature:Payment.score", "columns": []},
    ],
}


def test_a_generated_extractor_is_left_out() -> None:
    with running() as stub:
        stub.will(ANSWER)
        told = CliRunner().invoke(app, ["lineage", "Payment.score", "--url", stub.url])
        assert [line.rstrip() for line in told.stdout.splitlines()[1:]] == [
            "dataset Spending        feature Payment.mean    mean → Payment.mean",
            "feature Payment.card    feature Payment.mean",
            "feature Payment.mean    extractor Payment.rate",
            "extractor Payment.rate  feature Payment.score",
        ]
        told = CliRunner().invoke(app, ["lineage", "--json", "--url", stub.url])
        assert json.loads(told.stdout) == ANSWER
