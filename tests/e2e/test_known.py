"""Values as known at a time are those that the server knew then: rows are logged in batches, and asked for between."""

import os
import random
import signal
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import httpx2
import pandas as pd
import pytest

from caraway.client import Client
from tests.e2e.conftest import World
from tests.e2e.shopping import (
    DESCRIBED,
    EPOCH,
    FEATURES,
    SOURCES,
    WISHES,
    Batch,
    batch,
    definitions,
    instant,
    questions,
)
from tests.tls import TLS
from tests.unit.oracle.plain import Logged, Row
from tests.unit.oracle.semantics import Oracle

NAMES = [feature.name for feature in FEATURES]
Question = tuple[Row, int]


def now_us() -> int:
    return (datetime.now(UTC) - EPOCH) // (datetime.resolution)


def logged(client: Client, webhook: str, some: Batch) -> int:
    """Log a batch, and return a time before the next one."""
    client.log(webhook, SOURCES[some.source], some.frame())
    asked_us = now_us()
    # The next batch is accepted at a later microsecond.
    while now_us() == asked_us:
        pass
    return asked_us


def answers(client: Client, known: Any, asked: Sequence[Question], execution: str) -> list[Row]:
    frame = pd.DataFrame([{f"Known.{name}": value for name, value in row.items()} for row, _ in asked])
    frame["t"] = [instant(at) for _, at in asked]
    given = [known.user, known.item, known.city, known.n]
    found = client.training_set(given, [known], "t", frame, as_known=True, execution=execution, progress=False)
    table = found.to_pandas()
    return [{name: table[f"Known.{name}"].iloc[row] for name in NAMES} for row in range(len(asked))]


def expected(rows: Sequence[Logged], asked: Sequence[Question]) -> list[Row]:
    """Return what the oracle knows of the rows that had been accepted by the time of each question."""
    oracles: dict[int, Oracle] = {}
    found = []
    for given, at in asked:
        if at not in oracles:
            oracles[at] = Oracle(DESCRIBED, rows).as_known_at(at)
        found.append(oracles[at].features(FEATURES, given, at))
    return found


def differences(asked: Sequence[Question], found: Sequence[Row], wanted: Sequence[Row]) -> list[str]:
    return [
        f"{name} of {given} at {instant(at)}: {row[name]!r}, not {right[name]!r}"
        for (given, at), row, right in zip(asked, found, wanted, strict=True)
        for name in NAMES
        if row[name] != right[name]
    ]


LONG = [
    pytest.mark.full(reason="minutes; the other cases check the same operators with fewer batches"),
    pytest.mark.timeout(1800),
]


@dataclass
class Shop:
    """A branch, the featureset asked for, what was logged and erased, and what was asked with which answers."""

    client: Client
    known: Any
    seed: int
    executions: Sequence[str]
    rows: list[Logged] = field(default_factory=list)
    # Users whose rows of `Wishes` are erased.
    hidden: set[str] = field(default_factory=set)

    def check(self, asked: Sequence[Question]) -> list[Row]:
        """Compare the answers of all executions with those of the oracle, and return them."""
        right = [
            row | ({wish.name: wish.default for wish in WISHES} if given["user"] in self.hidden else {})
            for (given, _), row in zip(asked, expected(self.rows, asked), strict=True)
        ]
        for execution in self.executions:
            wrong = differences(asked, answers(self.client, self.known, asked, execution), right)
            shown = "\n".join(wrong[:20])
            counted = f"seed {self.seed}, {execution}: {len(wrong)} of {len(asked) * len(NAMES)} values differ"
            assert not wrong, f"{counted}:\n{shown}"
        return right

    def served(self, asked: Sequence[Question]) -> list[Row]:
        """Return what the server answers without being asked for what was known."""
        frame = pd.DataFrame([{f"Known.{name}": value for name, value in row.items()} for row, _ in asked])
        frame["t"] = [instant(at) for _, at in asked]
        given = [self.known.user, self.known.item, self.known.city, self.known.n]
        table = self.client.training_set(given, [self.known], "t", frame, progress=False).to_pandas()
        return [{name: table[f"Known.{name}"].iloc[row] for name in NAMES} for row in range(len(asked))]


