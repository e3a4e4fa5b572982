"""Small programs as users of Fennel's client write them, which the rows of the specification don't tell apart."""

# ruff: noqa: ANN001, ANN201, ANN202, ANN205, ANN206 (definitions as users write them)
# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined, list-item, assignment, arg-type"
# mypy: disable-error-code="type-arg, valid-type, misc"

from datetime import UTC, date, datetime
from decimal import Decimal as Number
from typing import Any, Dict, List, Optional

import pandas as pd
import pytest

from caraway.client import Client
from caraway.connectors import Webhook, source
from caraway.datasets import FirstK, LastK, dataset, field, pipeline
from caraway.dtypes import Continuous, Decimal, Embedding, struct
from caraway.errors import CommitError, DefinitionError, DefinitionTypeError, InvalidInputError
from caraway.expr import col, repeat, var
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.graph.wire.graphs import decode_commit, encode_commit
from caraway.lib import inputs, outputs
from tests.unit.testing.shop import committed

__owner__ = "programs@example.com"

HOOK = Webhook(name="programs")
T0 = datetime(2024, 1, 1, tzinfo=UTC)


@struct
class Visit:
    page: str
    on: Optional[date]


@source(HOOK.endpoint("people"), disorder="1d", cdc="upsert")
@dataset(index=True)
class People:
    person: int = field(key=True)
    born: date
    visit: Visit
    holidays: List[date]
    birthdays: Dict[str, date]
    visits: List[Visit]
    price: Decimal[2]
    called: datetime
    face: Embedding[2]
    at: datetime = field(timestamp=True)


@featureset
class Person:
    person: int
    born: date = F(People.born, default=date(2020, 1, 2))
    visit: Visit = F(People.visit, default=Visit("home", date(2021, 1, 1)))
    holidays: List[date] = F(People.holidays, default=[date(1960, 1, 2)])
    birthdays: Dict[str, date] = F(People.birthdays, default={"a": date(2020, 1, 2)})
    visits: List[Visit] = F(People.visits, default=[Visit("home", None)])
    price: Decimal[2] = F(People.price, default=Number("1.25"))
    called: datetime = F(People.called, default=datetime(1970, 1, 1, tzinfo=UTC))
    face: Embedding[2] = F(People.face, default=[1.0, 2.0])


@featureset
class Maybe:
    person: int
    born: Optional[date] = F(People.born)
    visit: Optional[Visit] = F(People.visit)


@featureset
class Certain:
    born: date = F(Maybe.born, default=date(1970, 1, 1))
    visit: Visit = F(Maybe.visit, default=Visit("none", None))


@featureset
class Group:
    person: List[int]
    born: List[date] = F(People.born, default=date(2020, 1, 2))


def queried(client: Client, given: Any, value: object, want: Any) -> dict[str, Any]:
    frame = client.query([given], [want], pd.DataFrame({given.fqn(): [value]}))
    return {name.partition(".")[2]: frame[name].tolist()[0] for name in frame.columns}


def test_defaults_of_every_type_stand_for_what_is_not_found() -> None:
    client = committed([People], [Person, Maybe, Certain, Group])
    assert queried(client, Person.person, 1, Person) == {
        "person": 1,
        "born": date(2020, 1, 2),
        "visit": Visit("home", date(2021, 1, 1)),
        "holidays": [date(1960, 1, 2)],
        "birthdays": {"a": date(2020, 1, 2)},
        "visits": [Visit("home", None)],
        "price": Number("1.25"),
        "called": pd.Timestamp(0, tz="UTC"),
        "face": [1.0, 2.0],
    }
    assert queried(client, Maybe.person, 1, Certain) == {
        "born": date(1970, 1, 1),
        "visit": Visit("none", None),
    }
    assert queried(client, Group.person, [1, 2], Group)["born"] == [date(2020, 1, 2)] * 2


def test_defaults_survive_the_way_to_a_server() -> None:
    request = Client.build_commit("people", datasets=[People], featuresets=[Person, Maybe, Certain, Group])
    assert decode_commit(encode_commit(request)) == request


