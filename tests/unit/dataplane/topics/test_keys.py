"""The keys that an erasure hides: exactly those with its values, on its topic, in processes that have its secret."""

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.topics.codec import RecordCodec
from caraway.dataplane.topics.erased_keys import ErasedKeys, decode_erasure, encode_erasure, erasure_of, is_erasure
from caraway.dtypes.types import FLOAT, INT, STRING
from caraway.errors import InvalidInputError, UnavailableError
from caraway.graph.plan.model import Column, RecordSchema, definition_of
from tests.effort import examples

USER, SHOP, RATE = Column(name="user", dtype=INT), Column(name="shop", dtype=STRING), Column(name="rate", dtype=FLOAT)
MAC_KEYS = {"first": b"1" * 32, "second": b"2" * 32}
TOPIC = "caraway.Orders.0123456789ab"
Erased = tuple[tuple[Column, ...], tuple[object, ...], str]


def kafka_key(columns: tuple[Column, ...], values: Sequence[object]) -> bytes:
    codec = RecordCodec(RecordSchema(keys=columns, columns=columns, timestamp="at", fingerprint=1))
    return codec.encode_key(values) or b""


def erased(*keys: Erased) -> ErasedKeys:
    made = ErasedKeys(lambda: MAC_KEYS)
    made.add(TOPIC, [erasure_of(TOPIC, columns, values, name, MAC_KEYS[name]) for columns, values, name in keys])
    return made


USERS, RATES = st.integers(0, 6), st.integers(0, 6).map(float)
SHOPS = st.sampled_from(["a", "b", "ä", ""])


def erasures(*columns: tuple[Column, ...]) -> st.SearchStrategy[list[Erased]]:
    """Return erasures by the values of some of these columns, by either secret."""
    values = {USER: USERS, SHOP: SHOPS, RATE: RATES}
    names = st.sampled_from(list(MAC_KEYS))
    each = (st.tuples(st.just(some), st.tuples(*(values[one] for one in some)), names) for some in columns)
    return st.lists(st.one_of(*each), max_size=5)


@settings(max_examples=examples(100))
@given(erasures((USER,), (SHOP,), (USER, SHOP)), USERS, SHOPS)
def test_it_hides_rows_that_have_all_its_values(keys: list[Erased], user: int, shop: str) -> None:
    hides = erased(*keys).hides(TOPIC, (USER, SHOP))
    row = {"user": user, "shop": shop}
    expected = any(all(row[c.name] == v for c, v in zip(columns, values, strict=True)) for columns, values, _ in keys)
    assert (hides is not None) == bool(keys)
    assert (hides is not None and hides(kafka_key((USER, SHOP), (user, shop)))) == expected


@pytest.mark.parametrize(
    ("topic", "definition"),
    [
        (TOPIC, "Orders.0123456789ab"),
        (f"{TOPIC}.2", "Orders.0123456789ab"),
        # A hash may have digits only, like a generation, and the name of a dataset may look like a hash.
        ("caraway.Orders.210987654321", "Orders.210987654321"),
        ("caraway.Orders.210987654321.3", "Orders.210987654321"),
        ("caraway.abcdefabcdef.210987654321", "abcdefabcdef.210987654321"),
    ],
)
def test_all_generations_have_the_erased_keys_of_their_definition(topic: str, definition: str) -> None:
    assert definition_of(topic) == definition
    known = ErasedKeys(lambda: MAC_KEYS)
    known.add(topic, [erasure_of(topic, (USER,), (7,), "first", MAC_KEYS["first"])])
    for other in (f"caraway.{definition}", f"caraway.{definition}.5"):
        hides = known.hides(other, (USER,))
        assert hides is not None
        assert hides(kafka_key((USER,), (7,)))
    # The rows that an index writes for jobs keep erased keys.
    assert known.hides(f"caraway.{definition}.rows", (USER,)) is None


