"""Erased keys: the record that announces one to a topic's readers, and the test whether a key is erased.

A key is a value of a key column of the dataset, or of another column that its definition marks as an erase key. An
erased key itself is kept nowhere. A keyed hash of it is kept instead (BLAKE2b with a key of the deployment, RFC
7693). The hash covers the dataset's definition and the columns too, so it doesn't show that two datasets had the same
key. A key is erased on a topic. It stays erased on all topics of the same definition, such as one for which the dataset
is computed again.
"""

import hashlib
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from caraway.dataplane.topics.codec import RecordCodec
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.erase_keys import Erasure
from caraway.graph.plan.model import Column, RecordSchema, definition_of

# The Kafka key of the records that announce erasures. Keys of rows are MessagePack, which never begins with the byte
# c1, so no row has this key.
ERASURE_KEY = b"\xc1caraway.erase"
ERASURE_FORMAT = 1
DIGEST_BYTES = 16

# A function that returns whether a Kafka key is erased.
Hides = Callable[[bytes], bool]
# A function that returns whether a row is erased, given its columns in stored form, in the order of its schema.
HidesRow = Callable[[Sequence[object]], bool]
Hash = Any  # hashlib has no public name for the type of its hashes


@dataclass(frozen=True, slots=True)
class HidesRecord:
    """The check whether a record is erased: `key` by its Kafka key, `row` by columns that aren't keys; None: never."""

    key: Hides | None
    row: HidesRow | None


_ENCODE = msgspec.msgpack.Encoder().encode


class _Announcement(msgspec.Struct, array_like=True, frozen=True):
    """The value of the record of an erasure."""

    format: int
    erasure: Erasure


_DECODE = msgspec.msgpack.Decoder(_Announcement).decode


def encode_erasure(erasure: Erasure) -> tuple[bytes, bytes]:
    """Return Kafka's key and value of the record of an erasure."""
    return ERASURE_KEY, _ENCODE((ERASURE_FORMAT, erasure))


def is_erasure(key: bytes | None) -> bool:
    """Return whether a record with this Kafka key announces an erasure instead of holding a row."""
    return key == ERASURE_KEY


def decode_erasure(value: bytes | None) -> Erasure:
    """Return the erasure in the value of a record.

    Raises `InvalidInputError` if the value isn't that of an erasure.
    """
    try:
        found = _DECODE(value or b"")
    except msgspec.MsgspecError as error:
        raise InvalidInputError(f"it is no record of an erasure: {error}") from error
    erasure = found.erasure
    if found.format != ERASURE_FORMAT or len(erasure.digest) != DIGEST_BYTES or not erasure.columns:
        raise InvalidInputError(f"it is no record of an erasure of format {ERASURE_FORMAT}")
    return erasure


def erasure_of(topic: str, columns: Sequence[Column], values: Sequence[object], key_id: str, mac_key: bytes) -> Erasure:
    """Return the erasure of a key.

    Args:
        topic: The topic on which the key is erased; other topics of its definition get the same hash.
        columns: Some of the columns there.
        values: Their values in stored form.
        key_id: The name of `mac_key`.
        mac_key: A secret of this deployment, up to 64 bytes.
    """
    names = tuple(column.name for column in columns)
    digest = _hash(definition_of(topic), names, mac_key)
    digest.update(RecordCodec.of_keys(columns).encode_key(values))
    return Erasure(names, key_id, digest.digest())