@source(HOOK.endpoint("words"), disorder="1d", cdc="append")
@dataset
class Words:
    word: str
    at: datetime


def doubled(value: int) -> int:
    return value * 2


def test_a_pipeline_uses_the_helpers_of_its_dataset() -> None:
    @dataset(index=True)
    class Lengths:
        word: str = field(key=True)
        length: int
        named: int
        both: int
        at: datetime

        EXTRA = 3

        @classmethod
        def plus(cls, df):
            return cls.length_of(df) + cls.EXTRA

        @staticmethod
        def length_of(df):
            return df["word"].str.len().map(doubled).astype("Int64")

        @classmethod
        def prepared(cls, words):
            return words.filter(lambda df: df["word"] != "")

        @pipeline
        @inputs(Words)
        def count(cls, words):
            return (
                cls.prepared(words)
                .assign("length", int, lambda df: cls.plus(df))
                .assign("named", int, lambda df: df["length"] + len(cls.__name__))
                .assign("both", int, cls.plus)
                .groupby("word")
                .latest()
            )

    client = committed([Words, Lengths])
    client.log("programs", "words", pd.DataFrame({"word": ["abc", ""], "at": [T0, T0]}))
    found = client.get_dataset_df("Lengths")
    assert found[["word", "length", "named", "both"]].to_numpy().tolist() == [["abc", 9, 16, 9]]


def lengths(extra: int):
    @dataset
    class Longer:
        word: str
        length: int
        at: datetime

        EXTRA = extra

        @classmethod
        def plus(cls, df):
            return df["word"].str.len() + cls.EXTRA

        @pipeline
        @inputs(Words)
        def count(cls, words):
            return words.assign("length", int, lambda df: cls.plus(df))

    return Longer


def test_what_a_helper_of_a_dataset_does_is_part_of_the_pipeline() -> None:
    client = committed([Words, lengths(1)])
    client.commit("again", datasets=[lengths(1)], incremental=True)
    with pytest.raises(CommitError, match=r"(?s)Longer.*version=2"):
        client.commit("changed", datasets=[lengths(2)], incremental=True)


def test_an_extractor_uses_the_helpers_of_a_dataset() -> None:
    @dataset(index=True)
    class Seen:
        word: str = field(key=True)
        at: datetime

        @classmethod
        def shown(cls, words):
            return words + "!"

        @pipeline
        @inputs(Words)
        def last(cls, words):
            return words.groupby("word").latest()

    @featureset
    class Loud:
        word: str
        loud: str

        @extractor(deps=[Seen])
        @inputs("word")
        @outputs("loud")
        def shout(cls, ts, word):
            return Seen.shown(word).rename(str(cls.loud))

    client = committed([Words, Seen], [Loud])
    assert queried(client, Loud.word, "a", Loud.loud) == {"loud": "a!"}


def test_definitions_have_names_as_classes_have() -> None:
    assert (People.__name__, Person.__name__) == ("People", "Person")
    assert People.__qualname__ == "People"
    with pytest.raises(AttributeError, match="no field nothing"):
        _ = People.nothing


class Dish:
    name: str
    price: Optional[float]


class Meal:
    dish: Dish
    many: List[Dish]


class NotPlain:
    name: str

    def shout(self):
        return self.name


def test_a_plain_annotated_class_is_a_struct() -> None:
    @source(HOOK.endpoint("meals"), disorder="1d", cdc="upsert")
    @dataset(index=True)
    class Meals:
        key: int = field(key=True)
        meal: Meal
        maybe: Optional[Dish]
        at: datetime

    @featureset
    class MealOf:
        key: int
        meal: Optional[Meal] = F(Meals.meal)
        dish: Optional[Dish] = F(Meals.maybe)

    client = committed([Meals], [MealOf])
    meal = {"dish": {"name": "soup", "price": None}, "many": [{"name": "rice", "price": 1.5}]}
    client.log("programs", "meals", pd.DataFrame({"key": [1], "meal": [meal], "maybe": [None], "at": [T0]}))
    found = queried(client, MealOf.key, 1, MealOf.meal)["meal"]
    assert isinstance(found, Meal)
    assert isinstance(found.dish, Dish)
    assert found.as_json() == meal
    assert queried(client, MealOf.key, 1, MealOf.dish)["dish"] is pd.NA


