"""Insurance claims: is a claim paid at once, or does an assessor look at it?

A claim lists items; how often a policy has claimed each kind of item before is what tells fraud from bad luck.
"""

from datetime import UTC, datetime
from typing import Dict, List, Optional

from caraway.connectors import CSV, S3, MySQL, Webhook, source
from caraway.datasets import Count, Dataset, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, struct
from caraway.expr import col, now, var
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "claims@insurance.example"

portal = Webhook(name="claims_portal")
policies = MySQL.get("policies")  # registered on the server, with its password
old_policies = S3(name="old_policies").bucket(
    "insurance", path="policies/%Y-%m/*.csv.gz", format=CSV(delimiter=";"), spread="1d"
)


@struct
class Item:
    """One thing that was damaged or lost."""

    kind: str
    cents: int
    bought_in: Optional[int]


@source(
    old_policies,
    disorder="30d",
    cdc="append",
    until=datetime(2025, 7, 1, tzinfo=UTC),
    bounded=True,
    idleness="1h",
    env="production",
)
@source(
    policies.table("events", cursor="id"),
    disorder="7d",
    cdc="append",
    since=datetime(2025, 7, 1, tzinfo=UTC),
    env="production",
)
@source(portal.endpoint("policy_events"), disorder="7d", cdc="append", env="~production")
@dataset
class PolicyEvents:
    policy: int
    event: str
    happened_at: datetime


@source(portal.endpoint("claims"), disorder="7d", cdc="append")
@dataset
class Claims:
    claim: str
    policy: int
    items: List[Item]
    report: str  # JSON, from an app
    filed_at: datetime


@dataset(index=True)
class PolicyStarts:
    """The first that was heard of a policy."""

    policy: int = field(key=True)
    event: str
    happened_at: datetime

    @pipeline
    @inputs(PolicyEvents)
    def start(cls, events: Dataset):
        return events.groupby("policy").first()


@dataset(index=True)
class ClaimsByKind:
    policy: int = field(key=True)
    kind: str = field(key=True)
    items_1y: int
    cents_1y: int
    filed_at: datetime

    @pipeline
    @inputs(Claims)
    def by_kind(cls, claims: Dataset):
        year = Continuous("1y")
        return (
            claims.select("policy", "items")
            .explode("items")
            .dropnull("items")
            .assign(
                kind=col("items").struct.get("kind").str.lower().astype(str),
                cents=col("items").struct.get("cents").astype(int),
            )
            .groupby("policy", "kind")
            .aggregate(items_1y=Count(window=year), cents_1y=Sum(of="cents", window=year))
        )


@dataset(index=True)
class ClaimReports:
    claim: str = field(key=True)
    policy: int
    items: List[Item]
    city: Optional[str]
    damages: Dict[str, int]
    filed_at: datetime

    @pipeline
    @inputs(Claims)
    def read(cls, claims: Dataset):
        damages = col("report").str.json_extract("$.damages").fillnull("{}").str.parse(Dict[str, int])
        return (
            claims.assign(
                city=col("report").str.json_extract("$.place.city").astype(Optional[str]),
                damages=damages.astype(Dict[str, int]),
            )
            .drop("report")
            .groupby("claim")
            .latest()
        )


@featureset
class Claim:
    claim: str
    policy: Optional[int] = F(ClaimReports.policy)
    items: List[Item] = F(ClaimReports.items, default=[])
    city: str = F(ClaimReports.city, default="?")
    damages: Dict[str, int] = F(ClaimReports.damages, default={})
    glass: int = F(col("damages").dict.get("glass", 0))
    cents: int = F(col("items").list.map("item", var("item").struct.get("cents")).list.sum())
    dearest: Optional[int] = F(col("items").list.map("item", var("item").struct.get("cents")).list.max())


@featureset
class Holder:
    """The policy of the claim, and one kind of item."""

    policy: Optional[int] = F(Claim.policy)
    kind: str
    items_1y: int = F(ClaimsByKind.items_1y, default=0)
    cents_1y: int = F(ClaimsByKind.cents_1y, default=0)
    started_at: Optional[datetime] = F(PolicyStarts.happened_at)
    days: Optional[int] = F(now().dt.since(col("started_at"), unit="day"))


ENV = "test"
LOGS = [
    ("claims_portal", "policy_events", [
        {"policy": 7, "event": "signed", "happened_at": "2025-12-20"},
        {"policy": 7, "event": "moved", "happened_at": "2026-01-02"},
    ]),
    ("claims_portal", "claims", [
        {"claim": "a", "policy": 7, "filed_at": "2026-01-03", "report": "no json",
         "items": [{"kind": "Phone", "cents": 90000, "bought_in": 2025}, {"kind": "case", "cents": 2000}]},
        {"claim": "b", "policy": 7, "filed_at": "2026-01-09", "items": [{"kind": "phone", "cents": 70000}],
         "report": '{"place": {"city": "Ulm"}, "damages": {"glass": 2, "paint": 1}}'},
        {"claim": "c", "policy": 8, "filed_at": "2026-01-09", "items": [], "report": "{}"},
    ]),
]  # fmt: skip
ASKS = [
    {
        "at": "2026-01-10T00:00:00Z",
        "inputs": {"Claim.claim": ["a", "b", "c", "d"], "Holder.kind": ["phone", "case", "phone", "phone"]},
        "outputs": ["Claim.city", "Claim.glass", "Claim.cents", "Claim.dearest", "Holder.items_1y", "Holder.cents_1y",
                    "Holder.days"],
        "expected": {
            "Claim.city": ["?", "Ulm", "?", "?"],
            "Claim.glass": [0, 2, 0, 0],
            "Claim.cents": [92000, 70000, 0, 0],
            "Claim.dearest": [90000, 70000, None, None],
            "Holder.items_1y": [2, 1, 0, 0],
            "Holder.cents_1y": [160000, 2000, 0, 0],
            "Holder.days": [21, 21, None, None],
        },
    },
    {
        "at": "2026-01-04T00:00:00Z",
        "inputs": {"Claim.claim": ["a"], "Holder.kind": ["phone"]},
        "outputs": ["Claim.items", "Holder.cents_1y"],
        "expected": {
            "Claim.items": [[{"kind": "Phone", "cents": 90000, "bought_in": 2025},
                             {"kind": "case", "cents": 2000, "bought_in": None}]],
            "Holder.cents_1y": [90000],
        },
    },
]  # fmt: skip
