from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from caraway.state import erasures
from caraway.state.erasures import ErasedKey, ErasureLog

KEY = ErasedKey(
    request="request",
    branch="main",
    dataset="Payments",
    topic="caraway.Payments.0123456789ab",
    columns=("person",),
    key_id="key",
    digest=b"ada",
    account="",
    token_id="",
)


def test_a_request_that_has_a_key_twice_erases_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Postgres refuses an `INSERT … ON CONFLICT DO UPDATE` that has two rows with the same key."""
    written: list[bytes] = []

    def execute(_: object, rows: Sequence[Mapping[str, Any]] = ()) -> SimpleNamespace:
        written.extend(row["digest"] for row in rows)
        return SimpleNamespace(all=lambda: rows)

    def in_transaction(engine: object, work: Callable[[object], int], **_: object) -> int:
        del engine
        return work(SimpleNamespace(execute=execute))

    monkeypatch.setattr(erasures, "in_transaction", in_transaction)
    other = replace(KEY, digest=b"bob")
    assert ErasureLog(Mock()).add([KEY, other, KEY]) == 2
    assert written == [b"ada", b"bob"]