@pytest.mark.parametrize("wrong", [NotPlain, type("Bare", (), {}), List[NotPlain], Dict[str, NotPlain]])
def test_a_class_with_functions_or_without_fields_is_no_type(wrong: Any) -> None:
    with pytest.raises((DefinitionError, DefinitionTypeError), match="not a type"):

        @dataset
        class Wrong:
            value: wrong
            at: datetime


@source(HOOK.endpoint("notes"), disorder="1d", cdc="append")
@dataset
class Notes:
    key: int
    note: Optional[int]
    at: datetime


@dataset(index=True)
class Listed:
    key: int = field(key=True)
    last: List[Optional[int]]
    first: List[Optional[int]]
    at: datetime

    @pipeline
    @inputs(Notes)
    def listed(cls, notes):
        return notes.groupby("key").aggregate(
            last=LastK(of="note", limit=3, dedup=False, window=Continuous("forever")),
            first=FirstK(of="note", limit=3, dedup=False, dropnull=False, window=Continuous("forever")),
        )


@featureset
class Lists:
    key: int
    note: Optional[int]
    last: List[Optional[int]] = F(Listed.last, default=[])
    first: Optional[List[Optional[int]]] = F(Listed.first)
    mapped: List[Optional[int]] = F(col("last").list.map("x", var("x") + 1))
    repeated: List[Optional[int]] = F(repeat(col("note"), 2))
    seen: str

    @extractor(deps=[Listed])
    @inputs("key", "last")
    @outputs("seen")
    def see(cls, ts, key, last):
        rows, _ = Listed.lookup(ts, key=key, fields=["last"])
        same = [mine == [pd.NA, 1] and its == [pd.NA, 1] for mine, its in zip(last, rows["last"], strict=True)]
        return pd.Series([str(value) for value in same], name="seen")


def test_a_null_in_a_list_is_na_for_pandas_users() -> None:
    client = committed([Notes, Listed], [Lists])
    notes = {"key": [1, 1], "note": pd.array([1, None], dtype="Int64"), "at": [T0, T0.replace(hour=1)]}
    client.log("programs", "notes", pd.DataFrame(notes))
    given = pd.DataFrame({"Lists.key": [1], "Lists.note": pd.array([None], dtype="Int64")})
    found = client.query([Lists.key, Lists.note], [Lists], given)
    # Lists are compared by identity first, and pd.NA is a single object, so the comparison holds for pd.NA only.
    assert found["Lists.last"].tolist() == [[pd.NA, 1]]
    assert found["Lists.first"].tolist() == [[1, pd.NA]]
    assert found["Lists.mapped"].tolist() == [[pd.NA, 2]]
    assert found["Lists.repeated"].tolist() == [[pd.NA, pd.NA]]
    assert found["Lists.seen"].tolist() == ["True"]
    rows, _ = client.lookup("Listed", pd.DataFrame({"key": [1]}))
    assert (rows["last"].tolist(), rows["first"].tolist()) == ([[pd.NA, 1]], [[1, pd.NA]])


def test_the_remedy_for_an_optional_feature_with_a_default_is_named() -> None:
    with pytest.raises(DefinitionTypeError, match=r"Wrong.born is Optional\[date\] with a default.*declare it date"):

        @featureset
        class Wrong:
            born: Optional[date] = F(Maybe.born, default=date(1970, 1, 1))


@pytest.mark.parametrize(
    "body",
    [
        b"\x00\x01\x02",
        b'{"datasets": []}',
        # Bytes that can be decoded as Caraway's message: a text as field 1, and unknown fields.
        b"\x0a\x03abc",
        b"\x4a\x03abc\x52\x01a",
    ],
)
def test_the_refusal_of_another_clients_commit_has_a_remedy(body: bytes) -> None:
    with pytest.raises(InvalidInputError, match=r"write caraway for fennel in the imports"):
        decode_commit(body)
