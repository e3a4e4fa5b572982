"""Tests of the rows that a sample keeps."""

import hashlib
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.rows.sampling import hash64, sampler
from caraway.dtypes.types import DATETIME, FLOAT, STRING
from caraway.graph.connectors import WebhookConnector
from caraway.graph.source_checks import sample_columns
from caraway.graph.sources import Cdc, Ref, SampleSpec, SourceSpec
from caraway.graph.specs import DatasetSpec, FieldSpec

SOURCE = SourceSpec(
    connector=WebhookConnector(name="w", endpoint="e", retention_us=0),
    cdc=Cdc.UPSERT,
    disorder_us=0,
    sample=SampleSpec(rate=0.5),
)
KEYED = DatasetSpec(
    name="D",
    version=1,
    history_us=0,
    fields=(
        FieldSpec(name="user", dtype=STRING, key=True),
        FieldSpec(name="city", dtype=STRING, key=True),
        FieldSpec(name="amount", dtype=FLOAT),
        FieldSpec(name="at", dtype=DATETIME, timestamp=True),
    ),
    index=None,
)
KEYLESS = replace(KEYED, fields=tuple(replace(f, key=False) for f in KEYED.fields))


# The encoded bytes are written out, because a hash in another language must be computed from the same bytes.
VECTORS = [
    ([], "90"),
    (["a"], "91a161"),
    ([1, -1, 300], "9301ffcd012c"),
    ([None, True, 1.5], "93c0c3cb3ff8000000000000"),
    ([b"x", [1], {"a": 1}], "93c401789101" + "81a16101"),
    (["é", 1_700_000_000_000_000], "92a2c3a9cf00060a24181e4000"),
]


@pytest.mark.parametrize(("values", "encoded"), VECTORS)
def test_vectors(values: list[object], encoded: str) -> None:
    assert hash64(values) == int.from_bytes(hashlib.sha256(bytes.fromhex(encoded)).digest()[:8], "big")


def test_a_hash_is_what_it_always_was() -> None:
    assert f"{hash64(['a']):016x}" == "e7753f36e0b06825"


def test_columns_are_those_given_else_the_keys_else_all_but_the_timestamp() -> None:
    assert sample_columns(KEYED, replace(SOURCE, sample=SampleSpec(rate=0.5, using=("user", "amount")))) == (
        "amount",
        "user",
    )
    assert sample_columns(KEYED, SOURCE) == ("city", "user")
    assert sample_columns(KEYLESS, SOURCE) == ("amount", "city", "user")
    made = replace(SOURCE, preproc=(("city", Ref(path=("town",))),))
    assert sample_columns(KEYED, made) == ("user",)
    assert sample_columns(KEYLESS, made) == ("amount", "user")


@given(rows=st.lists(st.tuples(st.text(), st.text(), st.floats(allow_nan=False)), max_size=20), rate=st.floats(0, 1))
def test_rows_of_one_key_share_their_fate_and_a_greater_rate_keeps_more(
    rows: list[tuple[str, str, float]], rate: float
) -> None:
    keeps = sampler(KEYED, replace(SOURCE, sample=SampleSpec(rate=rate)))
    keeps_all = sampler(KEYED, replace(SOURCE, sample=SampleSpec(rate=1.0)))
    keeps_none = sampler(KEYED, replace(SOURCE, sample=SampleSpec(rate=0.0)))
    keeps_more = sampler(KEYED, replace(SOURCE, sample=SampleSpec(rate=(1 + rate) / 2)))
    for user, city, amount in rows:
        row = {"user": user, "city": city, "amount": amount, "at": 1}
        assert keeps(row) == keeps({**row, "amount": -amount, "at": 2})
        assert keeps_all(row)
        assert not keeps_none(row)
        assert keeps_more(row) or not keeps(row)


def test_the_share_is_about_the_rate() -> None:
    keeps = sampler(KEYED, replace(SOURCE, sample=SampleSpec(rate=0.2)))
    kept = sum(keeps({"user": f"u{n}", "city": "x", "amount": 0.0, "at": 1}) for n in range(2000))
    assert 340 < kept < 460  # three and a half standard deviations of a binomial with p = 0.2


def test_without_a_sample_all_rows_are_kept() -> None:
    assert sampler(KEYED, replace(SOURCE, sample=None))({})
