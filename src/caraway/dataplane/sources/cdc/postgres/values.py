"""Values of Postgres: from the texts that its types' output functions write, as the settings below make them.

The log and the snapshot have the same texts, and so the same values. Values stay text if
the casts of datasets understand it: decimals, instants, days, UUIDs, enums and all types of extensions.
"""

from collections.abc import Callable, Sequence
from typing import Any

import orjson
from psycopg import Connection, DataError
from psycopg.abc import Loader as PsycopgLoader
from psycopg.adapt import Transformer
from psycopg.pq import Format

# The settings of a session by which texts are the same everywhere: instants in ISO 8601 with the offset of UTC, floats
# in all digits, bytes in hexadecimal.
SESSION = {
    "client_encoding": "UTF8",
    "DateStyle": "ISO",
    "IntervalStyle": "iso_8601",
    "TimeZone": "UTC",
    "extra_float_digits": "3",
    "bytea_output": "hex",
}

BOOL, BYTEA, INT8, INT2, INT4, OID = 16, 17, 20, 21, 23, 26
JSON, JSONB = 114, 3802
FLOAT4, FLOAT8 = 700, 701

Loader = Callable[[bytes], object]


def _bytes(text: bytes) -> bytes:
    return bytes.fromhex(text[2:].decode())


def _is_true(text: bytes) -> bool:
    return text == b"t"


def _json(text: bytes) -> object:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        # orjson can't read this JSON, for example because it is nested too deeply. Its text doesn't fit the field, so
        # the row becomes a dead letter.
        return text.decode()


_LOADERS: dict[int, Loader] = {
    BOOL: _is_true,
    BYTEA: _bytes,
    INT2: int,
    INT4: int,
    INT8: int,
    OID: int,
    FLOAT4: float,
    FLOAT8: float,
    JSON: _json,
    JSONB: _json,
}


def loaded(texts: Sequence[bytes | None], load: Loader | None) -> list[Any]:
    """Return the values of a column's texts by its loader; None stays None.

    Args:
        texts: The texts.
        load: Returns the value of a text; None if the value is the text.
    """
    if load is not None:
        return list(map(load, texts)) if None not in texts else [None if text is None else load(text) for text in texts]  # type: ignore[arg-type]
    if None in texts or not texts:
        return [None if text is None else text.decode() for text in texts]
    # Texts of Postgres never have the character 0, so it can separate texts that are decoded together.
    return b"\0".join(texts).decode().split("\0")  # type: ignore[arg-type]


class Values:
    """The loaders of values by type."""

    def __init__(self, connection: "Connection[object]", texts: frozenset[str]) -> None:
        """Use what psycopg knows of arrays on a connection.

        Args:
            connection: Any connection.
            texts: The columns whose JSON stays text, since the dataset wants text.
        """
        self._connection = connection
        self._transformer = Transformer(connection)
        self._texts = texts

    def loader(self, column: str, oid: int) -> Loader | None:
        """Return the function that makes a value of the text of a type; None if the value is the text."""
        if oid in {JSON, JSONB} and column in self._texts:
            return None
        if (found := _LOADERS.get(oid)) is not None:
            return found
        known = self._connection.adapters.types.get(oid)
        if known is not None and known.array_oid == oid:
            loader = self._transformer.get_loader(oid, Format.TEXT)
            return _array_loader(loader)
        return None


def _array_loader(loader: PsycopgLoader) -> Loader:
    def load(text: bytes) -> object:
        try:
            return loader.load(text)
        except DataError:
            # The array has a value that Python doesn't have, such as an infinite instant. Its text doesn't fit the
            # field, so the row becomes a dead letter.
            return text.decode()

    return load
