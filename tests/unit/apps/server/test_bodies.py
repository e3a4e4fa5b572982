"""Tests of bodies and query strings: members that are missing or wrong are refused with their place and the remedy."""

from datetime import datetime
from typing import Annotated, Any

import pytest
from msgspec import Meta, Struct

from caraway import dataset, field, meta
from caraway.apps.server.handlers.erase import EraseBody, parsed
from caraway.apps.server.handlers.reads import MAX_NAME, MAX_NAMES, QueryBody
from caraway.apps.server.handlers.secrets import SecretBody
from caraway.apps.server.handlers.writes import LogBody
from caraway.apps.server.http.bodies import Flag, from_query, structured
from caraway.errors import InvalidInputError, TooLargeError

ASKED: dict[str, Any] = {"inputs": [], "outputs": [], "data": []}


class Options(Struct):
    """Parameters of a query string."""

    name: Annotated[str, Meta(description="a name")]
    limit: Annotated[int, Meta(ge=1, le=9, description="a number from 1 to 9")] = 5
    preview: Flag = None


@pytest.mark.parametrize(
    ("body", "form", "said"),
    [
        ([], LogBody, "the body is a list; an object is expected"),
        (None, LogBody, "the body is null; an object is expected"),
        ({}, LogBody, "webhook is missing; it has to be the name of a webhook"),
        ({"webhook": 1}, LogBody, "webhook is a number; it has to be"),
        ({"webhook": "x" * 1_001}, LogBody, "webhook has 1,001 characters; at most 1,000 are possible"),
        ({"webhook": "hook", "endpoint": None}, LogBody, "endpoint is null; it has to be"),
        ({"webhook": "hook", "endpoint": "sales"}, LogBody, "data is missing; it has to be a list of objects (rows)"),
        ({**ASKED, "inputs": ["a", 1]}, QueryBody, "inputs[1] is a number; inputs has to be a list of names"),
        ({**ASKED, "inputs": ["x" * 1_001]}, QueryBody, "inputs[0] has 1,001 characters; at most 1,000 are possible"),
        ({**ASKED, "sampling_rate": 1.5}, QueryBody, "sampling_rate is 1.5; it has to be a number from 0 to 1"),
        ({**ASKED, "sampling_rate": True}, QueryBody, "sampling_rate is a boolean; it has to be a number from 0 to 1"),
        ({"erase_keys": []}, EraseBody, "erase_keys is empty; it has to be a list of objects"),
        ({"erase_keys": [{}, 1]}, EraseBody, "erase_keys[1] is a number; erase_keys has to be a list of objects"),
    ],
)
def test_a_body_is_refused_with_the_place_and_the_remedy(body: Any, form: type[Struct], said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        structured(body, form)
    assert said in str(raised.value)


def test_too_many_elements_are_too_large() -> None:
    assert len(structured({**ASKED, "inputs": ["x" * MAX_NAME] * MAX_NAMES}, QueryBody).inputs) == MAX_NAMES
    with pytest.raises(TooLargeError, match="inputs has 5,001 elements; at most 5,000 are possible"):
        structured({**ASKED, "inputs": ["x"] * (MAX_NAMES + 1)}, QueryBody)


@pytest.mark.parametrize("value", ["hidden" * 20_000, ["hidden"], {"hidden": 1}, b"hidden"])
def test_no_message_holds_a_text_of_the_body(value: Any) -> None:
    with pytest.raises(InvalidInputError) as raised:
        structured({"value": value}, SecretBody)
    assert "hidden" not in str(raised.value)


def test_rows_are_taken_as_they_are() -> None:
    rows = [{"pot": 1}]
    assert structured({**ASKED, "data": rows}, QueryBody).data is rows


def test_parameters_are_read_from_text() -> None:
    assert from_query({"name": "7", "other": "x"}, Options) == Options("7")
    assert from_query({"name": "null", "limit": "3", "preview": "true"}, Options) == Options("null", 3, True)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, "query parameter name is missing; it has to be a name"),
        ({"name": "", "limit": "x" * 50}, f"query parameter limit is '{'x' * 40}'; it has to be a number from 1 to 9"),
        ({"name": "", "limit": "10"}, "query parameter limit is '10'; it has to be a number from 1 to 9"),
        ({"name": "", "limit": "1.5"}, "query parameter limit is '1.5'"),
        ({"name": "", "preview": "maybe"}, "query parameter preview is 'maybe'; it has to be true or false"),
    ],
)
def test_a_parameter_is_refused_with_its_text(parameters: dict[str, str], said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        from_query(parameters, Options)
    assert said in str(raised.value)


@meta(owner="a@b.co")
@dataset
class Stays:
    guest: str = field(key=True, erase_key=True)
    room: int = field(key=True)
    at: datetime = field(timestamp=True)


@meta(owner="a@b.co")
@dataset
class Rooms:
    room: int = field(key=True)
    at: datetime = field(timestamp=True)


@pytest.mark.parametrize(
    ("of", "rows", "said"),
    [
        (Stays, [{"room": 1}], "room is no erase key; erase keys: guest"),
        (Stays, [{"guest": "a", "room": 1}], "room is no erase key"),
        (Stays, [{"guest": "a"}, {}], "row 1, erase key guest: is missing"),
        (Stays, [{"guest": None}], "row 0, erase key guest: expected str, found null"),
        (Stays, [{"guest": [1]}], "row 0, erase key guest: expected str"),
        (Rooms, [{"room": 1}], "mark one with field(key=True, erase_key=True)"),
    ],
)
def test_wrong_erase_keys_are_refused(of: Any, rows: list[dict[str, Any]], said: str) -> None:
    with pytest.raises(InvalidInputError) as raised:
        parsed(of.to_spec(), rows)
    assert said in str(raised.value)