class ErasedKeys:
    """All erased keys that this process knows of. Thread safe; keys are only ever added."""

    def __init__(self, mac_keys: Callable[[], Mapping[str, bytes]]) -> None:
        """Start without keys; `mac_keys` returns the secrets of the hashes by name, and is called when needed."""
        self._mac_keys = mac_keys
        self._lock = threading.Lock()
        # The hashes of the erased keys. The outer key is the definition of the topic, since a key is erased on all
        # topics of a definition. The inner key has the columns of the erased key and the name of the secret of the
        # hashes.
        self._groups: dict[str, dict[tuple[tuple[str, ...], str], set[bytes]]] = {}
        self._known: dict[tuple[str, tuple[Column, ...]], tuple[int, Hides | None, str]] = {}
        self._known_rows: dict[tuple[str, RecordSchema], tuple[int, HidesRow | None, str]] = {}

    def add(self, topic: str, erasures: Iterable[Erasure]) -> None:
        """Add keys that are erased on a topic, and on all others of its definition."""
        with self._lock:
            groups = self._groups.setdefault(definition_of(topic), {})
            for erasure in erasures:
                groups.setdefault((erasure.columns, erasure.key_id), set()).add(erasure.digest)

    def known(self, topic: str) -> list[Erasure]:
        """Return the keys that are erased on a topic, as far as this process knows."""
        with self._lock:
            groups = self._groups.get(definition_of(topic), {})
            return [Erasure(columns, key_id, digest) for (columns, key_id), found in groups.items() for digest in found]

    def hides(self, topic: str, keys: tuple[Column, ...], *, strict: bool = True) -> Hides | None:
        """Return the function that checks whether a Kafka key is erased on a topic; None if none can be.

        Rows that are erased by other columns than these keys are found by `hides_row` only.

        Args:
            topic: The name of the topic.
            keys: The columns that the Kafka keys are made of.
            strict: Refuse if some hashes can't be compared; otherwise leave these out.

        Raises:
            UnavailableError: This process lacks the secret of some hashes, so it can't compare them.
        """
        definition = definition_of(topic)
        groups = self._groups.get(definition)
        if not groups:
            return None
        known = self._known.get((definition, keys))
        # Secrets that were missing are looked for again, since an operator may have added them to the key file
        # meanwhile.
        if known is None or known[0] != len(groups) or known[2]:
            with self._lock:
                known = self._known[definition, keys] = (len(groups), *self._compiled(definition, keys, dict(groups)))
        if strict:
            _require(topic, known[2])
        return known[1]

    def hides_row(self, topic: str, schema: RecordSchema) -> HidesRow | None:
        """Return the function that checks whether a row is erased by columns that aren't keys; None if no row is.

        Args:
            topic: The name of the topic.
            schema: The schema of the rows.

        Raises:
            UnavailableError: This process lacks the secret of some hashes, so it can't compare them.
        """
        definition = definition_of(topic)
        groups = self._groups.get(definition)
        if not groups:
            return None
        known = self._known_rows.get((definition, schema))
        if known is None or known[0] != len(groups) or known[2]:
            with self._lock:
                compiled = self._compiled_rows(definition, schema, groups)
                known = self._known_rows[definition, schema] = (len(groups), *compiled)
        _require(topic, known[2])
        return known[1]

    def hides_record(self, topic: str, schema: RecordSchema) -> HidesRecord | None:
        """Return the check whether a record is erased on a topic; None if none is. It raises as `hides_row` does."""
        key, row = self.hides(topic, schema.keys), self.hides_row(topic, schema)
        return None if key is None and row is None else HidesRecord(key, row)

    def hides_values(self, topic: str, values: Mapping[Column, object]) -> bool:
        """Return whether a row is erased on a topic, given the columns that are known of it, in stored form.

        Raises:
            UnavailableError: As in `hides`.
        """
        schema = RecordSchema(keys=(), columns=tuple(values), timestamp="", fingerprint=0)
        test = self.hides_row(topic, schema) if values else None
        return test is not None and test(list(values.values()))

    def _compiled(
        self, definition: str, keys: tuple[Column, ...], groups: Mapping[tuple[tuple[str, ...], str], set[bytes]]
    ) -> tuple[Hides | None, str]:
        """Return the test of a key, and the names of the secrets that are missing for it."""
        mac_keys = self._mac_keys()
        missing = sorted({key_id for _, key_id in groups if key_id not in mac_keys})
        tests = [
            _erased_key_check(definition, keys, columns, mac_keys[key_id], digests)
            for (columns, key_id), digests in groups.items()
            if key_id in mac_keys and {key.name for key in keys} >= set(columns)
        ]
        if len(tests) == 1:
            return tests[0], ", ".join(missing)
        return (lambda key: any(test(key) for test in tests)) if tests else None, ", ".join(missing)

    def _compiled_rows(
        self, definition: str, schema: RecordSchema, groups: Mapping[tuple[tuple[str, ...], str], set[bytes]]
    ) -> tuple[HidesRow | None, str]:
        """Return the test of a row, and the names of the secrets that are missing for it."""
        mac_keys = self._mac_keys()
        keys, there = {key.name for key in schema.keys}, {column.name for column in schema.columns}
        wanted = {
            group: digests
            for group, digests in groups.items()
            if there.issuperset(group[0]) and not keys.issuperset(group[0])
        }
        missing = sorted({key_id for _, key_id in wanted if key_id not in mac_keys})
        tests = [
            _erased_row_check(definition, schema.columns, columns, mac_keys[key_id], digests)
            for (columns, key_id), digests in wanted.items()
            if key_id in mac_keys
        ]
        return (lambda row: any(test(row) for test in tests)) if tests else None, ", ".join(missing)


def _require(topic: str, missing: str) -> None:
    """Raise UnavailableError if secrets are missing with which keys of a topic were erased."""
    if missing:
        raise UnavailableError(
            f"keys of {topic} were erased with the key {missing}, which this process hasn't got: it can't tell "
            "which rows it must not show; give it the deployment's key file (secrets.key_file)"
        )


def _erased_row_check(
    definition: str, schema: Sequence[Column], columns: tuple[str, ...], mac_key: bytes, digests: set[bytes]
) -> HidesRow:
    begun = _hash(definition, columns, mac_key)
    names = [column.name for column in schema]
    positions = [names.index(name) for name in columns]
    encode = RecordCodec.of_keys(schema[position] for position in positions).encode_key

    def is_erased(row: Sequence[object]) -> bool:
        digest = begun.copy()
        digest.update(encode([row[position] for position in positions]) or b"")
        return digest.digest() in digests

    return is_erased


def _erased_key_check(
    definition: str, keys: tuple[Column, ...], columns: tuple[str, ...], mac_key: bytes, digests: set[bytes]
) -> Hides:
    begun = _hash(definition, columns, mac_key)
    names = [column.name for column in keys]
    if list(columns) == names:

        def is_erased_whole(key: bytes) -> bool:
            digest = begun.copy()
            digest.update(key)
            return digest.digest() in digests

        return is_erased_whole
    positions = [names.index(name) for name in columns]
    encode = RecordCodec.of_keys(keys[position] for position in positions).encode_key
    decode = RecordCodec.of_keys(keys).decode_key

    def is_erased_in_part(key: bytes) -> bool:
        try:
            values = decode(key)
        except InvalidInputError:
            return False
        digest = begun.copy()
        digest.update(encode([values[position] for position in positions]) or b"")
        return digest.digest() in digests

    return is_erased_in_part


def _hash(definition: str, columns: Sequence[str], mac_key: bytes) -> Hash:
    """Return a keyed hash of definition and columns, to which the values of the key are still to be added."""
    return hashlib.blake2b(_ENCODE((definition, tuple(columns))), digest_size=DIGEST_BYTES, key=mac_key)
