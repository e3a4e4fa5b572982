"""Logins: failures in a row, countries that nobody travels between in an hour, and devices never seen before.

The features decide whether a login needs a second factor.
"""

from datetime import UTC, datetime
from typing import List, Optional

from caraway.connectors import Kafka, Webhook, sink, source
from caraway.datasets import Count, Dataset, Distinct, LastK, dataset, field, pipeline
from caraway.dtypes import Continuous, Tumbling, regex
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.integrations.aws import Secret
from caraway.lib import inputs

__owner__ = "identity@security.example"
ENV = "staging"  # where rows come by a webhook, and nothing is sent on

vault = Secret(arn="arn:aws:secretsmanager:eu-central-1:1:secret:identity")
gateway = Webhook(name="gateway")
bus = Kafka(
    name="bus",
    bootstrap_servers="bus:9092",
    security_protocol="PLAINTEXT",
    sasl_mechanism="PLAIN",
    sasl_plain_username="identity",
    sasl_plain_password=vault["kafka"]["password"],
)
Address = regex(r"([0-9]{1,3}\.){3}[0-9]{1,3}")


@source(bus.topic("logins"), disorder="1h", cdc="append", env="~staging")
@source(gateway.endpoint("logins"), disorder="1h", cdc="append", env="staging")
@dataset
class Logins:
    event: str
    user: str
    device: str
    address: Address
    country: Optional[str]
    succeeded: bool
    at: datetime


@dataset
class Attempts:
    """Gateways repeat what they sent: an event is taken once. Addresses of the office are not of interest."""

    user: str
    device: str
    network: str
    country: Optional[str]
    succeeded: bool
    at: datetime

    @pipeline
    @inputs(Logins)
    def unique(cls, logins: Dataset):
        return (
            logins.dedup(by="event")
            .filter(~col("address").str.startswith("10."))
            .assign(network=col("address").str.split(".").list.at(0).fillnull("").str.concat(".0.0.0/8").astype(str))
            .drop(["event", "address"])
        )


@dataset(index=True)
class Failures:
    user: str = field(key=True)
    failed_10m: int
    attempts_10m: int
    networks_1d: List[str]
    at: datetime

    @pipeline
    @inputs(Attempts)
    def recent(cls, attempts: Dataset):
        marked = attempts.assign(failure=when(~col("succeeded")).then("x").astype(Optional[str]))
        return marked.groupby("user").aggregate(
            failed_10m=Count(of="failure", dropnull=True, window=Continuous("10m")),
            attempts_10m=Count(window=Continuous("10m")),
            networks_1d=Distinct(of="network", unordered=True, window=Continuous("1d")),
        )


@dataset(index=True)
class Travels:
    user: str = field(key=True)
    countries: List[str]
    last_known: Optional[str]
    at: datetime

    @pipeline
    @inputs(Attempts)
    def one_hour(cls, attempts: Dataset):
        inside = attempts.filter(lambda df: df["succeeded"])
        recent = inside.groupby("user").aggregate(
            countries=LastK(of="country", limit=3, dedup=True, dropnull=True, window=Continuous("1h")), emit="final"
        )
        return recent.assign(last_known=col("countries").list.at(0).astype(Optional[str]))


@dataset(index=True)
class Devices:
    user: str = field(key=True)
    device: str = field(key=True)
    network: str
    at: datetime

    @pipeline
    @inputs(Attempts)
    def first_success(cls, attempts: Dataset):
        return attempts.filter(col("succeeded")).drop("country", "succeeded").groupby("user", "device").first()


@sink(bus.topic("attacked"), cdc="debezium", env="~staging")
@dataset(index=True)
class Attacked:
    """Networks that failed more than twice within the last full hour: for the firewall."""

    network: str = field(key=True)
    failures: int
    at: datetime

    @pipeline
    @inputs(Attempts)
    def by_network(cls, attempts: Dataset):
        failed = attempts.filter(~col("succeeded")).groupby("network").aggregate(failures=Count(window=Tumbling("1h")))
        return failed.filter(col("failures") > 2)


@featureset
class Login:
    user: str
    device: str
    network: str
    home_zone_hour: int = F(now().dt.parts("hour", "America/Vancouver"))
    failed: int = F(Failures.failed_10m, default=0)
    networks: List[str] = F(Failures.networks_1d, default=[])
    countries: List[str] = F(Travels.countries, default=[])
    device_seen: Optional[datetime] = F(Devices.at)
    attacks: int = F(Attacked.failures, default=0)
    new_device: bool = F(col("device_seen").isnull() | (now().dt.since(col("device_seen"), "hour").fillnull(0) < 24))
    new_network: bool = F(~col("networks").list.contains(col("network")))
    teleported: bool = F(col("countries").list.len() > 1)
    points: int = F(
        when(col("failed") >= 3).then(2).otherwise(0)
        + when(col("teleported")).then(3).otherwise(0)
        + when(col("new_device")).then(1).otherwise(0)
        + when(col("attacks") > 0).then(2).otherwise(0)
    )


