"""The token of the deployment's operator, which is kept in a file (`server.admin_token_file`).

It needs no Postgres, so a new stack has a token before it has tables. It is valid for as long as the file holds it.
"""

from pathlib import Path

from caraway.process.settings.errors import ConfigurationError
from caraway.state.access import digest_of
from caraway.state.permissions import EVERYTHING, Caller

OPERATOR = Caller(account="operator", token_id="admin_token_file", grants=(EVERYTHING,))  # noqa: S106 (what the audit log says)
# The shortest token that is accepted. 32 characters of base64 are 192 random bits; a much shorter token was made up by
# a person and can be guessed.
LEAST_CHARACTERS = 32


class AdminToken:
    """The token in a file, as it was when it was last read."""

    def __init__(self, file: Path) -> None:
        """Read the token.

        Raises `ConfigurationError` if the file can't be read, or its text is too short for a token.
        """
        self._file = file
        try:
            token = _token_in(file)
        except OSError as error:
            raise ConfigurationError(f"server.admin_token_file: {file} can't be read ({error.strerror})") from error
        if len(token) < LEAST_CHARACTERS:
            raise ConfigurationError(
                f"server.admin_token_file: {file} holds {len(token)} characters; a token has at least "
                f'{LEAST_CHARACTERS}, such as those of `python -c "import secrets; print(secrets.token_urlsafe(32))"`'
            )
        self._digest: bytes | None = digest_of(token)

    def refresh(self) -> bool:
        """Read the file again, and return whether the token has changed; without one, nobody is the operator."""
        try:
            token = _token_in(self._file)
        except OSError:
            token = ""
        before, self._digest = self._digest, digest_of(token) if len(token) >= LEAST_CHARACTERS else None
        return self._digest != before

    def is_shown(self, digest: bytes) -> bool:
        """Return whether a token with this digest is the operator's."""
        return digest == self._digest


def _token_in(file: Path) -> str:
    return file.read_bytes().decode("ascii", "replace").strip()
