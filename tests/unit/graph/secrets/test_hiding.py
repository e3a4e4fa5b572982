"""Errors that would show secrets."""

import traceback

import pytest

from caraway.dataplane.sinks.writer import RetryLaterError
from caraway.errors import CarawayError, CommitError, InvalidInputError, UnavailableError
from caraway.graph.secrets.hiding import HIDDEN, HiddenSecrets
from caraway.graph.systems import SecretRef

VALUES = {"password": "pa55word", "short": "abc"}


def looked_up() -> HiddenSecrets:
    """Return secrets of which one was looked up again after it had changed."""
    values = {**VALUES, "password": "hunter2-old"}
    secrets = HiddenSecrets(lambda secret: values[secret.arn] if isinstance(secret, SecretRef) else secret)
    for known in (values, VALUES):
        values.update(known)
        assert [secrets(SecretRef(arn=name)) for name in VALUES] == list(known.values())
    assert secrets("in the definition") == "in the definition"
    return secrets


@pytest.mark.parametrize(
    ("error", "raised"),
    [
        (UnavailableError, UnavailableError),
        (CommitError, CommitError),
        # A worker goes on with a batch after this error, so its class counts.
        (RetryLaterError, RetryLaterError),
        (InvalidInputError, UnavailableError),
        (ValueError, UnavailableError),
    ],
)
def test_an_error_with_a_secret_is_raised_without_it(error: type[Exception], raised: type[CarawayError]) -> None:
    secrets = looked_up()
    with pytest.raises(raised) as caught, secrets.hidden():
        raise error("postgres://ada:pa55word@h refused, hunter2-old before; in the definition; abc")
    assert type(caught.value) is raised
    assert str(caught.value) == f"postgres://ada:{HIDDEN}@h refused, {HIDDEN} before; in the definition; abc"
    assert "pa55word" not in "".join(traceback.format_exception(caught.value))


def test_an_error_without_secrets_is_raised_as_it_is() -> None:
    error = ValueError("no secret")
    with pytest.raises(ValueError, match="no secret") as caught, looked_up().hidden():
        raise error
    assert caught.value is error
