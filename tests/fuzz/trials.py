"""Definitions whose sources are tried: files that can be read, a host that is refused, a port at which nobody is."""

# mypy: disable-error-code="attr-defined"

from datetime import datetime
from pathlib import Path
from typing import Any

from caraway import connectors, dataset, field, meta
from caraway.connectors import Files, Postgres, source
from caraway.connectors.data_connector import DataConnector
from caraway.graph.specs import Graph
from caraway.graph.wire.graphs import CommitRequest, encode_commit

# Has rows of which some fit. A server that is fuzzed may read it (`sources.local_folders`). It is a part of the clone,
# so that a seed gives the same messages in each run.
ROWS = Path(__file__).parent / "rows"
# The dataset that each of the definitions has.
TRIED = "Tried"


def definitions() -> dict[str, bytes]:
    """Return commits as bytes, by what the answer to a trial of each says: its rows, a refusal, or a failure."""
    login: dict[str, Any] = {"db_name": "fuzz", "username": "fuzz", "password": "fuzz"}
    cloud = Postgres(name="cloud", host="169.254.169.254", port=80, **login)
    nobody = Postgres(name="nobody", host="127.0.0.1", port=1, **login)
    return {
        '"accepted":true': _defined(Files(name="drop").folder(str(ROWS), path="*.json", format="json")),
        "where clouds tell a machine's identity": _defined(cloud.table("rows", "at")),
        "refused": _defined(nobody.table("rows", "at")),
    }


def _defined(connector: DataConnector) -> bytes:
    where = connectors.eval(lambda rows: rows["moisture"] > 0.2)

    @meta(owner="fuzz@example.com")
    @source(connector, disorder="1h", cdc="append", every="1h", where=where)
    @dataset
    class Tried:
        pot: int
        moisture: float
        at: datetime = field(timestamp=True)

    return encode_commit(CommitRequest(message="fuzz", graph=Graph(datasets=(Tried.to_spec(),))))
