"""The outcome of the rows of a log request. The writer keeps records in memory; Kafka has its own tests."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest

from caraway.compute.rows.batches import LeftOut
from caraway.dataplane.ingest.backpressure import Backpressure, BehindError, Bounds, Late
from caraway.dataplane.ingest.delivery import SLICE, Deliverer
from caraway.dataplane.ingest.endpoints import Endpoint, Endpoints
from caraway.dataplane.ingest.intake import IngestReport
from caraway.dataplane.ingest.marks import Marks
from caraway.dataplane.ingest.requests import HEADER, RequestKey
from caraway.dataplane.ingest.row_counts import RowCounts
from caraway.dataplane.ingest.service import IngestService
from caraway.dataplane.ingest.table import MAX_ROWS, table
from caraway.dataplane.ingest.targets import Target
from caraway.dataplane.topics.blocks import MAX_RECORDS, records_in
from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS, MAX_PAYLOAD
from caraway.dataplane.topics.erased_keys import ErasedKeys, erasure_of
from caraway.dataplane.topics.keys import MAX_KEY_BYTES
from caraway.dataplane.topics.producer import TopicItem
from caraway.dtypes.types import (
    BOOL,
    BYTES,
    DATETIME,
    FLOAT,
    INT,
    STRING,
    BetweenType,
    DataType,
    ListType,
    OneOfType,
    RegexType,
    optional,
)
from caraway.errors import ConflictError, InvalidInputError, TooLargeError, UnavailableError, UnknownEntityError
from caraway.graph.aggregates import AggregateFunction, AggregateSpec
from caraway.graph.connectors import WebhookConnector
from caraway.graph.operators import Aggregate, Input
from caraway.graph.plan.longest_window import longest_window
from caraway.graph.plan.planner import plan_graph
from caraway.graph.sources import Cdc, Ref, SourceSpec
from caraway.graph.specs import DatasetSpec, Graph, IndexSpec, PipelineSpec
from caraway.graph.windows import ContinuousWindow
from tests.messages import records_of
from tests.unit.graph.building import dataset


def spec(name: str, endpoint: str, fields: dict[str, DataType], key: str | None = None) -> DatasetSpec:
    connector = WebhookConnector(name="hook", endpoint=endpoint, retention_us=0)
    source = SourceSpec(connector=connector, disorder_us=0, cdc=Cdc.UPSERT if key else Cdc.APPEND)
    index = IndexSpec(online=True, offline=True) if key else None
    return dataset(name, {**fields, "at": DATETIME}, keys=[key] if key else [], index=index, sources=(source,))


SALES = spec(
    "Sales",
    "sales",
    {
        "user": STRING,
        "amount": FLOAT,
        "units": BetweenType(INT, 0, 100),
        "note": optional(STRING),
        "paid": BOOL,
        "tags": ListType(STRING),
        "kind": OneOfType(STRING, ("a", "b")),
        "code": optional(RegexType("[A-Z]{3}")),
        "blob": optional(BYTES),
    },
)
USERS = spec("Users", "people", {"user": STRING, "age": INT}, key="user")
AGES = spec("Ages", "people", {"age": BetweenType(INT, 0, 150)})
GRAPH = Graph(datasets=(SALES, USERS, AGES))
PLAN = plan_graph(GRAPH)
ENDPOINTS = Endpoints(PLAN)
TOPICS = {topic.dataset: topic for topic in PLAN.topics}
GOOD: dict[str, Any] = {
    "user": "u",
    "amount": 1.5,
    "units": 3,
    "note": None,
    "paid": True,
    "tags": ["x"],
    "kind": "a",
    "code": "ABC",
    "blob": {"base64": "aGk="},
    "at": "2024-01-02T03:04:05Z",
}


class MemoryWriter:
    def __init__(self) -> None:
        self.written: list[tuple[str, TopicItem]] = []
        self.failing = False

    def write(self, topic: str, items: Sequence[TopicItem]) -> "Future[None]":
        future: Future[None] = Future()
        if self.failing:
            future.set_exception(UnavailableError("Kafka is away"))
        else:
            self.written += [(topic, item) for item in items]
            future.set_result(None)
        return future

    def rows(self, dataset: str) -> list[list[object] | None]:
        topic = TOPICS[dataset]
        codec = RecordCodec(topic.schema)
        values = (value for name, item in self.written if name == topic.name for value in records_of(*item[:2]))
        return [codec.decode_value(value).row for value in values]

    def dead_letters(self) -> list[dict[str, Any]]:
        return [orjson.loads(item[1]) for name, item in self.written if name == DEAD_LETTERS]


def log(
    data: Any,
    endpoint: str = "sales",
    writer: MemoryWriter | None = None,
    request: RequestKey | None = None,
    erased: ErasedKeys | None = None,
    *,
    endpoints: Endpoints = ENDPOINTS,
) -> IngestReport:
    service = IngestService(writer or MemoryWriter(), "nowhere:1", erased)
    return asyncio.run(service.put(endpoints.find("hook", endpoint), data, request))


@pytest.mark.parametrize("form", ["rows", "columns", "text of rows", "text of columns"])
def test_all_forms_of_data_become_the_same_records(form: str) -> None:
    rows = [GOOD, GOOD | {"amount": 2, "note": "n"}]
    columns = {name: [row[name] for row in rows] for name in GOOD}
    data: Any = rows if form.endswith("rows") else columns
    writer = MemoryWriter()
    report = log(orjson.dumps(data).decode() if form.startswith("text") else data, writer=writer)
    assert (report.status, report.accepted, report.rejected, report.warnings) == (200, 2, 0, ())
    assert writer.rows("Sales") == [
        ["u", 1.5, 3, None, True, ["x"], "a", "ABC", b"hi"],
        ["u", 2.0, 3, "n", True, ["x"], "a", "ABC", b"hi"],
    ]


def test_rows_without_keys_are_sent_in_blocks() -> None:
    writer, rows = MemoryWriter(), 2 * MAX_RECORDS + 1
    assert log(
        [{"user": f"u{number}", "age": number % 100, "at": 0} for number in range(rows)], "people", writer
    ).accepted
    assert writer.rows("Ages") == [[number % 100] for number in range(rows)]
    blocks = [records_in(item[1]) for name, item in writer.written if name == TOPICS["Ages"].name]
    # A slice is encoded at a time, and the last row is alone.
    assert blocks == [MAX_RECORDS] * (SLICE // MAX_RECORDS) + [rows - SLICE]
    # A row with a key is a message, since its key chooses the partition.
    assert len([name for name, _ in writer.written if name == TOPICS["Users"].name]) == rows


def test_a_repeated_request_writes_the_rows_of_blocks_that_are_missing() -> None:
    writer, first = MemoryWriter(), RequestKey("k", None, b"")
    rows = [{"user": f"u{number}", "age": number, "at": 0} for number in range(5)]
    log(rows, "people", writer, first)
    messages = [item[2] for name, item in writer.written if name == TOPICS["Ages"].name]
    assert messages == [{HEADER: b"0,1,2,3,4:Ages:k"}]
    again = Marks(header=HEADER, key="k", written=frozenset({("Ages", "1"), ("Ages", "3"), ("Users", "0")}))
    targets = ENDPOINTS.find("hook", "people").targets
    found = Deliverer(targets, table(rows), origin=lambda _: {}, erased=ErasedKeys(dict), marks=again)
    delivered = {target.dataset: found.deliver(target, 0, 5, 0).items for target in targets}
    (block,) = delivered["Ages"][TOPICS["Ages"].name]
    assert block[2] == {HEADER: b"0,2,4:Ages:k"}
    codec = RecordCodec(TOPICS["Ages"].schema)
    assert [record.row for record in codec.decode_message(block[1])] == [[0], [2], [4]]
    assert [item[2] for item in delivered["Users"][TOPICS["Users"].name]] == [
        {HEADER: f"{number}:Users:k".encode()} for number in (1, 2, 3, 4)
    ]


def test_rows_of_erased_keys_are_taken_and_never_written() -> None:
    writer, erased = MemoryWriter(), ErasedKeys(lambda: {"k": b"m" * 32})
    topic = TOPICS["Users"]
    erased.add(topic.name, [erasure_of(topic.name, topic.schema.keys, ["gone"], "k", b"m" * 32)])
    rows = [
        {"user": "gone", "age": 3, "at": 0},
        {"user": "here", "age": 4, "at": 0},
        # Both datasets of the endpoint refuse this row, and one has the erased key: no dead letter may show it.
        {"user": "gone", "age": "much", "at": 0},
        {"user": "here", "age": "more", "at": 0},
    ]
    report = log(rows, "people", writer, erased=erased)
    assert (report.accepted, report.rejected) == (2, 2)
    assert writer.rows("Users") == [["here", 4]]
    assert len(writer.rows("Ages")) == 2
    letters = [(letter["dataset"], letter["row"]["age"]) for letter in writer.dead_letters()]
    assert sorted(letters) == [("Ages", "more"), ("Users", "more")]
    unknown = ErasedKeys(dict)
    unknown.add(topic.name, [erasure_of(topic.name, topic.schema.keys, ["gone"], "k", b"m" * 32)])
    with pytest.raises(UnavailableError, match="hasn't got"):
        log(rows, "people", writer, erased=unknown)


def test_rows_that_are_erased_by_another_column_than_a_key_are_never_written() -> None:
    writer, erased = MemoryWriter(), ErasedKeys(lambda: {"k": b"m" * 32})
    topic = TOPICS["Users"]
    age = tuple(column for column in topic.schema.columns if column.name == "age")
    erased.add(topic.name, [erasure_of(topic.name, age, [4], "k", b"m" * 32)])
    rows = [{"user": "a", "age": 3, "at": 0}, {"user": "b", "age": 4, "at": 0}, {"user": "c", "age": 5, "at": 0}]
    assert log(rows, "people", writer, erased=erased).accepted == len(writer.rows("Ages")) == 3
    assert writer.rows("Users") == [["a", 3], ["c", 5]]


def test_a_keyed_dataset_has_the_encoded_key() -> None:
    writer = MemoryWriter()
    log([{"user": "u", "age": 3, "at": 0}], "people", writer)
    (item,) = (item for name, item in writer.written if name == TOPICS["Users"].name)
    assert item[0] == RecordCodec(TOPICS["Users"].schema).encode_key(["u"])
    assert RecordCodec(TOPICS["Users"].schema).decode_value(item[1]).time == 0


@pytest.mark.parametrize(
    ("change", "field", "said"),
    [
        ({"user": ...}, "user", "is missing; expected str"),
        ({"user": None}, "user", "expected str, found null"),
        ({"user": ["x"]}, "user", "expected str, found list ['x']"),
        # Text is no number.
        ({"user": 1.5}, "user", "expected str, found float 1.5"),
        ({"user": True}, "user", "expected str, found bool True"),
        ({"amount": "much"}, "amount", "expected float, found str 'much'"),
        ({"amount": "NaN"}, "amount", "expected float, found null"),
        ({"units": 101}, "units", "expected between(int, 0, 100"),
        ({"units": 1.5}, "units", "expected int, found float 1.5"),
        ({"paid": "perhaps"}, "paid", "expected bool, found str 'perhaps'"),
        ({"tags": "x"}, "tags", "expected List[str], found str 'x'"),
        ({"tags": [None]}, "tags", "element 0: expected str, found null"),
        ({"tags": [1]}, "tags", "element 0: expected str, found int 1"),
        ({"kind": "c"}, "kind", "expected oneof(str, ['a', 'b']), found str 'c'"),
        ({"code": "abc"}, "code", "expected regex('[A-Z]{3}'), found str 'abc'"),
        ({"blob": {"base64": "?"}}, "blob", "expected bytes"),
        ({"at": "yesterday"}, "at", 'expected datetime (ISO 8601), found "yesterday"'),
        ({"at": None}, "at", "expected datetime, found null"),
        ({"at": ...}, "at", "is missing; expected datetime"),
    ],
)
@pytest.mark.parametrize("oriented", ["rows", "columns"])
def test_a_bad_row_is_reported_by_number_and_field_and_the_others_are_taken(
    change: dict[str, Any], field: str, said: str, oriented: str
) -> None:
    bad = {name: value for name, value in (GOOD | change).items() if value is not ...}
    data: Any = [GOOD, bad, GOOD]
    if oriented == "columns" and ... not in change.values():  # a column is missing for all rows or for none
        data = {name: [row[name] for row in data] for name in GOOD}
    writer = MemoryWriter()
    report = log(data, writer=writer)
    assert (report.status, report.accepted, report.rejected) == (200, 2, 1)
    (error,) = report.errors
    assert (error.row, error.dataset, error.field) == (1, "Sales", field)
    assert said in error.message
    assert len(writer.rows("Sales")) == 2
    (letter,) = writer.dead_letters()
    assert letter["row"] == bad
    assert letter["reason"] == [{"field": field, "message": error.message}]
    assert (letter["dataset"], letter["endpoint"]) == ("Sales", "sales")


def test_an_optional_field_may_be_left_out() -> None:
    row = {name: value for name, value in GOOD.items() if name not in {"note", "code", "blob"}}
    writer = MemoryWriter()
    assert log([row], writer=writer).accepted == 1
    assert writer.rows("Sales") == [["u", 1.5, 3, None, True, ["x"], "a", None, None]]


def test_unknown_fields_are_warned_of() -> None:
    report = log([GOOD | {"usr": 1, "z": 2}])
    assert (report.accepted, report.rejected) == (1, 0)
    assert report.warnings == ("fields that Sales doesn't have were ignored: usr, z",)


def test_a_missing_field_is_connected_with_one_that_was_ignored() -> None:
    writer = MemoryWriter()
    report = log([{**{name: value for name, value in GOOD.items() if name != "amount"}, "amuont": 1.5}], writer=writer)
    (error,) = report.errors
    assert error.message == "is missing; expected float; did you mean it by 'amuont', which was ignored?"
    (letter,) = writer.dead_letters()
    assert letter["reason"] == [{"field": "amount", "message": error.message}]


@pytest.mark.parametrize(
    ("at", "told"),
    [
        ("2024-01-02T03:04:05Z", ""),
        ("2024-01-02T03:04:05-05:00", ""),
        ("2024-01-02", ""),
        pytest.param(int(time.time()), "", id="now"),
        pytest.param(int(time.time()) + 30, "", id="half a minute ahead"),
        ("2024-01-02T03:04:05", "times of at have no zone and are taken as UTC"),
        ("2024-01-02 03:04:05.25", "times of at have no zone and are taken as UTC"),
        pytest.param(int(time.time()) + 365 * 86_400, "rows for Sales have times in the future", id="a year ahead"),
    ],
)
def test_times_that_look_like_a_mistake_are_taken_with_a_warning(at: object, told: str) -> None:
    report = log([GOOD | {"at": at}])
    assert report.accepted == 1
    assert [warning.startswith(told) for warning in report.warnings] == ([True] if told else [])


@pytest.mark.parametrize(
    "change",
    [
        pytest.param({}, id="only cast"),
        pytest.param({"preproc": (("note", Ref(path=("remark",))),)}, id="copied"),
        pytest.param({"until_us": 1 << 60}, id="converted row by row"),
    ],
)
def test_rows_further_ahead_than_a_source_allows_become_dead_letters(change: dict[str, Any]) -> None:
    source = replace(SALES.sources[0], max_future_us=300_000_000, **change)
    endpoints = Endpoints(plan_graph(Graph(datasets=(replace(SALES, sources=(source,)),))))
    now = int(time.time())
    rows = [GOOD | {"remark": "x", "at": now + ahead} for ahead in (-60, 240, 3_600)]
    writer = MemoryWriter()
    report = log(rows, writer=writer, endpoints=endpoints)
    assert (report.accepted, report.rejected) == (2, 1)
    (error,) = report.errors
    assert (error.row, error.field) == (2, "at")
    assert error.message.endswith("Z is more than 5m (max_future) ahead of the clock")
    assert [letter["row"]["at"] for letter in writer.dead_letters()] == [now + 3_600]
    # How far a source has come is told by the rows that it has taken.
    assert endpoints.find("hook", "sales").targets[0].newest_us == (now + 240) * 1_000_000


def test_rows_older_than_every_window_are_taken_with_a_warning() -> None:
    def counted(*windows: ContinuousWindow) -> DatasetSpec:
        count = partial(AggregateSpec, function=AggregateFunction.COUNT, of=None, default=None, dtype=INT)
        columns = {f"count_{number}": window for number, window in enumerate(windows)}
        aggregates = tuple(count(into=name, window=window) for name, window in columns.items())
        made = Aggregate(of=Input(dataset="Sales"), keys=("user",), aggregates=aggregates)
        pipeline = PipelineSpec(name="count", inputs=("Sales",), operator=made)
        types: dict[str, DataType] = {"user": STRING, "at": DATETIME, **dict.fromkeys(columns, INT)}
        return dataset("Counts", types, keys=["user"], index=USERS.index, pipelines=(pipeline,))

    day = 86_400_000_000
    old = int(time.time()) - 3 * 86_400
    short, long = ContinuousWindow(length_us=day), ContinuousWindow(length_us=2 * day)
    for windows, warned in (((short, long), True), ((short, ContinuousWindow(length_us=4 * day)), False)):
        endpoints = Endpoints(plan_graph(Graph(datasets=(SALES, counted(*windows)))))
        warnings = log([GOOD | {"at": old}], endpoints=endpoints).warnings
        assert [warning.startswith("rows for Sales are older than 2d, the longest") for warning in warnings] == (
            [True] if warned else []
        )
    assert longest_window("Sales", Graph(datasets=(SALES, counted(short, ContinuousWindow(length_us=None))))) is None
    assert longest_window("Sales", GRAPH) is None


def test_all_rows_refused_is_an_error() -> None:
    report = log([{}, 7, None])
    assert (report.status, report.accepted, report.rejected) == (422, 0, 3)
    body = report.to_json()
    assert body["code"] == "invalid_input"
    assert "none of the 3 rows was accepted; row 0, field" in str(body["err_msg"])
    assert [error.message for error in report.errors if error.row == 1] == ["is a number, an object is expected"]


def test_no_rows_are_fine() -> None:
    assert log([]).status == log({}).status == 200


def test_each_dataset_of_an_endpoint_takes_what_fits_it() -> None:
    writer = MemoryWriter()
    report = log([{"user": "u", "age": 200, "at": 0}, {"user": "v", "age": 20, "at": 0}], "people", writer)
    assert (report.status, report.accepted, report.rejected) == (200, 1, 1)
    assert report.to_json()["datasets"] == {"Users": 2, "Ages": 1}
    assert writer.rows("Users") == [["u", 200], ["v", 20]]
    assert writer.rows("Ages") == [[20]]


def test_the_first_errors_are_listed_in_order_and_all_are_counted() -> None:
    rows = [GOOD if number % 2 else {} for number in range(3 * SLICE)]
    report = log(rows)
    assert report.rejected == 3 * SLICE // 2
    assert len(report.errors) == 20
    assert [error.row for error in report.errors] == sorted(error.row for error in report.errors)


def test_a_row_that_kafka_could_not_take_is_refused_alone() -> None:
    report = log([GOOD | {"user": "x" * 1_000_000}, GOOD])
    assert (report.accepted, report.rejected) == (1, 1)
    assert "takes 1,000,0" in report.errors[0].message


def test_a_row_whose_key_no_index_can_have_is_refused_alone() -> None:
    writer = MemoryWriter()
    # In MessagePack the array and the long text need four bytes more than the characters.
    longest = MAX_KEY_BYTES - 4
    rows = [{"user": "x" * size, "age": 7, "at": 1_000} for size in (longest, longest + 1, 100_000)]
    report = log(rows, endpoint="people", writer=writer)
    assert [(error.row, error.dataset, error.field) for error in report.errors] == [
        (1, "Users", "user"),
        (2, "Users", "user"),
    ]
    assert report.errors[0].message.startswith("the key takes 65,001 bytes; at most 65,000 can be indexed")
    assert (report.accepted, len(writer.rows("Users")), len(writer.dead_letters())) == (1, 1, 2)


@pytest.mark.parametrize("columns", [False, True])
def test_too_many_rows_are_refused_as_a_whole(columns: bool) -> None:
    many = [0] * (MAX_ROWS + 1)
    with pytest.raises(TooLargeError, match="100,000 rows"):
        log({"user": many} if columns else [{}] * len(many))


def test_messages_name_long_fields_shortly() -> None:
    long = "x" * 2_000_000
    report = log([GOOD | {long: 1, "kind": long}, GOOD | {f"f{n}": 1 for n in range(100)}])
    assert len(report.warnings[0]) < 10_000
    assert "more" in report.warnings[0]
    assert len(report.errors[0].message) < 1_100


def test_a_large_row_is_cut_in_its_dead_letter() -> None:
    writer = MemoryWriter()
    log([GOOD | {"user": "x" * 100_000, "units": -1}], writer=writer)
    (letter,) = writer.dead_letters()
    assert len(letter["row"]) == MAX_PAYLOAD


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (3, "data is a number"),
        ("[1,", "isn't JSON"),
        ({"a": 1}, "column 'a' is a number"),
        ({"a": [1], "b": []}, "a 1, b 0"),
    ],
)
def test_data_that_is_none_is_refused(data: Any, said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        log(data)
    assert said in str(raised.value)


@pytest.mark.parametrize(
    ("webhook", "endpoint", "said"),
    [("hok", "sales", "did you mean hook"), ("hook", "sale", "endpoints: people, sales")],
)
def test_an_endpoint_that_is_none_is_named(webhook: str, endpoint: str, said: str) -> None:
    with pytest.raises(UnknownEntityError, match=said):
        ENDPOINTS.find(webhook, endpoint)


def key(name: str, digest: bytes = b"1") -> RequestKey:
    return RequestKey(name, None, digest)


def test_a_repeated_request_is_carried_out_once_even_while_the_first_is_on_its_way() -> None:
    writer = MemoryWriter()
    service = IngestService(writer, "nowhere:1")
    sales, rows = ENDPOINTS.find("hook", "sales"), [GOOD, {}]

    async def twice() -> list[IngestReport]:
        both = await asyncio.gather(*(service.put(sales, rows, key("k")) for _ in range(2)))
        return [*both, await service.put(sales, rows, key("k"))]

    first, second, third = asyncio.run(twice())
    assert first is second is third
    assert len(writer.rows("Sales")) == 1
    assert [item[2] for _, item in writer.written] == [
        {"caraway-request": b"0:Sales:k"},
        {"caraway-request": b"1:Sales:k"},
    ]


def test_a_key_is_for_one_body_and_a_failure_is_not_remembered() -> None:
    writer = MemoryWriter()
    service = IngestService(writer, "nowhere:1")
    sales, rows = ENDPOINTS.find("hook", "sales"), [GOOD]

    async def run() -> IngestReport:
        writer.failing = True
        with pytest.raises(UnavailableError):
            await service.put(sales, rows, key("k"))
        writer.failing = False
        report = await service.put(sales, rows, key("k"))
        with pytest.raises(ConflictError):
            await service.put(sales, rows, key("k", b"2"))
        return report

    assert asyncio.run(run()).accepted == 1


def test_rows_are_left_out_for_datasets_whose_sources_have_ended() -> None:
    plan = next(i for i in ENDPOINTS.find("hook", "people").targets if i.dataset == "Ages").plan
    ended = Target(replace(plan, source=replace(plan.source, bounded=True, idleness_us=1)))
    open_one = next(i for i in ENDPOINTS.find("hook", "people").targets if i.dataset == "Users")
    asked: list[Target] = []

    def is_closed(target: Target) -> bool:
        asked.append(target)
        return target is ended

    writer = MemoryWriter()
    service = IngestService(writer, "nowhere:1", is_closed=is_closed)
    rows = [{"user": "u", "age": 1, "at": 0}, {"user": "v", "age": 2, "at": 0}]
    both = asyncio.run(service.put(Endpoint("hook", "people", (ended, open_one)), rows))
    assert (both.status, both.accepted, both.rejected, both.taken["Ages"], both.taken["Users"]) == (200, 2, 0, 2, 2)
    assert "rows for Ages were ignored" in both.warnings[-1]
    assert (len(writer.rows("Users")), writer.rows("Ages")) == (2, [])
    alone = asyncio.run(service.put(Endpoint("hook", "people", (ended,)), rows))
    assert (alone.status, alone.accepted, len(alone.warnings)) == (200, 2, 1)
    assert alone.counts == {"Ages": RowCounts(read=2, left_out=Counter({LeftOut.CLOSED: 2}))}
    assert writer.rows("Ages") == []
    # Other sources never end, so nobody asks.
    assert set(asked) == {ended}


def test_nothing_of_a_request_is_accepted_while_its_datasets_are_behind() -> None:
    writer, backpressure = MemoryWriter(), Backpressure(Bounds(records=1, seconds=1.0))
    service = IngestService(writer, "nowhere:1", backpressure=backpressure)
    endpoint = ENDPOINTS.find("hook", "sales")
    request = RequestKey("k", None, b"digest")

    async def run() -> None:
        first = await service.put(endpoint, [GOOD], request)
        late = Late(name="the index of Totals", records=2, seconds=3.0)
        backpressure.set({TOPICS["Sales"].name: late})
        for data in ([GOOD], ["a dead letter"]):
            with pytest.raises(BehindError, match=r"index of Totals is 2 records and 3 s behind"):
                await service.put(endpoint, data)
        # The rows of this request were accepted before, so it gets its answer again.
        assert await service.put(endpoint, [GOOD], request) == first
        assert len(writer.written) == 1
        backpressure.set({})
        await service.put(endpoint, [GOOD])
        assert len(writer.written) == 2

    asyncio.run(run())
