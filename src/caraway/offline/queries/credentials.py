"""Access keys in requests of offline queries, which are sealed as secrets are until the query is over."""

import base64

import msgspec

from caraway.offline.queries.model import Place
from caraway.process.secrets.keyring import Keyring

Access = tuple[str, str]

_DECODE = msgspec.json.Decoder(Access).decode


def sealed(keyring: Keyring, query_id: str, access: Access) -> tuple[str, str]:
    """Return the name of the key that seals an access key and its secret, and both sealed, as text."""
    key_id, content = keyring.seal(_name(query_id), msgspec.json.encode(access).decode())
    return key_id, base64.b64encode(content).decode()


def opened(keyring: Keyring, query_id: str, place: Place) -> Access | None:
    """Return the access key of a place and its secret; None if the request had none.

    Raises `UnavailableError` if this process lacks the key that seals them.
    """
    if place.credentials is None:
        return None
    key_id, content = place.credentials
    text = keyring.open(_name(query_id), key_id, base64.b64decode(content))
    access: Access = _DECODE(text)
    return access


def _name(query_id: str) -> str:
    return f"offline/{query_id}"
