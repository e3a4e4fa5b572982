"""A program that commits, logs and asks, everything annotated."""

from typing import Any, Dict, List, Optional

import pandas as pd

from caraway import Client
from caraway.client import Response
from caraway.datasets import Dataset
from caraway.featuresets import Feature, Featureset
from shop.definitions import Orders, Products, Spending, Users, everything
from shop.features import Item, Request, Shopper

DATASETS = [Orders, Products]
FEATURESETS = [Request, Shopper, Item]


def commit(client: Client, env: Optional[str] = None) -> Response:
    client.commit("orders", DATASETS, incremental=True, env=env)
    client.commit("preview", datasets=everything, featuresets=FEATURESETS, preview=True, backfill=False)
    return client.commit(message="all", datasets=[Orders, Products, Users, Spending], featuresets=[Request, Shopper])


def commit_some(client: Client, datasets: List[Dataset], featuresets: List[Featureset]) -> None:
    client.commit("some", datasets, featuresets)


def log(client: Client, rows: List[Dict[str, Any]]) -> bool:
    answer = client.log("shop", "orders", pd.DataFrame(rows), batch_size=100)
    return answer is not None and answer.status_code == 200


def ask(client: Client, users: List[int]) -> pd.DataFrame:
    frame = pd.DataFrame({"Request.user": users})
    some = client.query([Request.user], [Shopper.spent, Shopper.rich, "Shopper.mean"], frame)
    wanted: List[Feature] = [Shopper.score, *Item.all()]
    client.query(inputs=["Request.user", "Request.limit"], outputs=wanted, input_dataframe=frame, workflow="test")
    client.query(inputs=[Request.user], outputs=[Shopper], input_dataframe=frame, log=True, sampling_rate=0.5)
    return some


def look(client: Client, users: List[int]) -> "pd.Series[bool]":
    rows, found = client.lookup(Spending, pd.DataFrame({"user": users}), fields=["spent_7d", Spending.best])
    client.lookup("Spending", [{"user": user} for user in users], timestamps=pd.Series(pd.to_datetime(["2024-01-01"])))
    print(rows.shape, client.inspect(Spending, n=3).columns)
    client.erase(Users, [{"user": users[0]}])
    return found


def everywhere(client: Client) -> List[str]:
    client.clone_branch("dev", from_branch="main")
    client.checkout("dev")
    client.add_secret("token", "abc")
    return [*client.list_branches(), client.branch(), client.get_secret("token")]


def main() -> None:
    with Client("http://127.0.0.1:8000", token="t", branch="main") as client:
        commit(client)
        commit_some(client, [Orders, Users], [Request])
        print(ask(client, [1, 2]), look(client, [1, 2]), log(client, []), everywhere(client))
