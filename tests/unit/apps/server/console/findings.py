"""The findings of a console in process: expectations, drift, explanations, accounts and the audit log.

Explanations are made by the in-process engine, distances of drift by the code that servers use, from profiles of a
table.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import orjson
import pandas as pd
import pyarrow as pa

from caraway.compute.expectations.counts import Counts
from caraway.compute.expectations.report import Status
from caraway.compute.profiles.columns import ColumnProfile
from caraway.compute.profiles.kinds import Kind
from caraway.compute.profiles.tables import profiled
from caraway.errors import UnknownEntityError
from caraway.graph.plan.model import GraphPlan
from caraway.offline.monitoring.quality.store import Sample, Total, Windows
from caraway.offline.queries.model import JSON_INPUT, OfflineQuery, OfflineRequest, QueryStatus, folder_of
from caraway.offline.why.running import NAME
from caraway.state.access import TokenRecord
from caraway.state.audit import Act, AuditRecord
from caraway.state.findings import FeatureCounts, Finding
from caraway.state.findings import Sample as SkewSample
from caraway.state.permissions import Caller, Grant
from caraway.state.profiles import Found, Reference
from caraway.testing import MockClient
from tests.unit.compute.query import garden

NOW = datetime(2026, 11, 25, 12, tzinfo=UTC)
# The newest windows of an expectation that have counts: a day in steps of five minutes.
WINDOWS = 288
SECRET_TOKEN = "caraway_made_for_a_test"


class Quality:
    """The counts of expectations: the first of each dataset is violated, others aren't."""

    def __init__(self, plan: GraphPlan) -> None:
        self.checks = {check.check_id: check for check in plan.checks}
        self.violated = True

    def windows(self, check_ids: Collection[str], hours: float) -> dict[str, Windows]:
        return {
            check_id: {
                (number, NOW - timedelta(minutes=5 * step)): Counts(10, 3 if number == 0 and step % 7 == 0 else 0)
                for number in range(len(self.checks[check_id].suite.expectations))
                for step in range(WINDOWS)
            }
            for check_id in check_ids
        }

    def totals(self, check_ids: Collection[str] | None = None) -> dict[tuple[str, int], Total]:
        return {
            (check_id, number): Total(
                counts=Counts(2_880, 0 if number else 126),
                status=Status.VIOLATED if self.violated and not number else Status.OK,
                changed_at=NOW,
                violated_at=None if number else NOW,
                notified_at=None,
            )
            for check_id in (self.checks if check_ids is None else check_ids)
            for number in range(len(self.checks[check_id].suite.expectations))
        }

    def samples(self, check_ids: Collection[str], limit: int) -> dict[str, list[Sample]]:
        found = {}
        for check_id in check_ids:
            columns = self.checks[check_id].schema.columns
            row = {"species": "secret oak", "mean": -3.5, "pot": 11}
            values = [row.get(column.name) for column in columns]
            numbers = range(len(self.checks[check_id].suite.expectations))
            found[check_id] = [Sample(number, NOW, None, msgspec.msgpack.encode(values)) for number in numbers]
        return found


class Drift:
    """The profiles of served features: the mean moisture has changed, species haven't."""

    def __init__(self, branch: str = "main") -> None:
        means = pa.table({"State.mean": [float(number % 50) for number in range(2_000)]})
        later = pa.table({"State.mean": [float(number % 50) + 25 for number in range(2_000)]})
        names = pa.table({"State.species": ["secret oak", "elm"] * 1_000})
        self.reference = profiled([means]).columns | profiled([names]).columns
        self.served = profiled([later]).columns | profiled([names]).columns
        self.findings = [
            Found(scope=branch, column="State.mean", distance="psi", value=1.25, drifted=True),
            Found(scope=branch, column="State.species", distance="psi", value=0.0, drifted=False),
        ]

    def found(self, branches: Collection[str], limit: int | None) -> list[Found]:
        found = [one for one in self.findings if one.scope in branches]
        return sorted(found, key=lambda one: not one.drifted)[:limit]

    def window(
        self, branch: str, since: datetime, until: datetime, features: Collection[str]
    ) -> dict[tuple[str, Kind], ColumnProfile]:
        return {(name, column.kind): column for name, column in self.served.items() if name in features}

    def references(self, branch: str, features: Collection[str]) -> dict[str, Reference]:
        return {
            name: Reference(profile=column, set_at=NOW, set_by="ada")
            for name, column in self.reference.items()
            if name in features
        }


