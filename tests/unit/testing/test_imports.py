"""A unit test with the mock client imports no module that takes long and isn't used."""

import subprocess
import sys

# Modules that a test of some rows doesn't need; `multiprocessing` stands for the processes of users' functions.
UNUSED = (
    "confluent_kafka",
    "granian",
    "httpx2",
    "IPython",
    "jsonschema",
    "multiprocessing.context",
    "polars",
    "prometheus_client",
    "pyspark",
    "rich",
    "rocksdict",
    "sqlalchemy",
)
PROGRAM = """
import sys
from datetime import datetime, timezone
import pandas as pd
before = set(sys.modules)
import caraway
print(*(name for name in sys.modules if name.startswith("caraway.")))
from caraway.connectors import Webhook, source
from caraway.datasets import Count, Dataset, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.expr import col
from caraway.featuresets import feature as F, featureset
from caraway.lib import inputs
from caraway.testing import mock

__owner__ = "a@example.com"

@source(Webhook(name="web").endpoint("visits"), disorder="1d", cdc="append")
@dataset
class Visits:
    user: int
    at: datetime

@dataset(index=True)
class Counts:
    user: int = field(key=True)
    visits: int
    at: datetime

    @pipeline
    @inputs(Visits)
    def count(cls, visits: Dataset):
        return visits.groupby("user").aggregate(visits=Count(window=Continuous("1d")))

@featureset
class User:
    user: int
    visits: int = F(Counts.visits, default=0)
    busy: bool = F(col("visits") > 1)

@mock
def test(client):
    client.commit("m", [Visits, Counts], [User])
    client.log("web", "visits", pd.DataFrame({"user": [1, 1], "at": [datetime.now(timezone.utc)] * 2}))
    answer = client.query([User.user], [User.visits, User.busy], pd.DataFrame({"User.user": [1, 2]}))
    assert answer["User.visits"].tolist() == [2, 0]
    assert answer["User.busy"].tolist() == [True, False]

test()
print(*sorted(set(sys.modules) - before))
"""


def test_a_mock_client_loads_nothing_that_it_does_not_use(tmp_path: object) -> None:
    program = f"{tmp_path}/program.py"
    with open(program, "w", encoding="utf-8") as file:  # noqa: PTH123 (as short as the program)
        file.write(PROGRAM)
    out = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True).stdout
    alone, whole = out.splitlines()
    # The package imports its parts when they are first used.
    assert alone == "caraway.process caraway.process.deferred"
    loaded = set(whole.split())
    assert "caraway.testing.client" in loaded
    assert [name for name in UNUSED if name in loaded] == []
