"""Mistakes that both checkers must report, each at its line that a comment marks, and nowhere else; never run.

A comment that ends in `mypy` marks what only mypy sees, which knows the names of each dataset by its plugin.
"""

from typing import List

import pandas as pd

from caraway import Client
from caraway.connectors import CSV, S3, Kafka, Postgres, Webhook, sink, source
from caraway.datasets import (
    Average,
    Count,
    Dataset,
    ExpDecaySum,
    LastK,
    Quantile,
    Sum,
    dataset,
    field,
    index,
    pipeline,
)
from caraway.dtypes import Continuous, Hopping, Session, Tumbling
from caraway.expr import Expr, col, datetime, lit, now, repeat, when
from caraway.featuresets import Feature, extractor
from caraway.featuresets import feature as F
from caraway.lib import expect_column_values_to_be_between, inputs, meta
from caraway.testing import MockClient, log, mock
from shop.definitions import Address, Orders, Place, Products, Spending
from shop.features import Request, Shopper

web = Webhook(name="web")
hour = Continuous("1h")

# Decorators
dataset(version="2")  # error: a text
dataset(indexed=True)  # error: no such parameter
index(online="yes")  # error: a text
field(keys=True)  # error: no such parameter
field(key="user")  # error: a text
pipeline(environment="prod")  # error: no such parameter
extractor(version="1")  # error: a text
extractor(deps=Products)  # error: no list
extractor(deps=["Products"])  # error: a name
F(Orders.amount, defualt=0.0)  # error: no such parameter
F(Orders.amount, version="1")  # error: a text
meta(owners="a@example.com")  # error: no such parameter
meta(tags=3)  # error: no texts

# Connectors
Webhook("web")  # error: by position
Webhook(nam="web")  # error: no such setting
Webhook(name="web", retention=7)  # error: a number
Kafka(name="k", bootstrap_servers="b:9092", security_protocol="PLAINTEXT")  # error: one is missing
Postgres(name="p", host="h", db_name="d", username="u", password=3)  # error: a number
CSV(delimiter=3)  # error: a number
S3(name="s").bucket("b", prefx="p")  # error: no such parameter
S3(name="s").bucket("b", prefix="p", format=7)  # error: a number
web.endpoint(3)  # error: a number
web.topic("t")  # error: no such method
source(web, disorder="1d", cdc="append")  # error: lacks its endpoint
source(web.endpoint("e"), cdc="append")  # error: without disorder
source(web.endpoint("e"), disorder=1, cdc="append")  # error: a number
source(web.endpoint("e"), disorder="1d", cdc="apend")  # error: no such cdc
source(web.endpoint("e"), disorder="1d", cdc="append", where=col("a") > 1)  # error: not in eval
source(web.endpoint("e"), disorder="1d", cdc="append", since="2024-01-01")  # error: a text
sink(web.endpoint("e"), cdc="append")  # error: no such cdc
sink(web, cdc="debezium")  # error: lacks its endpoint

# Windows and aggregates
Continuous(7)  # error: a number
Continuous()  # error: without a duration
Hopping("7d")  # error: without a stride
Tumbling(duration=1)  # error: a number
Session(gaps="1h")  # error: no such parameter
Sum(window=hour)  # error: of what
Sum("amount", window=hour)  # error: by position
Sum(of=3, window=hour)  # error: a number
Sum(of="amount", windw=hour)  # error: no such parameter
Count(window="1h")  # error: a text
Average(of="amount", window=hour, default="0")  # error: a text
LastK(of="amount", window=hour, limit="5", dedup=True)  # error: a text
LastK(of="amount", window=hour, dedup=True)  # error: without a limit
Quantile(of="amount", window=hour, approx=True)  # error: without p
ExpDecaySum(of="amount", window=hour, half_life=1)  # error: a number
Sum(of="amount", window=Session("1h"))  # error: no window for it