class Skew:
    """The findings of the skew watch: some values of the mean moisture weren't indexed when they were served."""

    sample = SkewSample(
        branch="main",
        partition=0,
        offset=0,
        feature="State.mean",
        commit="a" * 32,
        finding=Finding.NOT_INDEXED,
        served_at=NOW,
        at=NOW,
        query="1",
        row=0,
        served="0.25",
        recomputed="<0.5>",
    )

    def __init__(self) -> None:
        counts = {Finding.SAME: 890, Finding.NOT_INDEXED: 110, Finding.LATE_DATA: 7}
        late = {Finding.SAME: 10, Finding.LATE_DATA: 10}
        self.found = [
            FeatureCounts(feature="State.mean", commit="a" * 32, counts=counts),
            FeatureCounts(feature="State.mean", commit="b" * 32, counts={Finding.UNKNOWN: 5}),
            FeatureCounts(feature="State.species", commit="a" * 32, counts=late),
        ]

    def counts(self, branch: str, since: datetime) -> list[FeatureCounts]:
        return self.found if branch == "main" else []

    def samples(self, _branch: str, _since: datetime, _features: Collection[str], limit: int) -> list[SkewSample]:
        return [self.sample] if limit else []


class Profiles:
    """The profiles of datasets: their numbers have changed since a day before, and nothing else has."""

    def __init__(self) -> None:
        numbers = [float(number % 50) for number in range(2_000)]
        texts = ["secret oak", "elm"] * 1_000
        before = profiled([pa.table({"": numbers})]).columns[""]
        now = profiled([pa.table({"": [number + 25 for number in numbers]})]).columns[""]
        same = profiled([pa.table({"": texts})]).columns[""]
        self.drifted = True
        self.of_kind = {Kind.NUMBER: (before, now), Kind.CATEGORY: (same, same)}

    def newest(self, _check_id: str) -> datetime:
        return NOW

    def window(
        self, _check_id: str, since: datetime, until: datetime, names: Collection[str]
    ) -> dict[tuple[str, Kind], ColumnProfile]:
        kinds = {name: Kind.CATEGORY if name == "species" else Kind.NUMBER for name in names}
        is_now = since <= NOW < until
        return {(name, kind): self.of_kind[kind][is_now] for name, kind in kinds.items()}

    def references(self, _check_id: str, _names: Collection[str]) -> dict[str, Reference]:
        return {}

    def found(self, check_ids: Collection[str]) -> list[Found]:
        distances = ("moisture", "mean", 1.75, self.drifted), ("species", "psi", 0.0, False)
        return [
            Found(scope=check_id, column=field, distance=distance, value=value, drifted=drifted)
            for check_id in check_ids
            for field, distance, value, drifted in distances
        ]


class Explanations:
    """Offline queries, objects, and the process that explains: the in-process engine with some readings of pots."""

    url = "memory://"

    def __init__(self) -> None:
        self.queries: dict[str, OfflineQuery] = {}
        self.objects: dict[str, bytes] = {}
        self.is_busy = False
        self._client: MockClient | None = None

    def write(self, name: str, content: bytes) -> None:
        self.objects[name] = content

    def read(self, name: str) -> bytes:
        return self.objects[name]

    def add(
        self, query_id: str, request: OfflineRequest, *, branch: str, commit: str, account: str, workflow: str
    ) -> None:
        self.queries[query_id] = OfflineQuery(
            id=query_id,
            branch=branch,
            commit=commit,
            account=account,
            workflow=workflow,
            request=request,
            cuts=None,
            status=QueryStatus.WAITING,
            cancelled=False,
            rows=None,
            parts=(),
            attempts=0,
            error=None,
            asked_at=NOW,
            ended_at=None,
        )

    def get(self, query_id: str) -> OfflineQuery:
        if query_id not in self.queries:
            raise UnknownEntityError(f"there is no offline query {query_id!r}")
        return self.queries[query_id]

    def of_branch(self, branch: str) -> list[OfflineQuery]:
        return [query for query in self.queries.values() if query.branch == branch]

    def unfinished(self, account: str) -> int:
        return sum(query.account == account and not query.status.is_over for query in self.queries.values())

    def cancel(self, query_id: str) -> None:
        self.queries[query_id] = msgspec.structs.replace(self.get(query_id), cancelled=True)

    def end(self, query_id: str) -> None:
        self.queries[query_id] = msgspec.structs.replace(self.get(query_id), status=QueryStatus.SUCCEEDED)

    def wake(self) -> None:
        for query in self.queries.values():
            if not self.is_busy and query.status is QueryStatus.WAITING:
                self._explain(query)

    def _explain(self, query: OfflineQuery) -> None:
        asked = query.request.why
        assert asked is not None
        folder = folder_of(query.id)
        inputs = orjson.loads(self.objects[f"{folder}/{JSON_INPUT}"])
        found = self._garden().why(asked.feature, inputs, NOW)
        self.objects[f"{folder}/{NAME}"] = msgspec.json.encode(msgspec.structs.replace(found, commit=query.commit))
        self.end(query.id)

    def _garden(self) -> MockClient:
        if self._client is None:
            client = MockClient()
            client.commit("the garden", garden.DATASETS, garden.FEATURESETS)
            readings = {"pot": [1, 1, 1], "moisture": [0.25, 0.5, 0.75]}
            times = [NOW - timedelta(minutes=minutes) for minutes in (90, 30, 10)]
            client.log("garden", "readings", pd.DataFrame({**readings, "at": times}))
            self._client = client
        return self._client


