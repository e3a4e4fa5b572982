"""A shop: customers come from Postgres's log, orders from Kafka; features are what a customer spends, and each order
goes to a Delta table with the country that its customer had at that time.

The addresses come from the environment, as `compose.yaml` and `__main__.py` set it.
"""  # noqa: D205 (one sentence more than a line holds)

import os
from datetime import datetime

from caraway.connectors import S3, Kafka, Postgres, sink, source
from caraway.datasets import Average, Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.integrations.aws import Secret
from caraway.lib import inputs

__owner__ = "shop@example.com"

postgres = Postgres(
    name="shop",
    host=os.environ.get("SHOP_POSTGRES_HOST", "127.0.0.1"),
    port=int(os.environ.get("SHOP_POSTGRES_PORT", "5432")),
    db_name=os.environ.get("SHOP_POSTGRES_DATABASE", "shop"),
    username=os.environ.get("SHOP_POSTGRES_USER", "shop"),
    password=Secret(arn="env:SHOP_POSTGRES_PASSWORD"),
)
kafka = Kafka(
    name="events",
    bootstrap_servers=os.environ.get("SHOP_KAFKA", "127.0.0.1:9092"),
    security_protocol="PLAINTEXT",
    sasl_mechanism="PLAIN",
)
lake = S3(name="lake")


@source(postgres.table("public.customers", cursor=None), disorder="14d", cdc="native")
@dataset(index=True)
class Customers:
    """The table of customers, as it is: rows that are deleted there are deleted here."""

    customer: int = field(key=True)
    country: str
    tier: str
    updated_at: datetime = field(timestamp=True)


@source(kafka.topic("orders"), disorder="14d", cdc="append")
@dataset
class Orders:
    """An order, as the shop writes it to Kafka."""

    order: int
    customer: int
    amount: float
    at: datetime = field(timestamp=True)


@sink(lake.bucket("shop", prefix="orders", format="delta"), how="incremental", every="5s")
@dataset
class OrdersWithCountry:
    """Each order with the country of its customer when it was made."""

    order: int
    customer: int
    amount: float
    country: str
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Orders, Customers)
    def with_country(cls, orders: Dataset, customers: Dataset):
        joined = orders.join(customers, how="inner", on=["customer"])
        return joined.drop("tier")


@dataset(index=True)
class Spending:
    """The orders of a customer, over a day and in all."""

    customer: int = field(key=True)
    orders: int
    spent: float
    spent_1d: float
    average: float
    at: datetime = field(timestamp=True)

    @pipeline
    @inputs(Orders)
    def spending(cls, orders: Dataset):
        return orders.groupby("customer").aggregate(
            orders=Count(window=Continuous("forever")),
            spent=Sum(of="amount", window=Continuous("forever")),
            spent_1d=Sum(of="amount", window=Continuous("1d")),
            average=Average(of="amount", window=Continuous("forever"), default=0.0),
        )


@featureset
class Customer:
    """The features of a customer."""

    customer: int
    country: str = F(Customers.country, default="unknown")
    tier: str = F(Customers.tier, default="none")
    orders: int = F(Spending.orders, default=0)
    spent: float = F(Spending.spent, default=0.0)
    spent_1d: float = F(Spending.spent_1d, default=0.0)
    average: float = F(Spending.average, default=0.0)


DATASETS = [Customers, Orders, OrdersWithCountry, Spending]
FEATURESETS = [Customer]
