"""Caraway's answers to the questions of a case: the mock client's, and those of offline reads."""

from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pandas as pd

from caraway.featuresets import Featureset
from caraway.testing import MockClient
from tests.unit.oracle.cases import Case
from tests.unit.oracle.plain import Key, Logged
from tests.unit.oracle.sources import KEYS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)
Question = tuple[Key, int]


def instant(time: int) -> datetime:
    return EPOCH + time * MICROSECOND


def mocked(case: Case, asked: Sequence[Featureset] = ()) -> MockClient:
    """Return a mock client that has got all rows of a case, in several requests."""
    client = MockClient()
    client.commit("a case", list(case.datasets), list(asked))
    batches: defaultdict[str, list[list[Logged]]] = defaultdict(list)
    for row in case.logged:
        some = batches[row.source]
        if not some or len(some[-1]) >= case.batches:
            some.append([])
        some[-1].append(row)
    for source, frames in batches.items():
        for rows in frames:
            client.log("web", source, frame_of(source, rows))
    return client


def frame_of(source: str, rows: Sequence[Logged]) -> pd.DataFrame:
    """Return the frame that is logged: rows of events, or envelopes of changes of a table."""
    if not KEYS[source]:
        return pd.DataFrame([event(row) for row in rows])
    return pd.DataFrame(
        {
            "op": ["d" if row.deleted else "c" for row in rows],
            "before": [event(row) if row.deleted else None for row in rows],
            "after": [None if row.deleted else event(row) for row in rows],
            "ts_ms": [row.time // 1000 for row in rows],
        }
    )


def event(row: Logged) -> dict[str, Any]:
    values = {name: instant(value) if name == "due" else value for name, value in row.row.items()}
    return values | {"at": instant(row.time)}


def answers(client: MockClient, case: Case, questions: Sequence[Question]) -> list[tuple[bool, dict[str, Any]]]:
    """Return whether a key was found, and its row with the timestamp, for each question."""
    keys = pd.DataFrame(
        {name: [shown_key(key[position]) for key, _ in questions] for position, name in enumerate(case.keys)}
    )
    frame, found = client.lookup(case.read, keys, timestamps=pd.Series([instant(at) for _, at in questions]))
    assert isinstance(frame, pd.DataFrame)
    columns = {name: [stored(value) for value in frame[name].astype(object)] for name in frame}
    return [
        (bool(found[row]), {str(name): values[row] for name, values in columns.items()})
        for row in range(len(questions))
    ]


def features(client: MockClient, case: Case, asked: Featureset, questions: Sequence[Question]) -> list[dict[str, Any]]:
    """Return all features that aren't given, for each question."""
    given = [f"{asked._name}.{name}" for name in case.keys]
    frame = pd.DataFrame({name: [key[position] for key, _ in questions] for position, name in enumerate(given)})
    frame["t"] = [instant(at) for _, at in questions]
    answer = client.query_offline(given, [asked], "t", frame)
    columns = {name.partition(".")[2]: [stored(value) for value in answer[name].astype(object)] for name in answer}
    return [{name: values[row] for name, values in columns.items()} for row in range(len(questions))]


def shown_key(value: Any) -> Any:
    if isinstance(value, tuple):
        return {"begin": instant(value[0]), "end": instant(value[1])}
    return value


def stored(value: Any) -> Any:
    """Return a value of a frame as the oracle has it: instants as microseconds, nulls as None."""
    if isinstance(value, (list, tuple)):
        return [stored(item) for item in value]
    if isinstance(value, (Decimal, str)):
        return value
    if value is None or value is pd.NA or value is pd.NaT:
        return None
    if isinstance(value, datetime):
        return (value - EPOCH) // MICROSECOND
    return value.item() if hasattr(value, "item") else value