class Accounts:
    """Tokens and roles, as `caraway.state.access.Access` has them."""

    def __init__(self, roles: Mapping[str, tuple[Grant, ...]]) -> None:
        self.granted = roles
        self.made: list[TokenRecord] = [_token(f"{number:012x}", f"account{number}") for number in range(120)]
        self.by: list[str] = []
        self.ended: list[str] = []

    def begin_session(self, lasting: timedelta, *, token_digest: bytes) -> str:
        del lasting, token_digest
        return f"session-of-{self.by[-1]}"

    def end_session(self, session: str) -> None:
        self.ended.append(session)

    def acting_for(self, caller: Caller) -> "Accounts":
        self.by.append(caller.account)
        return self

    def tokens(self, *, newest: int, skip: int) -> Sequence[TokenRecord]:
        return list(reversed(self.made))[skip : skip + newest]

    def roles(self) -> Mapping[str, tuple[Grant, ...]]:
        return self.granted

    def create_token(
        self, account: str, *, roles_given: Sequence[str], kind: str, note: str, lasting: timedelta | None
    ) -> tuple[str, str]:
        for role in roles_given:
            if role not in self.granted:
                raise UnknownEntityError(f"there is no role {role!r}")
        token_id = f"{len(self.made):012x}"
        self.made.append(_token(token_id, account, kind=kind, roles=tuple(roles_given), note=note))
        return token_id, SECRET_TOKEN

    def revoke_token(self, token_id: str) -> None:
        place = next((place for place, token in enumerate(self.made) if token.id == token_id), None)
        if place is None:
            raise UnknownEntityError(f"there is no token {token_id!r}")
        self.made[place] = replace(self.made[place], revoked_at=NOW)


class Audit:
    """The audit log, with as many lines of earlier days as it is told."""

    def __init__(self, lines: int = 120) -> None:
        self.recorded: list[str] = []
        self.lines = [
            AuditRecord(
                number=number,
                at=NOW,
                act=Act(account="ada", token_id="t", action="sync", branch="main", detail=f"<line {number}>"),
                outcome="done",
                times=1,
            )
            for number in range(1, lines + 1)
        ]

    def begin(self, act: Act) -> int:
        self.recorded.append(act.action)
        return len(self.recorded)

    def end(self, number: int, outcome: str) -> None:
        """The tests look at what began."""

    def refusals(self, counts: Mapping[Any, int]) -> None:
        """The tests look at what began."""

    def newest(self, limit: int, *, before: int | None = None) -> Sequence[AuditRecord]:
        found = [line for line in reversed(self.lines) if before is None or line.number < before]
        return found[:limit]


def _token(token_id: str, account: str, **more: Any) -> TokenRecord:
    values: dict[str, Any] = {"kind": "user", "roles": ("admin",), "note": "<purpose>", "created_at": NOW}
    return TokenRecord(**{"id": token_id, "account": account, "expires_at": None, "revoked_at": None, **values, **more})
