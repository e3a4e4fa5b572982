"""Training sets at the desk: what goes to the server, what comes back, and how long one waits."""

import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from caraway.client import Client
from caraway.client.progress import Silent
from caraway.client.training import TrainingSet, stream_of, table_in, wait_for
from caraway.errors import InvalidInputError, NotServedError, OfflineQueryError, RemoteError, UnavailableError
from caraway.testing import MockClient
from tests.unit.client.stub import running

PARTS = [
    pa.table(
        {
            "S.n": [1, None],
            "S.x": [0.5, None],
            "label": [True, False],
            "_history": pa.array(["D begins later", None]),
            "_error": pa.array([None, "row 1: no n"]),
        }
    ),
    pa.table(
        {
            "S.n": [3],
            "S.x": [1.5],
            "label": [True],
            "_history": pa.array([None], pa.string()),
            "_error": pa.array([None], pa.string()),
        }
    ),
]
DONE = {"request_id": "r", "rows_done": 3, "rows_failed": 1, "rows_short": 1, "parts": 2}


def status(state: str, done: int = 0, error: str | None = None) -> dict[str, Any]:
    return {"request_id": "r", "status": state, "rows": 3, "rows_done": done, "error": error, "parts": 0}


def test_rows_that_mostly_see_their_own_event_are_warned_of() -> None:
    TrainingSet({**DONE, "own_events": 0.9}, PARTS.__getitem__)
    with pytest.warns(UserWarning, match="93% of the rows have an event at their own time.*before=True"):
        found = TrainingSet({**DONE, "own_events": 0.93}, PARTS.__getitem__)
    assert found.own_events == 0.93


def test_rows_that_failed_or_lack_history_are_warned_of_once_when_they_are_read() -> None:
    found = TrainingSet(DONE, PARTS.__getitem__)
    with pytest.warns(UserWarning, match="rows") as told:
        found.to_pandas()
    assert {warning.filename for warning in told} == {__file__}
    failed, short = (str(warning.message) for warning in told)
    assert failed.startswith("1 of 3 rows failed, so that their features are null. The first reason: row 1: no n. err")
    assert failed.endswith("errors() returns these rows with their reasons")
    assert short.startswith("1 of 3 rows ask for more history than there is. The first reason: D begins later. short_h")
    assert short.endswith("short_history() returns these rows with their reasons")
    with warnings.catch_warnings(action="error"):
        assert (len(found.to_polars()), len(list(found.batches()))) == (3, 2)
    # Batches are read part by part, so the warnings come with the parts that have such rows.
    right, wrong = PARTS[1], PARTS[0]
    batches = TrainingSet(DONE, [right, wrong].__getitem__).batches()
    assert next(batches)["S.n"].to_pylist() == [3]
    with pytest.warns(UserWarning, match="1 of 3 rows failed") as told:
        next(batches)
    assert {warning.filename for warning in told} == {__file__}


@pytest.mark.filterwarnings("error")
def test_somebody_who_reads_the_reasons_isnt_warned_of_them() -> None:
    found = TrainingSet(DONE, PARTS.__getitem__)
    assert len(list(found.parts())) == 2
    assert (len(found.errors()), len(found.short_history())) == (1, 1)
    assert len(found.to_pandas()) == 3
    right = DONE | {"rows_failed": 0, "rows_short": 0, "parts": 1}
    assert len(TrainingSet(right, [PARTS[1]].__getitem__).to_pandas()) == 1


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (pd.to_datetime(["2024-01-01"]), True),
        (pd.to_datetime(["2024-01-01"], utc=True), False),
        (["2024-01-01T00:00:00"], True),
        (["2024-01-01T00:00:00Z"], False),
        (["2024-01-01"], False),
        ([1_704_067_200], False),
    ],
)
def test_rows_whose_times_have_no_zone_are_warned_of(at: Any, told: bool) -> None:
    label = pd.to_datetime(["2024-01-01"])
    frame = pd.DataFrame({"S.n": [1], "at": at, "label": label})
    done = DONE | {"status": "succeeded", "rows": 1, "error": None}
    for rows in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame)):
        with running() as stub, Client(stub.url) as client:
            stub.answers = [(200, {"request_id": "r"}), (200, done)]
            with warnings.catch_warnings(record=True, action="always") as shown:
                client.training_set(["S.n"], ["S.x"], "at", rows, progress=False)
        text = "times of at have no zone and are taken as UTC; write them as 2026-01-31T12:00:00Z"
        assert [str(warning.message) for warning in shown] == ([text] if told else [])
        assert {warning.filename for warning in shown} <= {__file__}


def test_the_rows_come_in_every_form() -> None:
    found = TrainingSet(DONE, PARTS.__getitem__)
    assert (len(found), found.failed) == (3, 1)
    assert repr(found) == "TrainingSet(3 rows, 1 failed, 1 with less history than they ask for; to_pandas() has them)"
    assert found.to_arrow().column_names == ["S.n", "S.x", "label"]
    frame = found.to_pandas()
    assert frame["S.n"].dtype == pd.Int64Dtype()
    assert frame["S.n"].tolist() == [1, pd.NA, 3]
    assert found.to_polars()["S.x"].to_list() == [0.5, None, 1.5]
    errors = found.errors()
    assert errors.index.tolist() == [1]
    assert errors["_error"].tolist() == ["row 1: no n"]
    short = found.short_history()
    assert (short.index.tolist(), short["_history"].tolist(), found.short) == ([0], ["D begins later"], 1)
    assert "1 failed, 1 with less history than they ask for" in found._repr_html_()


