"""Decoding of Kafka's records: rows a second of each format, beside its library alone.

    python -m bench sources_decoding [--rows 50000] [--json FILE]

Rows have the six fields of `bench/sources.py`. "Alone" is the library with the schema at hand: orjson's `loads`,
fastavro's `schemaless_reader`, and Protobuf's `FromString` with `json_format.MessageToDict`. Beside it stands a
decoder of a source, with a registry that answers from memory. No broker is needed.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from datetime import datetime
from io import BytesIO
from pathlib import Path
from struct import pack
from typing import Any

import orjson
from fastavro import parse_schema, schemaless_reader, schemaless_writer
from google.protobuf.json_format import MessageToDict
from google.protobuf.message_factory import GetMessageClass
from rich.table import Table
from sources import rows

from caraway.apps.cli.output import out
from caraway.dataplane.sources.decoding.formats import decoder_of
from caraway.dataplane.sources.decoding.protobuf_schemas import compile_file
from caraway.dataplane.sources.decoding.registry import RegisteredSchema
from caraway.graph.systems import RegistryFormat, SchemaRegistry
from tests.registry_server import registry_server

HEADER = 5
BATCH = 10_000
RUNS = 3
AVRO = {
    "type": "record",
    "name": "Purchase",
    "fields": [
        {"name": "user", "type": "string"},
        {"name": "merchant", "type": "string"},
        {"name": "amount", "type": "double"},
        {"name": "items", "type": "int"},
        {"name": "online", "type": "boolean"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
    ],
}
PROTOBUF = """
syntax = "proto3";
import "google/protobuf/timestamp.proto";
message Purchase {
  string user = 1;
  string merchant = 2;
  double amount = 3;
  int32 items = 4;
  bool online = 5;
  google.protobuf.Timestamp at = 6;
}
"""


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    options = parser.parse_args()
    found = decoding(options.rows)
    report = {
        "bench": "sources_decoding",
        "rows": options.rows,
        "rows_per_second": found,
        "cpus": os.cpu_count(),
        "load_average": os.getloadavg()[0],
    }
    table = Table("format", "library alone, rows/s", "decoder, rows/s", "share")
    for name, figures in found.items():
        alone, ours = figures["alone"], figures["decoder"]
        table.add_row(name, f"{alone:,.0f}", f"{ours:,.0f}", f"{ours / alone:.2f}")
    out.print(table)
    print(json.dumps(report))
    if options.json:
        options.json.write_text(json.dumps(report, indent=2))
    return 0


def decoding(count: int) -> dict[str, dict[str, float]]:
    """Return the rows a second of each format, for its library alone and for the decoder of a source."""
    objects = [{**orjson.loads(row)} for row in rows(count)]
    for row in objects:
        row["at"] = datetime.fromisoformat(row["at"])
    found: dict[str, dict[str, float]] = {}
    with registry_server() as registry:
        avro_id = registry.add("avro", AVRO)
        protobuf_id = registry.add("protobuf", PROTOBUF, "PROTOBUF")
        parsed = parse_schema(AVRO)
        compiled = compile_file(RegisteredSchema(id=protobuf_id, kind="PROTOBUF", text=PROTOBUF))
        message = GetMessageClass(compiled.message_types_by_name["Purchase"])
        known = {kind: SchemaRegistry(format=kind, registry="confluent", url=registry.url) for kind in RegistryFormat}
        cases: dict[str, tuple[Any, list[bytes], Callable[[bytes], object]]] = {
            "json": ("json", list(rows(count)), orjson.loads),
            "avro": (
                known[RegistryFormat.AVRO],
                [pack(">bI", 0, avro_id) + _avro(parsed, row) for row in objects],
                lambda value: schemaless_reader(BytesIO(value[HEADER:]), parsed, None),
            ),
            "protobuf": (
                known[RegistryFormat.PROTOBUF],
                [pack(">bIb", 0, protobuf_id, 0) + message(**row).SerializeToString() for row in objects],
                lambda value: MessageToDict(message.FromString(value[HEADER + 1 :])),
            ),
        }
        for name, (kind, values, alone) in cases.items():
            with closing(decoder_of(kind, str)) as decoder:

                def decode(values: Sequence[bytes], decode: Any = decoder.decode) -> None:
                    for start in range(0, len(values), BATCH):
                        _, faults = decode(values[start : start + BATCH])
                        if faults:
                            raise ValueError(faults)

                # The first batch also asks for the schema, and compiles it.
                decode(values[:1])
                found[name] = {
                    "alone": count / _seconds(lambda values=values, alone=alone: [alone(value) for value in values]),
                    "decoder": count / _seconds(lambda values=values, decode=decode: decode(values)),
                }
    return found


def _avro(parsed: Any, row: dict[str, Any]) -> bytes:
    stream = BytesIO()
    schemaless_writer(stream, parsed, row)
    return stream.getvalue()


def _seconds(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        begun = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - begun)
    return best


if __name__ == "__main__":
    raise SystemExit(main())
