"""Dead letters by reason: counted in the list, and replayed together."""

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from caraway.apps.cli import app
from tests.unit.client.stub import Stub, running

runner = CliRunner()
WIDE = {"COLUMNS": "200"}


@pytest.fixture
def stub() -> Iterator[Stub]:
    with running() as server:
        yield server


def letter(number: int, reason: str, replayed_at: str | None = None) -> dict[str, object]:
    return {
        "id": f"0-{number}", "at": "2026-01-31T12:00:00+00:00", "dataset": "Orders", "from": "shop/orders",
        "replayable": True, "replayed_at": replayed_at, "reason": reason,
    }  # fmt: skip


def page(*letters: dict[str, object], following: str | None = None) -> tuple[int, object]:
    return 200, {"dead_letters": letters, "next": following}


PAGES = [
    page(letter(9, "amount is text 'old', float is expected"), letter(8, "user is missing"), following="0-8"),
    page(letter(7, "amount is text 'new', float is expected", "2026-02-01"), following=None),
]


def test_equal_reasons_are_counted_over_all_pages(stub: Stub) -> None:
    stub.answers = [*PAGES]
    told = runner.invoke(app, ["dead-letters", "list", "--dataset", "Orders", "--url", stub.url], env=WIDE)
    assert [line.split()[:3] for line in told.stdout.splitlines()[1:]] == [["2", "1", "0-9"], ["1", "1", "0-8"]]
    assert [(asked.params["dataset"], asked.params.get("before")) for asked in stub.asked] == [
        ("Orders", None), ("Orders", "0-8"),
    ]  # fmt: skip


def test_single_ones_are_listed_on_request(stub: Stub) -> None:
    stub.answers = [PAGES[0]]
    told = runner.invoke(app, ["dead-letters", "list", "--limit", "2", "--url", stub.url], env=WIDE)
    assert [line.split()[0] for line in told.stdout.splitlines()[1:]] == ["0-9", "0-8"]
    assert stub.last.params["limit"] == "2"


def test_those_of_a_reason_are_replayed_together(stub: Stub) -> None:
    replayed = {"id": "0-9", "dataset": "Orders", "already": False}
    row = {"user": 1, "amount": "old"}
    stub.answers = [
        *PAGES[:1], page(letter(6, "amount is text 'x', float is expected"), following=None),
        (200, {"row": row}), (200, replayed), (200, {"row": row}),
        (400, {"err_msg": "dead letter 0-6 still doesn't fit Orders: user is missing"}),
    ]  # fmt: skip
    arguments = ["dead-letters", "replay", "--reason", "amount is text", "--set", "amount=12.5", "--url", stub.url]
    told = runner.invoke(app, arguments)
    assert told.exit_code == 1
    assert told.stdout == "1 of 2 dead letters with this reason are replayed\n"
    assert told.stderr.endswith("1 not: dead letter … still doesn't fit Orders: user is missing\n")
    sent = [(asked.path.rpartition("dead_letters/")[2], asked.json) for asked in stub.asked if asked.method == "POST"]
    assert sent == [(f"0-{number}/replay", {"row": {"user": 1, "amount": 12.5}}) for number in (9, 6)]


@pytest.mark.parametrize(("given", "sent"), [("1e2", 100.0), (str(10**20), str(10**20)), ("Infinity", "inf")])
def test_a_column_is_repaired_with_any_number(stub: Stub, given: str, sent: object) -> None:
    stub.answers = [(200, {"row": {"amount": "old"}}), (200, {"id": "0-9", "dataset": "Orders", "already": False})]
    told = runner.invoke(app, ["dead-letters", "replay", "0-9", "--set", f"amount={given}", "--url", stub.url])
    assert (told.exit_code, stub.last.json) == (0, {"row": {"amount": sent}})


def test_what_was_replayed_before_is_not_sent_again(stub: Stub) -> None:
    stub.answers = [*PAGES[1:]]
    told = runner.invoke(app, ["dead-letters", "replay", "--reason", "amount", "--json", "--url", stub.url])
    assert (told.exit_code, json.loads(told.stdout)) == (1, {"replays": [], "faults": {}})


@pytest.mark.parametrize("arguments", [[], ["0-1", "--reason", "amount"]])
def test_ids_or_a_reason_are_needed(arguments: list[str]) -> None:
    told = runner.invoke(app, ["dead-letters", "replay", *arguments])
    assert "give either ids or --reason TEXT" in told.stderr