def test_a_mock_client_knows_no_times_of_ingestion() -> None:
    with pytest.raises(InvalidInputError, match="as_known"):
        MockClient().training_set(["S.n"], ["S.x"], "t", pd.DataFrame(), as_known=True)
    with pytest.raises(InvalidInputError, match="as_known"):
        MockClient().query_offline(["S.n"], ["S.x"], "t", pd.DataFrame(), as_known=True)


def test_batches_need_one_part_at_a_time() -> None:
    fetched: list[int] = []

    def read(number: int) -> pa.Table:
        fetched.append(number)
        return PARTS[number]

    batches = TrainingSet(DONE, read).batches(1)
    assert next(batches)["S.n"].to_pylist() == [1]
    assert fetched == [0]
    assert [batch["S.n"].to_pylist() for batch in batches] == [[None], [3]]
    assert fetched == [0, 1]
    with pytest.raises(InvalidInputError, match="rows"):
        next(TrainingSet(DONE, read).batches(0))


def test_frames_of_pandas_polars_and_arrow_are_sent_alike() -> None:
    columns = {"S.n": [1, 2], "S.s": ["a", None], "t": pd.to_datetime(["2024-01-01", "2024-01-02"], utc=True)}
    frame = pd.DataFrame(columns)
    sent = [table_in(stream_of(rows)) for rows in (frame, pl.from_pandas(frame), pa.Table.from_pandas(frame))]
    assert all(table.select(["S.n", "S.s"]).to_pylist() == sent[0].select(["S.n", "S.s"]).to_pylist() for table in sent)
    assert [table["t"].to_pylist() for table in sent] == [sent[0]["t"].to_pylist()] * 3
    with pytest.raises(InvalidInputError, match="list"):
        stream_of([1, 2])
    with pytest.raises(InvalidInputError, match="can't be sent"):
        stream_of(pd.DataFrame({"a": [np.array([1]), "x"]}))


def test_the_wait_ends_when_the_query_does() -> None:
    answers: Iterator[dict[str, Any]] = iter([status("waiting"), status("running", 1), status("succeeded", 3)])
    slept: list[float] = []
    found = wait_for("r", lambda: next(answers), timeout=None, progress=Silent(), sleep=slept.append)
    assert found["rows_done"] == 3
    assert len(slept) == 2


@pytest.mark.parametrize(
    ("state", "error", "told"), [("failed", "no such file", "no such file"), ("cancelled", None, "cancelled")]
)
def test_a_query_that_fails_raises_its_reason(state: str, error: str | None, told: str) -> None:
    with pytest.raises(OfflineQueryError, match=told):
        wait_for("r", lambda: status(state, error=error), timeout=None, progress=Silent())


def test_a_query_that_takes_too_long_goes_on_without_the_caller() -> None:
    times = iter([0.0, 1.0, 1.0, 5.0, 5.0])
    with pytest.raises(NotServedError, match="running after 4 s, with 2 of 3 rows"):
        wait_for(
            "r",
            lambda: status("running", 2),
            timeout=4,
            progress=Silent(),
            clock=lambda: next(times),
            sleep=lambda _: None,
        )


class Clock:
    """A time that passes only while somebody sleeps."""

    now = 0.0

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


def test_the_wait_outlives_a_restart_of_the_server() -> None:
    refused = RemoteError("the server is starting", status=503)
    events: Iterator[dict[str, Any] | Exception] = iter(
        [status("running", 1), *[UnavailableError("no answer")] * 30, refused, refused, status("succeeded", 3)]
    )
    clock = Clock()

    def ask() -> dict[str, Any]:
        event = next(events)
        if isinstance(event, Exception):
            raise event
        return event

    assert wait_for("r", ask, timeout=None, progress=Silent(), clock=clock, sleep=clock.sleep)["rows_done"] == 3
    assert clock.now > 20


@pytest.mark.parametrize(("timeout", "given_up_s"), [(None, 600.0), (9.0, 9.0)])
def test_a_server_that_stays_down_is_told_with_the_id_of_the_query(timeout: float | None, given_up_s: float) -> None:
    clock = Clock()

    def ask() -> dict[str, Any]:
        raise UnavailableError("no answer from the server")

    with pytest.raises(UnavailableError, match=r"offline query r: no answer.*offline_result\('r'\)"):
        wait_for("r", ask, timeout=timeout, progress=Silent(), clock=clock, sleep=clock.sleep)
    assert given_up_s - 1 <= clock.now <= given_up_s


def test_a_refusal_isnt_asked_again() -> None:
    def ask() -> dict[str, Any]:
        raise RemoteError("no such query", status=404)

    with pytest.raises(RemoteError, match="no such query"):
        wait_for("r", ask, timeout=None, progress=Silent(), sleep=lambda _: pytest.fail("the client asks again"))


def test_a_training_set_has_a_profile_that_is_computed_once() -> None:
    reads: list[int] = []

    def read(number: int) -> pa.Table:
        reads.append(number)
        return PARTS[number]

    found = TrainingSet(DONE, read)
    profile = found.profile()
    assert found.profile() is profile
    assert reads == [0, 1]
    assert list(profile.columns) == ["S.n", "S.x", "label"]
    assert (profile.rows, profile.columns["S.n"].nulls, profile.columns["S.n"].mean) == (3, 1, 2.0)
    assert list(found.profile(keys=["S.n"]).columns) == ["S.x", "label"]
