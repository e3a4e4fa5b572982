"""Tests of the table from errors to statuses."""

import orjson
import pytest

from caraway import errors
from caraway.apps.server.http.errors import WrongMethodError, error_response, status_of
from caraway.errors import (
    CarawayError,
    ExtractorError,
    InvalidInputError,
    NotServedError,
    OfflineQueryError,
    RemoteError,
    UnavailableError,
)


def leaves(kind: type[CarawayError]) -> list[type[CarawayError]]:
    return [kind, *(leaf for child in kind.__subclasses__() for leaf in leaves(child))]


def test_every_error_that_a_request_can_cause_has_a_status_below_500() -> None:
    ours = {kind for kind in leaves(CarawayError) if kind.__module__ == errors.__name__}
    # Only clients raise these, about a server's answers and about waiting for it; nobody raises the root.
    for kind in ours - {CarawayError, RemoteError, UnavailableError, NotServedError, OfflineQueryError}:
        assert 400 <= status_of(kind("x")) < 500, kind


def test_a_class_of_its_own_has_the_status_of_its_parent() -> None:
    class SpecialError(InvalidInputError):
        pass

    assert status_of(SpecialError("x")) == 400
    assert status_of(ValueError("x")) == 500


@pytest.mark.parametrize(
    ("error", "status", "header"),
    [
        (UnavailableError("away"), 503, ("retry-after", "1")),
        (WrongMethodError("no", "GET, POST"), 405, ("allow", "GET, POST")),
        (ExtractorError("broke"), 422, ("content-type", "application/json")),
    ],
)
def test_an_answer_has_sentence_code_and_headers(error: CarawayError, status: int, header: tuple[str, str]) -> None:
    response = error_response(error)
    assert response.status == status
    assert header in response.headers
    assert orjson.loads(response.body) == {"err_msg": str(error), "code": error.code}
