"""The keys of a deployment, which seal the secrets in Postgres and hash the keys that were erased.

The keys are in a file of the data folder, or at the path of `secrets.key_file`, which only its owner may read. The
first line is the key in use; the others are former keys, which open values that they have sealed.
"""

import hashlib
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from caraway.errors import UnavailableError
from caraway.process.private_files import sync_names
from caraway.process.settings.errors import ConfigurationError

ID_DIGITS = 8
MAC_BYTES = 32

_DECODE = msgspec.json.Decoder(tuple[str, str]).decode


@dataclass(frozen=True, slots=True)
class Key:
    """A key, and its name, which isn't secret."""

    id: str
    text: bytes

    @classmethod
    def of(cls, text: bytes) -> "Key":
        """Parse a key. Raises `ValueError` if the text isn't one."""
        Fernet(text)
        return cls(hashlib.sha256(b"caraway key " + text).hexdigest()[:ID_DIGITS], text)

    @property
    def mac_key(self) -> bytes:
        """The key of hashes; it is derived from this key, so that it opens no sealed value."""
        return hashlib.blake2b(self.text, digest_size=MAC_BYTES, person=b"caraway.erase").digest()

    def __repr__(self) -> str:
        return f"Key({self.id})"


@dataclass(frozen=True, slots=True)
class Keyring:
    """All keys, the one in use first."""

    keys: tuple[Key, ...]
    path: Path

    @property
    def current(self) -> Key:
        """The key that seals new values."""
        return self.keys[0]

    def mac_keys(self) -> Mapping[str, bytes]:
        """Return the keys of hashes, by the keys' names."""
        return {key.id: key.mac_key for key in self.keys}

    def seal(self, name: str, value: str) -> tuple[str, bytes]:
        """Return the name of the current key, and the value of a secret sealed with it.

        The value opens only under the same name of the secret.
        """
        return self.current.id, Fernet(self.current.text).encrypt(msgspec.json.encode((name, value)))

    def open(self, name: str, key_id: str, sealed: bytes) -> str:
        """Return a sealed value.

        Raises `UnavailableError` if the key isn't among these, or the value wasn't sealed under this name.
        """
        key = next((key for key in self.keys if key.id == key_id), None)
        if key is None:
            raise UnavailableError(f"secret {name!r} is sealed with the key {key_id}, which {self.path} hasn't got")
        try:
            found, value = _DECODE(Fernet(key.text).decrypt(sealed))
        except (InvalidToken, msgspec.MsgspecError):
            found, value = "", ""
        if found != name:
            raise UnavailableError(f"secret {name!r} can't be opened: its sealed value in Postgres was changed")
        return value


def open_keyring(path: Path) -> Keyring:
    """Read the keys, or create the file with a first key.

    Raises `ConfigurationError` if the file can't be read or made, others may read it, or it holds something else.
    """
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            _write(path, [Fernet.generate_key()], replace=False)
        mode = stat.S_IMODE(path.stat().st_mode)
        lines = path.read_bytes().split()
    except OSError as error:
        raise ConfigurationError(f"secrets.key_file: {path} can't be read or made: {error}") from error
    if mode & 0o077:
        raise ConfigurationError(f"secrets.key_file: others may read {path} (mode {mode:o}); chmod 600 it")
    try:
        keys = tuple(Key.of(line) for line in lines)
    except ValueError as error:
        raise ConfigurationError(f"secrets.key_file: {path} holds something else than keys") from error
    if not keys:
        raise ConfigurationError(f"secrets.key_file: {path} is empty")
    return Keyring(keys, path)


def add_key(keyring: Keyring) -> Keyring:
    """Add a new key as the first one, in the file too."""
    texts = [Fernet.generate_key(), *(key.text for key in keyring.keys)]
    _write(keyring.path, texts, replace=True)
    return open_keyring(keyring.path)


def _write(path: Path, texts: Sequence[bytes], *, replace: bool) -> None:
    """Write the file atomically; without `replace`, one of several processes that create it succeeds."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(b"\n".join(texts) + b"\n")
            file.flush()
            os.fsync(file.fileno())
        if replace:
            part.replace(path)
        else:
            try:
                os.link(part, path)
            except FileExistsError:
                return
        # Without this call a power failure could remove the file's name, and the next start would make another key.
        sync_names(path)
    finally:
        part.unlink(missing_ok=True)
