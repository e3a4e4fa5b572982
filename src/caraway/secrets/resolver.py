"""Look-up of the values behind references to secrets, in the data plane.

A reference begins with a scheme: `env:NAME`, `file:/path`, `store:NAME` (the platform's own store), or an ARN of AWS
Secrets Manager. Plug-ins add other schemes, as entry points of the group `caraway.secrets` named after their scheme.
"""

import json
import os
import threading
import time
from collections.abc import Callable, Mapping
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from caraway.errors import CarawayError, UnavailableError, UnknownEntityError
from caraway.graph.systems import Secretish, SecretRef

GROUP = "caraway.secrets"
KEPT_S = 30.0
# The most bytes of a file that a reference `file:/path` names. A larger file is surely no secret, and is refused.
MAX_FILE_BYTES = 1 << 20

# Returns the secret of a reference (its scheme included). The second argument is the AWS role to assume, if the
# reference names one. It may block, and raises UnknownEntityError if there is no such secret, and UnavailableError if
# the store of the secret doesn't answer.
Lookup = Callable[[str, str | None], str]


def of_environment(reference: str, role_arn: str | None) -> str:
    """Return a variable of the environment: `env:NAME`."""
    del role_arn
    name = reference.partition(":")[2]
    value = os.environ.get(name)
    if value is None:
        raise UnknownEntityError(f"secret {reference}: the environment has no variable {name}")
    return value


def of_file(reference: str, role_arn: str | None) -> str:
    """Return the content of a file, without the line's end: `file:/path`."""
    del role_arn
    path = Path(reference.partition(":")[2])
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise UnavailableError(f"secret {reference}: the file is too large to be a secret")
        return path.read_text(encoding="utf-8").removesuffix("\n")
    except FileNotFoundError as error:
        raise UnknownEntityError(f"secret {reference}: there is no such file") from error
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"secret {reference}: the file can't be read ({type(error).__name__})") from error


def of_aws(reference: str, role_arn: str | None) -> str:
    """Return a secret of AWS Secrets Manager: `arn:aws:secretsmanager:…`."""
    try:
        module = import_module("caraway.secrets.aws")
    except ModuleNotFoundError as error:
        raise UnavailableError(f"secret {reference}: boto3 isn't installed; pip install caraway[aws]") from error
    found: str = module.of_aws(reference, role_arn)
    return found


def resolver(store: Callable[[str], str], *, kept_s: float = KEPT_S) -> "Resolver":
    """Return a resolver of all schemes that come with Caraway; `store` returns secrets of the platform's own store."""

    def of_store(reference: str, _: str | None) -> str:
        return store(reference.partition(":")[2])

    return Resolver({"env": of_environment, "file": of_file, "store": of_store, "arn": of_aws}, kept_s=kept_s)


class Resolver:
    """Resolves references to values, and caches them for a while. Thread safe."""

    def __init__(
        self,
        lookups: Mapping[str, Lookup],
        *,
        kept_s: float = KEPT_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """Resolve the schemes of `lookups`; other schemes are those of plug-ins."""
        self._lookups = dict(lookups)
        self._kept_s = kept_s
        self._clock = clock
        self._lock = threading.Lock()
        self._known: dict[tuple[str, str | None], tuple[float, str]] = {}

    def resolve(self, secret: Secretish) -> str:
        """Return the value of a reference; plain text is returned as it is.

        Raises:
            UnknownEntityError: There is no such secret, or no such part of it.
            UnavailableError: The store of the secret doesn't answer, or no plug-in has its scheme.
        """
        if isinstance(secret, str):
            return secret
        return _part(secret, self._text(secret))

    def forget(self, secret: Secretish) -> None:
        """Drop the cached value of a reference: a system has refused the value, so it may be outdated."""
        if isinstance(secret, SecretRef):
            with self._lock:
                self._known.pop((secret.arn, secret.role_arn), None)

    def _text(self, secret: SecretRef) -> str:
        name = (secret.arn, secret.role_arn)
        with self._lock:
            known = self._known.get(name)
        if known is not None and self._clock() < known[0] + self._kept_s:
            return known[1]
        try:
            value = self._lookup(secret.arn)(secret.arn, secret.role_arn)
        except CarawayError:
            raise
        except Exception as error:  # noqa: BLE001 (a plug-in may raise anything)
            # The message of a plug-in's error may contain the value, so it isn't shown.
            raise UnavailableError(f"secret {secret.arn} can't be looked up ({type(error).__name__})") from None
        with self._lock:
            self._known[name] = self._clock(), value
        return value

    def _lookup(self, arn: str) -> Lookup:
        scheme = arn.partition(":")[0]
        with self._lock:
            if scheme not in self._lookups:
                found = next(iter(entry_points(group=GROUP, name=scheme)), None)
                if found is None:
                    known = ", ".join(sorted(self._lookups))
                    raise UnavailableError(
                        f"secret {arn}: nothing here looks up {scheme!r}; there are {known}, and plug-ins "
                        f"(entry points of the group {GROUP})"
                    )
                self._lookups[scheme] = found.load()
            return self._lookups[scheme]


def _part(secret: SecretRef, text: str) -> str:
    """Return the part of a secret's JSON to which the reference points."""
    if not secret.path:
        return text
    spelled = "".join(f"[{key!r}]" for key in secret.path)
    try:
        value = json.loads(text)
        for key in secret.path:
            value = value[key]
    except (ValueError, KeyError, TypeError, IndexError):
        # Neither the message nor the cause of this error may contain the text of the secret.
        raise UnknownEntityError(f"secret {secret.arn} has no part {spelled}") from None
    return value if isinstance(value, str) else json.dumps(value)
