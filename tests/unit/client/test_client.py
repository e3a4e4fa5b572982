# Checkers see classes where decorators make datasets and featuresets, and wrong arguments are tested here.
# mypy: disable-error-code="arg-type, list-item, type-arg, valid-type"
import json
import warnings
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any, Optional

import httpx2
import numpy as np
import orjson
import pandas as pd
import pytest

from caraway.client import Client
from caraway.client.frames import columns_of, instants, zone_remarks
from caraway.client.http import Connection
from caraway.connectors import Webhook, source
from caraway.datasets import Dataset, dataset, field
from caraway.dtypes import Decimal, Window
from caraway.errors import (
    CommitError,
    DefinitionError,
    DefinitionTypeError,
    InvalidInputError,
    RemoteError,
    UnavailableError,
)
from caraway.featuresets import featureset
from caraway.graph.wire.graphs import decode_commit
from caraway.lib import meta

__owner__ = "module@example.com"


@source(Webhook(name="web").endpoint("pots"), disorder="1d", cdc="upsert", env="prod")
@dataset(index=True)
class Pots:
    pot: int = field(key=True)
    wet: float
    cost: Decimal[2]
    at: datetime


@featureset
class Pot:
    pot: int
    wet: Optional[float]
    seen: datetime
    spans: list[Window]