@pytest.mark.parametrize(
    ("batches", "committed", "kills", "executions"),
    [
        pytest.param(40, "first", False, ["process"], id="live"),
        pytest.param(240, "first", True, ["process", "spark"], id="live, with a kill", marks=LONG),
        pytest.param(240, "between", True, ["process", "spark"], id="backfilled, with a kill", marks=LONG),
    ],
)
def test_what_was_known_is_what_the_oracle_and_the_server_knew_then(
    world: World, batches: int, committed: str, executions: Sequence[str], *, kills: bool
) -> None:
    seed = random.randrange(1 << 30)
    chosen, branch = random.Random(seed), f"known-{committed}-{batches}"
    sources, derived, known = definitions(branch, seed)
    asked_us: list[int] = []
    with closing(Client(world.url, branch=branch)) as client:
        shop = Shop(client, known, seed, executions)
        client.init_branch(branch)
        if committed == "first":
            client.commit("known", [*sources, *derived], [known])
            client.wait()
        else:
            client.commit("known", sources, [])

        def log(count: int) -> None:
            for _ in range(count):
                some = batch(chosen, now_us())
                asked_us.append(logged(client, branch, some))
                shop.rows.extend(some.rows)

        log(batches // 2)
        if committed == "between":
            client.commit("known", [*sources, *derived], [known])
        if kills:
            pid = world.part("engine").pid
            assert pid is not None
            os.kill(pid, signal.SIGKILL)
        log(batches - batches // 2)
        client.wait()
        # The server knows all now; it is asked as of now, and its answers are compared with those that are known later.
        asked_us.append(now_us())
        at_once = questions(chosen, asked_us[-1:], 8)
        served = shop.served(at_once)
        # The long cases have more than 20,000 values each.
        asked = [*questions(chosen, asked_us[:-1], 6 if kills else 8), *at_once]
        found = shop.check(asked)
        assert found[-len(at_once) :] == served
        # Each explanation is a process of its own.
        for name in NAMES if kills else chosen.sample(NAMES, 1):
            (given_row, at), row = chosen.choice(list(zip(asked, found, strict=True)))
            inputs = {f"Known.{key}": value for key, value in given_row.items()}
            why = client.why(f"Known.{name}", inputs, instant(at), as_known=True)
            assert (why.value, why.check.same) == (row[name], True), why
        # An erased row was never known, whenever it is asked for; what was computed from the same rows stays.
        wishing = {given["user"] for (given, _), row in zip(asked, found, strict=True) if row["wish_city"]}
        erased, *others = sorted(wishing)
        client.erase("Wishes", [{"user": erased}])
        shop.hidden.add(erased)
        assert found != shop.check(asked)
        if kills:
            erase_downstream(world, shop, others[0])
            shop.check(asked)


def erase_downstream(world: World, shop: Shop, user: str) -> None:
    """Erase a user's rows of `Users`, and wait until all is served that was computed from them."""
    shop.client.erase("Users", [{"user": user}], downstream=True)
    headers = world.headers | {"X-Caraway-Branch": shop.client.branch()}

    def waits_for() -> set[str]:
        answer = httpx2.get(f"{world.url}/api/v1/dataset/Users/erasures", headers=headers, verify=TLS).json()
        return {place for erasure in answer["erasures"] for place in erasure["waits_for"]}

    world.wait_for(lambda: waits_for().isdisjoint({"archive", "topic", "recomputation", "derived data"}), 600)
    shop.client.wait()
    shop.rows = [row for row in shop.rows if row.source != "Users" or row.row["user"] != user]