def test_an_erasure_is_of_one_definition_and_its_columns() -> None:
    known = erased(((USER,), (7,), "first"))
    assert known.hides("caraway.Orders.ba9876543210", (USER,)) is None
    hides = known.hides(TOPIC, (USER,))
    assert hides is not None
    assert known.hides(TOPIC, (SHOP,)) is None
    assert hides(kafka_key((USER,), (7,)))
    assert not hides(kafka_key((USER,), (8,)))
    one = erasure_of(TOPIC, (USER,), (7,), "first", MAC_KEYS["first"])
    others = [
        erasure_of("caraway.Orders.ba9876543210", (USER,), (7,), "first", MAC_KEYS["first"]),
        erasure_of(TOPIC, (Column(name="buyer", dtype=INT),), (7,), "first", MAC_KEYS["first"]),
        erasure_of(TOPIC, (USER,), (7,), "first", MAC_KEYS["second"]),
    ]
    assert all(one.digest != other.digest for other in others)


def test_an_int_in_a_float_column_is_the_same_key() -> None:
    hides = erased(((RATE,), (3,), "first")).hides(TOPIC, (RATE,))
    assert hides is not None
    assert hides(kafka_key((RATE,), (3.0,)))


def test_without_the_secret_of_a_hash_a_key_is_not_checked() -> None:
    held = {"first": MAC_KEYS["first"]}
    known = ErasedKeys(lambda: held)
    known.add(TOPIC, [erasure_of(TOPIC, (USER,), (u,), n, MAC_KEYS[n]) for u, n in ((1, "first"), (2, "second"))])
    with pytest.raises(UnavailableError, match="erased with the key second"):
        known.hides(TOPIC, (USER,))
    lenient = known.hides(TOPIC, (USER,), strict=False)
    assert lenient is not None
    assert [lenient(kafka_key((USER,), (user,))) for user in (1, 2)] == [True, False]
    held["second"] = MAC_KEYS["second"]
    hides = known.hides(TOPIC, (USER,))
    assert hides is not None
    assert hides(kafka_key((USER,), (2,)))


def test_the_record_of_an_erasure_is_no_row_and_has_no_value_of_the_key() -> None:
    erasure = erasure_of(TOPIC, (SHOP,), ("a very private name",), "first", MAC_KEYS["first"])
    key, value = encode_erasure(erasure)
    assert is_erasure(key)
    assert decode_erasure(value) == erasure
    assert b"private" not in key + value
    codec = RecordCodec(RecordSchema(keys=(SHOP,), columns=(SHOP,), timestamp="at", fingerprint=1))
    with pytest.raises(InvalidInputError):
        codec.decode_key(key)
    with pytest.raises(InvalidInputError):
        codec.decode_value(value)
    for wrong in (None, b"", b"\x92\x03\x90", b"\x92\x01\x93\x90\xa1k\xc4\x10" + b"0" * 16):
        with pytest.raises(InvalidInputError, match="no record of an erasure"):
            decode_erasure(wrong)


@settings(max_examples=examples(100))
@given(erasures((USER,), (SHOP,), (RATE, SHOP)), USERS, SHOPS, RATES)
def test_a_row_is_erased_by_its_key_or_by_other_columns(keys: list[Erased], user: int, shop: str, rate: float) -> None:
    schema = RecordSchema(keys=(USER,), columns=(USER, RATE, SHOP), timestamp="at", fingerprint=1)
    known = erased(*keys)
    row = {USER: user, RATE: rate, SHOP: shop}

    def found(by_key: bool) -> bool:
        return any(
            all(row[c] == v for c, v in zip(columns, values, strict=True))
            for columns, values, _ in keys
            if (columns == (USER,)) is by_key
        )

    by_key, by_row = known.hides(TOPIC, schema.keys), known.hides_row(TOPIC, schema)
    assert (by_key is not None and by_key(kafka_key((USER,), (user,)))) == found(True)
    assert (by_row is not None and by_row([user, rate, shop])) == found(False)
    assert known.hides_values(TOPIC, row) == (found(True) or found(False))
    # A column that isn't known of a row can't erase it.
    assert not erased(((RATE, SHOP), (rate, shop), "first")).hides_values(TOPIC, {SHOP: shop})