class Server:
    """Returns prepared answers, and keeps the requests."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.requests: list[httpx2.Request] = []
        self.time = 0.0

    def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        status, body, *more = answer if isinstance(answer, tuple) else (200, answer)
        given: dict[str, str] = dict(*more)
        return httpx2.Response(status, headers=given, **({"text": body} if isinstance(body, str) else {"json": body}))

    def client(self, **options: Any) -> Client:
        connection = Connection(
            "http://caraway.test:8400",
            options.pop("token", ""),
            transport=httpx2.MockTransport(self),
            clock=lambda: self.time,
            sleep=self.sleep,
        )
        return Client("http://caraway.test:8400", connection=connection, **options)

    def sleep(self, seconds: float) -> None:
        self.time += seconds

    def body(self, number: int = -1) -> Any:
        return json.loads(self.requests[number].content)


def test_a_commit_says_what_is_deleted() -> None:
    @meta(owner="a@b.co", deleted=True)
    @dataset
    class Gone:
        at: datetime

    server = Server({})
    for incremental in (False, True):
        server.client().commit("x", [Gone, Pots], incremental=incremental)
        sent = decode_commit(server.requests[-1].content).graph.datasets
        assert {d.name: d.metadata.deleted for d in sent} == {"Gone": True, "Pots": False}


ONE = pd.DataFrame({"Pot.pot": [1]})


def query(inputs: list[Any], outputs: list[Any], frame: pd.DataFrame = ONE, **options: Any) -> Callable[[Client], Any]:
    return lambda c: c.query(inputs, outputs, frame, **options)


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda c: c.commit("x", [Pots, Pots]), CommitError),
        (lambda c: c.commit("x", [Pot]), DefinitionTypeError),
        (lambda c: c.commit("x", featuresets=[Pots]), DefinitionTypeError),
        (lambda c: c.commit("x", [Pots], env="~prod"), DefinitionError),
        *((query([given], [Pot.wet]), InvalidInputError) for given in (Pot, "Pot", 3)),
        *((query([Pot.pot], [wanted]), InvalidInputError) for wanted in ("a.b.c", 3)),
        (query([Pot.pot], [Pot.wet], pd.DataFrame({"pot": [1]})), InvalidInputError),
        (query([Pot.pot], [Pot.wet], timestamps=pd.Series([], dtype=float)), InvalidInputError),
        (query([Pot.pot], [Pot.wet], sampling_rate=2), InvalidInputError),
        (lambda c: c.lookup(Pots, pd.DataFrame({"pot": [1]}), timestamps=["soon"]), InvalidInputError),
        (lambda c: c.log("web", "pots", pd.DataFrame({"x": [object()]})), InvalidInputError),
        (lambda c: c.log("web", "pots", pd.DataFrame({"x": [1]}), batch_size=0), InvalidInputError),
    ],
)
def test_nothing_wrong_is_sent(call: Callable[[Client], Any], error: type[Exception]) -> None:
    server = Server({})
    with pytest.raises(error):
        call(server.client())
    assert server.requests == []


@pytest.mark.spec("featuresets:6:2")
def test_log_sends_chunks_that_can_be_recognised() -> None:
    server = Server({})
    at = pd.to_datetime(["2024-01-01T00:00:00.123456", None, "2024-01-02"], format="ISO8601", utc=True)
    frame = pd.DataFrame({"pot": [1, 2, 3], "at": at})
    server.client().log("web", "pots", frame, batch_size=2)
    assert server.body(0) == {
        "webhook": "web",
        "endpoint": "pots",
        "data": {"pot": [1, 2], "at": ["2024-01-01T00:00:00.123456Z", None]},
    }
    assert server.body(1)["data"]["pot"] == [3]
    keys = [request.headers["Idempotency-Key"] for request in server.requests]
    assert len(set(keys)) == 2
    assert not any("Caraway-Elapsed-Ms" in request.headers for request in server.requests)


def test_log_names_the_rejected_rows() -> None:
    error = {"row": 1, "field": "pot", "message": "expected int, found str 'x'"}
    server = Server({"rejected": 0, "errors": []}, {"rejected": 1, "errors": [error]})
    with pytest.raises(InvalidInputError, match=r"web/pots took 3 of 4 rows.*\n.*row 3, pot: expected int"):
        server.client().log("web", "pots", pd.DataFrame({"pot": [1, 2, 3, "x"]}), batch_size=2)


NO_ZONE = "times of at have no zone and are taken as UTC; write them as 2026-01-31T12:00:00Z"
NAIVE = datetime(2024, 1, 1)  # noqa: DTZ001 (what is tested)


@pytest.mark.parametrize(
    ("at", "told"),
    [
        (pd.to_datetime(["2024-01-01", None]), [NO_ZONE]),
        (pd.to_datetime(["2024-01-01", None], utc=True), []),
        (pd.Series([NAIVE, None], dtype=object), [NO_ZONE]),
        (pd.Series([datetime(2024, 1, 1, tzinfo=UTC), None], dtype=object), []),
        (pd.Series([pd.NaT, None], dtype=object), []),
        (pd.Series([None, None], dtype="datetime64[ns]"), []),
        (["2024-01-01T00:00:00", None], []),
        ([date(2024, 1, 1), None], []),
    ],
    ids=["naive", "zone", "naive objects", "objects", "nulls", "nulls of a type", "the server sees texts", "dates"],
)
def test_log_tells_of_times_without_a_zone(at: Any, told: list[str]) -> None:
    server = Server({"accepted": 2, "rejected": 0, "warnings": ["of the server"]})
    with warnings.catch_warnings(record=True, action="always") as shown:
        result = server.client().log("web", "pots", pd.DataFrame({"at": at}))
    assert [str(warning.message) for warning in shown] == told
    assert {warning.filename for warning in shown} <= {__file__}
    assert result is not None
    assert result.warnings == (*told, "of the server")


def test_log_of_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    server = Server({})
    assert server.client().log("web", "pots", pd.DataFrame({"pot": []})) is None
    assert server.requests == []
    assert "no rows" in capsys.readouterr().out


def test_log_tries_again_with_the_same_key() -> None:
    server = Server(httpx2.ConnectError("refused"), (503, {"err_msg": "busy"}), (500, "broken"), {})
    server.client().log("web", "pots", pd.DataFrame({"pot": [1]}))
    assert len(server.requests) == 4
    assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 1
    assert [request.headers.get("Caraway-Elapsed-Ms") for request in server.requests] == [None, "100", "300", "700"]


def test_log_gives_up_in_time() -> None:
    server = Server(httpx2.ConnectError("refused"))
    with pytest.raises(UnavailableError, match=r"http://caraway.test:8400 \(refused\); check the URL"):
        server.client().log("web", "pots", pd.DataFrame({"pot": [1]}), retry_timeout=20)
    assert 10 < server.time <= 20


BEHIND = (429, {"err_msg": "the index of Pots is behind", "code": "behind"}, {"Retry-After": "7"})


def test_log_waits_as_long_as_a_server_that_is_behind_wants() -> None:
    server = Server(BEHIND, BEHIND, {})
    server.client().log("web", "pots", pd.DataFrame({"pot": [1]}))
    assert server.time == 14
    assert len({request.headers["Idempotency-Key"] for request in server.requests}) == 1
    # The server accepted nothing of the refused attempts, so it needn't search for their rows.
    assert not any("Caraway-Elapsed-Ms" in request.headers for request in server.requests)


def test_log_has_the_server_search_if_an_attempt_before_a_refusal_may_have_been_accepted() -> None:
    server = Server(httpx2.ReadError("lost"), BEHIND, {})
    server.client().log("web", "pots", pd.DataFrame({"pot": [1]}))
    assert [request.headers.get("Caraway-Elapsed-Ms") for request in server.requests] == [None, "100", "7100"]


def test_log_waits_for_a_server_that_is_behind_no_longer_than_asked() -> None:
    server = Server(BEHIND)
    with pytest.raises(RemoteError, match=r"^the index of Pots is behind") as caught:
        server.client().log("web", "pots", pd.DataFrame({"pot": [1]}), retry_timeout=20)
    assert (caught.value.remote_code, caught.value.retry_after_s, server.time) == ("behind", 7.0, 14)


def test_log_does_not_repeat_what_was_refused() -> None:
    server = Server((404, {"err_msg": "no endpoint pots", "code": "unknown_entity"}))
    with pytest.raises(RemoteError, match=r"^no endpoint pots") as caught:
        server.client().log("web", "pots", pd.DataFrame({"pot": [1]}))
    assert (caught.value.status, caught.value.remote_code) == (404, "unknown_entity")
    assert len(server.requests) == 1


def test_errors_that_are_no_json() -> None:
    with pytest.raises(RemoteError, match=r"^status 502: bad gateway"):
        Server((502, "bad gateway")).client().lookup("Pots", pd.DataFrame({"pot": [1]}))


ANSWER: dict[str, Any] = {
    "Pot.wet": [0.5, None],
    "Pot.seen": ["2024-01-01T00:00:00.000001Z", "2024-01-01T00:00:00Z"],
    "Pot.spans": [[{"begin": "1970-01-01T00:00:00Z", "end": "1970-01-01T00:00:01Z"}], []],
    "Pot.pot": [1, 2],
}


@pytest.mark.spec("featuresets:6:3", "featuresets:5.3:workflow", "featuresets:5.3:sampling_rate", "featuresets:5.3:log")
def test_query() -> None:
    server = Server(ANSWER)
    at = pd.Series([datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 2)])  # noqa: DTZ001 (naive is UTC)
    found = server.client().query(
        [Pot.pot],
        [Pot.wet, Pot, "Pot.pot"],
        pd.DataFrame({"Pot.pot": [1, 2], "more": [0, 0]}),
        workflow="test",
        log=True,
        sampling_rate=0.5,
        timestamps=at,
    )
    assert server.body() == {
        "inputs": ["Pot.pot"],
        "outputs": ["Pot.wet", "Pot.pot", "Pot.seen", "Pot.spans"],
        "data": {"Pot.pot": [1, 2]},
        "log": True,
        "workflow": "test",
        "sampling_rate": 0.5,
        "timestamps": ["2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z"],
    }
    assert list(found.columns) == ["Pot.wet", "Pot.pot", "Pot.seen", "Pot.spans"]
    assert [str(t) for t in found.dtypes] == ["Float64", "Int64", "datetime64[ns, UTC]", "object"]
    assert found["Pot.wet"][1] is pd.NA
    assert found["Pot.seen"][0].microsecond == 1
    assert isinstance(found["Pot.spans"][0][0], Window)


def test_query_by_names_is_untyped() -> None:
    server = Server({"Pot.pot": [1], "Pot.wet": [None]})
    found = server.client().query(["Pot.pot"], ["Pot"], pd.DataFrame({"Pot.pot": [1]}))
    assert list(found.columns) == ["Pot.pot", "Pot.wet"]
    assert found["Pot.wet"][0] is pd.NA


def test_query_rows() -> None:
    asked = pd.DataFrame({"Pot.pot": [1, 2]})
    rows = Server(ANSWER).client().query_rows([Pot.pot], [Pot.wet, Pot.seen, Pot.spans, "Pot.pot"], asked)
    first, second = datetime(2024, 1, 1, 0, 0, 0, 1, UTC), datetime(2024, 1, 1, tzinfo=UTC)
    assert [list(row) for row in rows] == [list(ANSWER), list(ANSWER)]
    assert [(row["Pot.wet"], row["Pot.seen"], row["Pot.pot"]) for row in rows] == [(0.5, first, 1), (None, second, 2)]
    assert isinstance(rows[0]["Pot.spans"][0], Window)
    assert rows[1]["Pot.spans"] == []
    # Features given by name have the values of the ANSWER.
    named = Server(ANSWER).client().query_rows(["Pot.pot"], ["Pot"], asked)
    assert named[0] == {name: values[0] for name, values in ANSWER.items()}
    assert Server({}).client().query_rows([Pot.pot], [Pot.wet], pd.DataFrame({"Pot.pot": []})) == []
    with pytest.raises(InvalidInputError, match=r"Pot\.pot is int"):
        Server({"Pot.pot": [None]}).client().query_rows([Pot.pot], [Pot.pot], asked)


@pytest.mark.parametrize("call", [Client.query, Client.query_rows], ids=["query", "query_rows"])
def test_rows_of_a_query_may_be_a_list_of_dicts(call: Any) -> None:
    server = Server({"Pot.wet": [0.5, None]})
    call(server.client(), [Pot.pot, "Pot.big"], [Pot.wet], [{"Pot.pot": 1, "Pot.big": 2**60 + 1}, {"Pot.pot": 2}])
    # A number isn't rounded for another row's null.
    assert server.body()["data"] == {"Pot.pot": [1, 2], "Pot.big": [2**60 + 1, None]}
    assert len(call(server.client(), [Pot.pot], [Pot.wet], [])) == 0
    assert len(server.requests) == 1
    for wrong, kind in (([1], "list"), ({"Pot.pot": [1]}, "dict")):
        with pytest.raises(InvalidInputError, match=f"is a {kind}; give a DataFrame, or a list of dicts, one a row"):
            call(server.client(), [Pot.pot], [Pot.wet], wrong)
    with pytest.raises(InvalidInputError, match=r"no column Pot\.pot; did you mean pot\?; columns: pot"):
        call(server.client(), [Pot.pot], [Pot.wet], [{"pot": 1}])


def test_query_by_names_has_the_dtypes_that_pandas_infers() -> None:
    columns: list[list[Any]] = [
        [1, 2],
        [0.5, 1.5],
        [1, 0.5],
        [True, False],
        ["a", "b"],
        [1, None],
        [2**63, 1],
        [[1], [2, 3]],
        [{}, "a"],
    ]
    answer: dict[str, list[Any]] = {f"Pot.f{number}": column for number, column in enumerate(columns)}
    found = Server(answer).client().query(["Pot.pot"], ["Pot"], pd.DataFrame({"Pot.pot": [1, 2]}))
    for name, values in answer.items():
        series = pd.Series([pd.NA if value is None else value for value in values], dtype=object, name=name)
        expected = series if None in values else series.infer_objects()
        pd.testing.assert_series_equal(found[name], expected)


def test_query_without_rows_sends_no_request() -> None:
    server = Server({})
    assert server.client().query([Pot.pot], [Pot.wet], pd.DataFrame({"Pot.pot": []})).empty
    assert server.client().query([Pot.pot], [], pd.DataFrame({"Pot.pot": [1]})).empty
    assert server.requests == []


def test_a_null_where_none_can_be_is_an_error() -> None:
    with pytest.raises(InvalidInputError, match=r"Pot\.pot is int"):
        Server({"Pot.pot": [None]}).client().query(["Pot.pot"], [Pot.pot], pd.DataFrame({"Pot.pot": [1]}))


@pytest.mark.spec("featuresets:6:7", "featuresets:5.6:1")
def test_lookup() -> None:
    server = Server({"found": [True, False], "data": {"wet": [0.5, None], "cost": ["1.50", None]}})
    data, found = server.client().lookup(Pots, pd.DataFrame({"pot": [1, 2]}), fields=["wet", Pots.cost])
    assert str(server.requests[0].url).endswith("/api/v1/dataset/Pots/lookup")
    assert server.body() == {"keys": [{"pot": 1}, {"pot": 2}], "fields": ["wet", "cost"]}
    assert found.tolist() == [True, False]
    assert isinstance(data, pd.DataFrame)
    assert data["wet"].dtype == "Float64"
    assert data["cost"].tolist() == [Number("1.50"), pd.NA]


def test_lookup_of_what_the_branch_does_not_have() -> None:
    server = Server((404, {"err_msg": "there is no dataset Pans; there are: Pots", "code": "unknown_entity"}))
    with pytest.raises(KeyError, match="Pans"):
        server.client().lookup("Pans", pd.DataFrame({"pot": [1]}))


def test_keys_of_a_lookup_are_a_frame_or_rows() -> None:
    server = Server({"found": [True], "data": {"wet": [0.5]}})
    with pytest.raises(ValueError, match=r"Pots.*list"):
        server.client().lookup("Pots", [1])
    assert server.requests == []
    server.client().lookup("Pots", [{"pot": 1}])
    assert server.body()["keys"] == [{"pot": 1}]


def test_lookup_of_one_field_is_a_series() -> None:
    server = Server({"found": [True], "data": {"wet": [0.5]}})
    data, _ = server.client().lookup("Pots", pd.DataFrame({"pot": [1]}), ["wet"], timestamps=["2024-01-01"])
    assert isinstance(data, pd.Series)
    assert data.name == "wet"
    assert server.body()["timestamps"] == ["2024-01-01T00:00:00Z"]


def test_columns_as_json() -> None:
    frame = pd.DataFrame(
        {
            "int": [1, 2],
            "float": [0.5, None],
            "endless": [np.inf, -np.inf],
            "nullable": pd.array([1, None], dtype="Int64"),
            "bool": [True, False],
            "text": ["a", None],
            "zoned": pd.to_datetime(["2024-01-01T05:30:00+05:30", None]),
            "date": [date(2024, 1, 1), None],
            "decimal": [Number("1.50"), None],
            "bytes": [b"\xff", None],
            "list": [[1, np.float64("nan")], np.array([1, 2])],
            "struct": [Window(datetime(1970, 1, 1), datetime(1970, 1, 2)), {"a": pd.NA}],  # noqa: DTZ001
        }
    )
    assert json.loads(json.dumps(columns_of(frame)).replace("NaN", "null")) == {
        "int": [1, 2],
        "float": [0.5, None],
        "endless": ["inf", "-inf"],
        "nullable": [1, None],
        "bool": [True, False],
        "text": ["a", None],
        "zoned": ["2024-01-01T00:00:00.000000Z", None],
        "date": ["2024-01-01", None],
        "decimal": ["1.50", None],
        "bytes": [{"base64": "/w=="}, None],
        "list": [[1, None], [1, 2]],
        "struct": [{"begin": "1970-01-01T00:00:00Z", "end": "1970-01-02T00:00:00Z"}, {"a": None}],
    }


@pytest.mark.parametrize("dtype", ["date32[pyarrow]", "date64[pyarrow]"])
def test_dates_of_arrow_are_sent_as_other_dates_are(dtype: str) -> None:
    frame = pd.DataFrame({"day": pd.Series([date(2026, 1, 31), None], dtype=dtype)})
    assert columns_of(frame) == {"day": ["2026-01-31", None]}
    assert zone_remarks(frame) == []


def test_integers_beyond_64_bits_are_sent_as_text() -> None:
    """JSON of the server's library has no such integers, but a decimal may be one."""
    column = pd.Series([2**64 - 1, 2**64, -(2**63), -(2**63) - 1, True], dtype=object)
    sent = columns_of(pd.DataFrame({"amount": column}))["amount"]
    assert sent == [2**64 - 1, "18446744073709551616", -(2**63), "-9223372036854775809", True]
    assert json.loads(orjson.dumps(sent)) == sent


@pytest.mark.parametrize("null", [pd.NaT, None, np.datetime64("NaT")])
def test_times_of_rows_without_one_are_refused_in_a_list_as_in_a_series(null: Any) -> None:
    for given in ([datetime(2026, 1, 31, tzinfo=UTC), null], pd.Series(pd.to_datetime(["2026-01-31", None]))):
        with pytest.raises(InvalidInputError, match="timestamps holds nulls; each row needs a time"):
            instants(given, 2)


def test_a_client_is_a_context() -> None:
    with Client("http://127.0.0.1:1") as client:
        assert client.branch() == "main"
        with pytest.raises(UnavailableError, match=r"127\.0\.0\.1:1"):
            client.lookup("Pots", pd.DataFrame({"pot": [1]}))
    assert isinstance(Pots, Dataset)
