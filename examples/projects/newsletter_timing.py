"""Newsletters: is now a good time to send this reader a letter?

An open counts once a day, however often the mail program reports it; hours are those of the readers, in Berlin.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Avro, Kafka, PubSub, Redshift, Sample, Webhook, source
from caraway.datasets import Count, Dataset, LastK, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling
from caraway.expr import col, now
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.integrations.aws import Secret
from caraway.lib import inputs

__owner__ = "letters@news.example"

mailer = Webhook(name="mailer")
secret = Secret(arn="arn:aws:secretsmanager:eu-central-1:123456789012:secret:letters")
archive = Redshift(
    name="archive",
    db_name="letters",
    host="redshift.news.example",
    schema="public",
    s3_access_role_arn="arn:aws:iam::123456789012:role/unload",
)
topics = PubSub(name="mail_events", project_id="news", service_account_key=secret["pubsub"])
kafka = Kafka(
    name="mail_kafka",
    bootstrap_servers="kafka.news.example:9092",
    security_protocol="PLAINTEXT",
    sasl_mechanism="PLAIN",
)
registry = Avro(registry="confluent", url="https://schemas.news.example", token=secret["registry"])


@source(archive.table("sent", cursor="sent_at"), disorder="1d", cdc="append", every="1h", env="production")
@source(mailer.endpoint("sent"), disorder="1d", cdc="append", env="~production")
@dataset
class Letters:
    reader: int
    letter: str
    sent_at: datetime


@source(topics.topic("opened", format="json"), disorder="2d", cdc="append", env="production")
@source(
    kafka.topic("opened", format=registry),
    disorder="2d",
    cdc="append",
    sample=Sample(0.1, using=["reader"]),
    env="shadow",
)
@source(mailer.endpoint("opened"), disorder="2d", cdc="append", env=["~production", "~shadow"])
@dataset
class RawOpens:
    reader: int
    letter: str
    link: Optional[str]  # what was clicked, if anything
    opened_at: datetime


@dataset
class Opens:
    """The last open of each letter and day (of UTC)."""

    reader: int
    letter: str
    link: Optional[str]
    hour: int
    weekday: str
    opened_at: datetime

    @pipeline
    @inputs(RawOpens)
    def once_a_day(cls, opens: Dataset):
        local = col("opened_at").dt.with_tz("Europe/Berlin")
        return opens.dedup(by=["reader", "letter"], window=Tumbling("1d")).assign(
            hour=local.hour.astype(int), weekday=local.strftime("%a").astype(str)
        )


@dataset(index=True)
class OpensByHour:
    reader: int = field(key=True)
    hour: int = field(key=True)
    opens_90d: int
    opened_at: datetime

    @pipeline
    @inputs(Opens)
    def by_hour(cls, opens: Dataset):
        return opens.groupby("reader", "hour").aggregate(opens_90d=Count(window=Continuous("90d")))


@dataset(index=True)
class ReaderOpens:
    reader: int = field(key=True)
    opens_90d: int
    clicks_90d: int
    links: int
    weekdays: List[str]
    opened_at: datetime

    @pipeline
    @inputs(Opens)
    def by_reader(cls, opens: Dataset):
        quarter = Continuous("90d")
        return opens.groupby("reader").aggregate(
            opens_90d=Count(window=quarter),
            clicks_90d=Count(of="link", dropnull=True, window=quarter),
            links=Count(of="link", unique=True, approx=True, dropnull=True, window=quarter),
            weekdays=LastK(of="weekday", limit=7, dedup=True, window=quarter),
        )


@dataset(index=True)
class ReaderLetters:
    reader: int = field(key=True)
    letters_90d: int
    sent_at: datetime

    @pipeline
    @inputs(Letters)
    def by_reader(cls, letters: Dataset):
        return letters.groupby("reader").aggregate(letters_90d=Count(window=Continuous("90d")))


@featureset
class Reader:
    reader: int
    hour: int = F(now().dt.with_tz("Europe/Berlin").hour)
    weekday: str = F(now().dt.with_tz("Europe/Berlin").strftime("%a"))
    at_this_hour: int = F(OpensByHour.opens_90d, default=0)
    opens_90d: int = F(ReaderOpens.opens_90d, default=0)
    clicks_90d: int = F(ReaderOpens.clicks_90d, default=0)
    links: int = F(ReaderOpens.links, default=0)
    weekdays: List[str] = F(ReaderOpens.weekdays, default=[])
    letters_90d: int = F(ReaderLetters.letters_90d, default=0)
    open_rate: float = F((col("opens_90d") + 1) / (col("letters_90d") + 2))
    good_time: bool = F((col("at_this_hour") > 0) & col("weekdays").list.contains(col("weekday")))


ENV = "test"
LOGS = [
    ("mailer", "sent", [
        {"reader": 1, "letter": "monday", "sent_at": "2026-01-05T05:00:00Z"},
        {"reader": 1, "letter": "tuesday", "sent_at": "2026-01-06T05:00:00Z"},
    ]),
    ("mailer", "opened", [
        {"reader": 1, "letter": "monday", "link": "/a", "opened_at": "2026-01-05T06:00:00Z"},
        {"reader": 1, "letter": "monday", "link": None, "opened_at": "2026-01-05T07:30:00Z"},
        {"reader": 1, "letter": "monday", "link": "/a", "opened_at": "2026-01-06T07:45:00Z"},
        {"reader": 1, "letter": "tuesday", "link": "/a", "opened_at": "2026-01-06T19:00:00Z"},
    ]),
]  # fmt: skip
ASKS = [
    {  # Eight in the morning and, on Tuesday, eight in the evening. The click of Monday morning was not the last open.
        "at": "2026-01-13T07:10:00Z",
        "inputs": {"Reader.reader": [1, 2]},
        "outputs": ["Reader.hour", "Reader.weekday", "Reader.at_this_hour", "Reader.opens_90d", "Reader.clicks_90d",
                    "Reader.links", "Reader.weekdays", "Reader.open_rate", "Reader.good_time"],
        "expected": {
            "Reader.hour": [8, 8],
            "Reader.weekday": ["Tue", "Tue"],
            "Reader.at_this_hour": [2, 0],
            "Reader.opens_90d": [3, 0],
            "Reader.clicks_90d": [2, 0],
            "Reader.links": [1, 0],
            "Reader.weekdays": [["Tue", "Mon"], []],
            "Reader.open_rate": [1.0, 0.5],
            "Reader.good_time": [True, False],
        },
    },
]  # fmt: skip