@featureset
class Challenge:
    """What the login page asks."""

    seen: datetime = F(Login.device_seen, default=datetime(1970, 1, 1, tzinfo=UTC))
    points: int = F(Login.points)
    known_for_days: int = F(now().dt.since_epoch("day") - col("seen").dt.since_epoch("day"))
    second_factor: bool = F((col("points") >= 3) | (col("known_for_days") > 10_000))


def _login(event: str, user: str, device: str, address: str, country: str | None, succeeded: int, time: str) -> dict:
    row = {"event": event, "user": user, "device": device, "address": address, "country": country}
    return {**row, "succeeded": bool(succeeded), "at": f"2026-01-{time}:00Z"}


LOGS = [
    (
        "gateway",
        "logins",
        [
            _login("e1", "ann", "laptop", "81.2.3.4", "AT", 1, "01T08:00"),
            _login("e2", "ann", "laptop", "81.2.3.4", "AT", 1, "05T11:20"),
            _login("e3", "ann", "phone", "81.2.3.9", None, 1, "05T11:40"),
            _login("e4", "ann", "phone", "45.9.9.9", "BR", 1, "05T11:59"),
            _login("e5", "bob", "tablet", "45.1.1.1", "BR", 0, "05T11:55"),
            _login("e5", "bob", "tablet", "45.1.1.1", "BR", 0, "05T11:55"),  # repeated
            _login("e6", "bob", "tablet", "45.1.1.2", "BR", 0, "05T11:56"),
            _login("e7", "bob", "tablet", "45.1.1.3", "BR", 0, "05T11:57"),
            _login("e8", "bob", "desk", "10.0.0.1", "AT", 0, "05T11:57"),  # the office
            _login("e9", "cy", "laptop", "90.1.1.1", "AT", 0, "05T12:30"),
        ],
    )
]
ASKS = [
    {
        # Ann was in Austria and in Brazil within the hour. From 45.0.0.0/8 came three failures before noon.
        "at": "2026-01-05T12:05:00Z",
        "inputs": {
            "Login.user": ["ann", "bob", "bob", "cy"],
            "Login.device": ["laptop", "tablet", "desk", "laptop"],
            "Login.network": ["81.0.0.0/8", "45.0.0.0/8", "81.0.0.0/8", "90.0.0.0/8"],
        },
        "outputs": [
            "Login.home_zone_hour",
            "Login.failed",
            "Login.countries",
            "Login.attacks",
            "Login.new_device",
            "Login.new_network",
            "Login.points",
            "Challenge.second_factor",
        ],
        "expected": {
            "Login.home_zone_hour": [4, 4, 4, 4],
            "Login.failed": [0, 3, 3, 0],
            "Login.countries": [["BR", "AT"], [], [], []],
            "Login.attacks": [0, 3, 0, 0],
            "Login.new_device": [False, True, True, True],
            "Login.new_network": [False, False, True, True],
            "Login.points": [3, 5, 3, 1],
            "Challenge.second_factor": [True, True, True, True],
        },
    },
    {
        # Half past twelve: Austria is out of ann's hour, her phone is new, her laptop known for four days.
        "at": "2026-01-05T12:30:00Z",
        "inputs": {
            "Login.user": ["ann", "ann"],
            "Login.device": ["phone", "laptop"],
            "Login.network": ["81.0.0.0/8", "81.0.0.0/8"],
        },
        "outputs": ["Login.countries", "Challenge.points", "Challenge.known_for_days", "Challenge.second_factor"],
        "expected": {
            "Login.countries": [["BR"], ["BR"]],
            "Challenge.points": [1, 0],
            "Challenge.known_for_days": [0, 4],
            "Challenge.second_factor": [False, False],
        },
    },
    {
        "at": None,
        "inputs": {"Login.user": ["ann", "bob"], "Login.device": ["laptop", "tablet"], "Login.network": ["x", "x"]},
        "outputs": ["Login.device_seen", "Challenge.seen", "Login.failed"],
        "expected": {
            "Login.device_seen": [datetime(2026, 1, 1, 8, tzinfo=UTC), None],
            "Challenge.seen": [datetime(2026, 1, 1, 8, tzinfo=UTC), datetime(1970, 1, 1, tzinfo=UTC)],
            "Login.failed": [0, 0],
        },
    },
]
