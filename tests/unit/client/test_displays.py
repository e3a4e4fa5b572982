"""The HTML that notebooks show contains all of a definition, and nothing that a browser would run."""

# Checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="arg-type, list-item, type-arg, attr-defined"
import re
from datetime import datetime
from html.parser import HTMLParser
from typing import Any

import pandas as pd
import pytest

from caraway.client import Client
from caraway.client.answers import Answer, Answers
from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.graph.plan.explain import explain
from caraway.graph.plan.planner import plan_graph
from caraway.lib import inputs, meta, outputs
from caraway.observations.monitoring import DRIFT, EXPECTATIONS, FEATURE_DISTANCES
from caraway.process.displays import MAX_ROWS, Table, html
from caraway.testing import MockClient

__owner__ = "module@example.com"
HOSTILE = "<img src=x onerror=alert(1)>'\"&</td>"


@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@meta(description=HOSTILE, tags=[HOSTILE], owner="a@example.com")
@dataset
class Visits:
    user: int = field().meta(description=HOSTILE)
    at: datetime


@dataset(index=True, version=3)
class Counts:
    user: int = field(key=True, erase_key=True)
    visits: int
    at: datetime

    @pipeline
    @inputs(Visits)
    def count(cls, visits: Dataset) -> Any:
        rows = visits.filter(col("user") > 0).dedup(by=["user"])
        return rows.groupby("user").aggregate(visits=Count(window=Continuous("1d")))


@meta(description=HOSTILE)
@featureset
class User:
    user: int
    visits: int = F(Counts.visits, default=0).meta(description=HOSTILE)
    busy: bool = F(col("visits") > 3)
    name: str

    @extractor
    @inputs("visits")
    @outputs("name")
    def named(cls, ts: Any, visits: Any) -> Any:
        return pd.Series(visits.astype(str), name="name")


class Page(HTMLParser):
    """Collects tags, attributes and cells."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.cells: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}

    def handle_data(self, data: str) -> None:
        self.cells.append(data)


def shown(thing: Any) -> Page:
    page = Page(thing._repr_html_())
    assert set(page.tags) <= {"div", "strong", "span", "table", "thead", "tbody", "tr", "th", "td"}
    assert page.attributes == {"style"}
    return page


def test_a_dataset_shows_its_fields_and_pipelines() -> None:
    cells = shown(Counts).cells
    facts = "dataset · version 3 · history 730d · index online and offline · module@example.com"
    assert cells[0] == "Counts"
    assert cells[2] in {facts, facts.removesuffix(" · module@example.com")}
    for cell in ("user", "int", "key, erase key", "timestamp", "count", "Visits"):
        assert cell in cells
    hostile = shown(Visits).cells
    assert HOSTILE in hostile
    assert f"dataset · version 1 · history 730d · 1 source · a@example.com · {HOSTILE} · {HOSTILE}" in hostile


def test_a_featureset_shows_what_computes_each_feature() -> None:
    cells = shown(User).cells
    assert HOSTILE in cells
    for cell in ("supplied by the caller", "Counts.visits by User.user", '(col("visits") > 3)', "named(User.visits)"):
        assert cell in cells


def test_a_plan_shows_jobs_steps_indexes_and_topics() -> None:
    graph = Client.build_commit("m", [Visits, Counts], [User]).graph
    cells = shown(explain(plan_graph(graph), partitions=1, processors=2)).cells
    assert "real-time" in cells
    assert any("filter" in cell and "Visits" in cell for cell in cells)
    assert {"jobs", "indexes", "topics"} <= {*cells}


def test_a_mock_client_shows_what_it_did() -> None:
    client = MockClient()
    committed = client.commit("m", [Visits, Counts], [User])
    assert committed.datasets.created == ("Visits", "Counts")
    assert committed.features.created == ("User.user", "User.visits", "User.busy", "User.name")
    assert "Counts" in shown(committed).cells
    again = client.commit("m", [Visits], [])
    assert (again.datasets.removed, again.featuresets.removed) == (("Counts",), ("User",))
    assert again.datasets.unchanged == ("Visits",)
    frame = pd.DataFrame({"user": [1], "at": [pd.Timestamp("2024-01-01", tz="UTC")]})
    logged = client.log("web", "visits", frame, wait=True)
    assert (logged.accepted, logged.rejected, logged.json()) == (1, 0, {})
    assert "1 accepted · 0 rejected · 1 chunks" in shown(logged).cells
    assert client.wait().seconds == 0.0


def test_a_feature_shows_its_type_and_its_metadata() -> None:
    cells = shown(User.visits).cells
    assert cells[0] == "User.visits"
    assert any(cell.startswith("feature · int") and HOSTILE in cell for cell in cells)


def test_answers_of_a_server_are_values_and_tables() -> None:
    features = [
        {"feature": "User.visits", "drifted": True, "distances": [{"distance": "psi", "value": 1.25}], "at": None},
        {"feature": HOSTILE, "drifted": False, "distances": []},
    ]
    answer = Answer("drift", {"branch": "main", "since": None, "false_alarms": 0.001, "features": features})
    assert answer == {"branch": "main", "since": None, "false_alarms": 0.001, "features": features}
    cells = shown(answer).cells
    for cell in ("drift", "branch: main · false_alarms: 0.001", "feature", "distance psi, value 1.25", HOSTILE):
        assert cell in cells, cell
    assert "since" not in str(cells)


def test_answers_are_shown_as_the_observations_that_pages_and_commands_show() -> None:
    distance = {"distance": "psi", "value": 1.25, "at_least": 1.0, "threshold": None, "drifted": False, "note": HOSTILE}
    found = {"feature": HOSTILE, "drifted": True, "rows": 7, "reference": "day", "reference_rows": 9}
    answer = {"branch": "main", "features": [{**found, "distances": [distance]}]}
    cells = shown(Answer("drift", answer, (DRIFT, FEATURE_DISTANCES))).cells
    for cell in (DRIFT.title, FEATURE_DISTANCES.title, "its rows", "drifted", "psi", "none", "1.25", HOSTILE):
        assert cell in cells, cell
    counts = {"evaluated": 4, "failed": 1, "rate": 0.75}
    state = {"dataset": "D", "expectation": "expect_x", "mostly": 0.5, "strict": False}
    state |= {"last_hour": counts, "last_day": counts, "total": counts}
    states = [{**state, "status": "ok"}, {**state, "status": "violated", "dataset": HOSTILE}]
    listed = Answers(EXPECTATIONS, states)
    assert listed == states
    cells = shown(listed).cells
    assert cells.index("violated") < cells.index("as expected")
    assert {HOSTILE, "x", "50.00%", "75.00%"} <= {*cells}


def test_a_client_shows_its_server_and_branch_and_no_token() -> None:
    with Client("http://127.0.0.1:1", token="secret", branch="dev") as client:
        assert repr(client) == "Client('http://127.0.0.1:1', branch='dev')"


def test_texts_and_tables_are_bounded() -> None:
    page = html("t", (), [Table("c", ("a",), [("x" * 10_000,)] * (MAX_ROWS + 7))])
    assert page.count("<tr>") == MAX_ROWS + 1
    assert "and 7 more" in page
    assert len(re.findall("x{501}", page)) == 0


@pytest.mark.parametrize("thing", [Counts, User], ids=repr)
def test_a_plain_representation_stays_plain(thing: Any) -> None:
    assert "<" not in repr(thing)
