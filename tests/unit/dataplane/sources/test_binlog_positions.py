"""Positions in a binary log, which have 32 bits in the protocol."""

from types import SimpleNamespace
from typing import Any

import pytest

from caraway.dataplane.sources.cdc.mysql import stream
from caraway.dataplane.sources.cdc.mysql.statements import TableName
from caraway.dataplane.sources.cdc.mysql.stream import MOST, Stream

GIB = 1 << 30


@pytest.mark.parametrize(
    ("positions", "end"),
    [
        ([GIB, 4 * GIB - 1], 4 * GIB - 1),
        # The transaction goes on behind 4 GiB, where the position begins again.
        ([GIB, 4 * GIB - 1, 10, GIB], MOST),
        # Events that aren't in the log have none.
        ([GIB, 0], GIB),
    ],
)
def test_a_transaction_beyond_4_gib_ends_at_the_end_of_its_file(
    positions: list[int], end: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = [SimpleNamespace(packet=SimpleNamespace(log_pos=each, flags=0, event_size=100)) for each in positions]

    def reader(*_: Any, **__: Any) -> Any:
        return SimpleNamespace(fetchone=lambda: events.pop(0), table_map={})

    monkeypatch.setattr(stream, "BinLogStreamReader", reader)
    opened = Stream({}, "MySQL", "binlog.000007", (7, 4), TableName("garden", "plants"))
    for _ in positions:
        opened.read(0.0)
    assert opened.end == (7, end)