def steps(orders: Dataset, products: Dataset) -> Dataset:
    orders.filter("amount > 0")  # error: a text
    orders.filter((col("amount") > 0).astype(bool))  # error: with its type
    orders.assign(total=col("amount") * 2)  # error: without its type
    orders.assign("total", float)  # error: without the function
    orders.assign("total", float, col("amount"))  # error: an expression by position
    orders.transform(3)  # error: no function
    orders.select(3)  # error: a number
    orders.drop(column=["a"])  # error: no such parameter
    orders.rename("a")  # error: no dict
    orders.dedup(by=3)  # error: a number
    orders.dedup("user", window=hour)  # error: no window for it
    orders.changelog()  # error: without a name
    orders.changelog(delete=True)  # error: no name
    orders.join(products, how="outer", on=["product"])  # error: no such join
    orders.join("Products", how="left", on=["product"])  # error: a name
    orders.join(products, on=["product"])  # error: without how
    orders.join(products, how="left", on=["product"], within="1d")  # error: one duration
    orders.join(products, how="left", keys=["product"])  # error: no such parameter
    orders.groupby("user", window=hour)  # error: no window for it
    orders.groupby("user").sum("amount")  # error: no such step
    orders.groupby("user").filter(col("a") > 1)  # error: not yet a step
    orders.groupby("user").aggregate(total=col("amount"))  # error: an expression
    orders.groupby("user").aggregate(total=Count(window=hour), emit="late")  # error: no such word
    orders.groupby("user").aggregate(total=Count(window=hour), along=3)  # error: a number
    orders.fitler(col("amount") > 0)  # error: no such step
    orders + 3  # error: a number
    return orders.groupby("user")  # error: a bare groupby


# Expressions
col(3)  # error: a number
col("a").st.lower()  # error: no such namespace
col("a").str.lowr()  # error: no such method
col("a").str.split(3)  # error: a number
col("a").num.log("e")  # error: a text
col("a").round("2")  # error: a text
col("a").dt.day()  # error: no method
col("a").dt.since(now(), units="day")  # error: no such parameter
col("a").list.map(var="x")  # error: without the expression
col("a").dict.get()  # error: without a key
col("a").struct.get(3)  # error: a number
(col("a") + 1).astype(float) + 1  # error: finished already
when(col("a") > 1).otherwise(3)  # error: without then
when()  # error: of what
lit(1).then(2)  # error: no choice
datetime(2024, 1)  # error: without a day
repeat("x")  # error: how often
wrong: Expr = (col("a") + 1).astype(float)  # error: finished already

# Structs
Address(street="High Street")  # error: a field is missing
Address(street=3, zip_code="1")  # error: a number
Address("High Street", "1", "2")  # error: too many
Place(1.0, 2.0).altitude  # error: no such field

# Datasets and featuresets
Orders.filter("amount")  # error: a text
Orders.amount.nme  # error: no such attribute
Orders.amont  # error: no such field, mypy
Shopper.spend  # error: no such feature, mypy
Spending.lookup(pd.Series([1]), fields=3)  # error: no list
Spending.lookup()  # error: without times
number: int = Orders.amount  # error: a field is no number
text: str = Shopper.spent  # error: a feature is no text
feature: Feature = Orders.amount  # error: a field is no feature
features: List[str] = Shopper.all()  # error: features are no texts
orders: Dataset = Shopper  # error: a featureset is no dataset
expect_column_values_to_be_between(column="amount", min="0")  # error: no such parameter


def serve(client: Client, frame: pd.DataFrame) -> None:
    client.commit(datasets=[Orders])  # error: without a message
    client.commit("c", datasets=Orders)  # error: no list
    client.commit("c", datasets=["Orders"])  # error: a name
    client.commit("c", datasets=[Shopper])  # error: a featureset
    client.commit("c", featuresets=[Orders])  # error: a dataset
    client.commit("c", [Orders], dry_run=True)  # error: no such parameter
    client.log("web", "e", {"a": [1]})  # error: no frame
    client.log("web", frame)  # error: without an endpoint
    client.query([Request.user], [Shopper.spent], {"Request.user": [1]})  # error: no frame
    client.query([Request.user], [Shopper.spent])  # error: without rows
    client.query(input=[Request.user], outputs=[Shopper.spent], input_dataframe=frame)  # error: no such parameter
    client.query([Orders.amount], [Shopper.spent], frame)  # error: a field
    client.lookup(Shopper, frame)  # error: a featureset
    client.lookup(Spending, keys=3)  # error: no frame
    client.quer([Request.user], [Shopper.spent], frame)  # error: no such method
    log("Orders", frame)  # error: a name


@mock
def with_mock(client: MockClient, factor: int) -> int:
    client.get_dataset_df(3)  # error: a number
    return factor


with_mock()  # error: without factor
with_mock(factor="2")  # error: a text
with_mock(factor=2, client=MockClient())  # error: the client comes of itself
inputs(Orders)(3)(4)  # error: no function
