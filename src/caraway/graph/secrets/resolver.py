"""Look-up of the values behind references to secrets, in the data plane.

A reference begins with a scheme: `env:NAME`, `file:/path`, `store:NAME` (the platform's own store), or an ARN of AWS
Secrets Manager. Everybody who may commit writes references, so all but those to the store are looked up only if the
operator has listed them. Plug-ins add other schemes, as entry points of the group `caraway.process.secrets` named after
their scheme; who installs one opens all that it looks up.
"""

import json
import os
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from importlib import import_module
from importlib.metadata import entry_points
from pathlib import Path

from caraway.errors import CarawayError, UnavailableError, UnknownEntityError
from caraway.graph.systems import Secretish, SecretRef
from caraway.process.settings.settings import SecretsSettings

GROUP = "caraway.process.secrets"
# A file that a reference `file:/path` names may have at most this many bytes. A larger file is surely no secret.
MAX_FILE_BYTES = 1 << 20
# Folders whose files no reference may read, even if the operator lists them: these files show the state of processes
# and of the system, such as the environment variables of this process.
ALWAYS_CLOSED = (Path("/proc"), Path("/sys"))
UNLISTED = SecretsSettings()

# A function that returns the secret of a reference, which is given with its scheme. The second argument is the AWS role
# to assume, if the reference names one. The function may block. Its errors are UnknownEntityError if there is no such
# secret, and UnavailableError if the store of the secret doesn't answer.
Lookup = Callable[[str, str | None], str]


def of_environment(listed: SecretsSettings, reference: str, role_arn: str | None) -> str:
    """Return a variable of the environment: `env:NAME`."""
    del role_arn
    name = reference.partition(":")[2]
    value = os.environ.get(name) if name in listed.environment else None
    if value is None:
        raise _withheld(reference, "variable", "secrets.environment")
    return value


def of_file(listed: SecretsSettings, closed: Collection[Path], reference: str, role_arn: str | None) -> str:
    """Return the content of a file that isn't in a closed folder, without the line's end: `file:/path`."""
    del role_arn
    path = Path(reference.partition(":")[2])
    try:
        found = path.resolve(strict=True) if path in listed.files else None
        if found is None or any(found.is_relative_to(each.resolve()) for each in (*closed, *ALWAYS_CLOSED)):
            raise _withheld(reference, "file", "secrets.files")
        if found.stat().st_size > MAX_FILE_BYTES:
            raise UnavailableError(f"secret {reference}: the file is too large to be a secret")
        return found.read_text(encoding="utf-8").removesuffix("\n")
    except FileNotFoundError:
        raise _withheld(reference, "file", "secrets.files") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UnavailableError(f"secret {reference}: the file can't be read ({type(error).__name__})") from error


def of_aws(listed: SecretsSettings, reference: str, role_arn: str | None) -> str:
    """Return a secret of AWS Secrets Manager: `arn:aws:secretsmanager:…`."""
    if (reference if role_arn is None else role_arn) not in listed.aws:
        raise _withheld(reference, "secret" if role_arn is None else "role", "secrets.aws")
    try:
        module = import_module("caraway.graph.secrets.aws")
    except ModuleNotFoundError as error:
        raise UnavailableError(f"secret {reference}: boto3 isn't installed; pip install caraway[aws]") from error
    found: str = module.of_aws(reference, role_arn)
    return found


def _withheld(reference: str, kind: str, setting: str) -> UnknownEntityError:
    """Return the one error for what isn't there and what isn't listed, so that nobody finds out what is there."""
    return UnknownEntityError(
        f"secret {reference}: the server has no such {kind} in its setting {setting}; keep the value by `caraway "
        f"secrets set NAME` and refer to it by store:NAME, or have the operator list the {kind}"
    )


def resolver(
    store: Callable[[str], str], listed: SecretsSettings = UNLISTED, closed: Collection[Path] = ()
) -> "Resolver":
    """Return a resolver of what `store` returns and what is `listed`; never of files in folders that are `closed`."""
    return Resolver(
        {
            "env": partial(of_environment, listed),
            "file": partial(of_file, listed, closed),
            "arn": partial(of_aws, listed),
            "store": lambda reference, _: store(reference.partition(":")[2]),
        }
    )


class Resolver:
    """Resolves references to values, each time anew. Thread safe."""

    def __init__(self, lookups: Mapping[str, Lookup]) -> None:
        """Resolve the schemes of `lookups`; other schemes are those of plug-ins."""
        self._lookups = dict(lookups)
        self._lock = threading.Lock()

    def resolve(self, secret: Secretish) -> str:
        """Return the value of a reference; plain text is returned as it is.

        Raises:
            UnknownEntityError: There is no such secret, or no such part of it, or the operator hasn't listed it.
            UnavailableError: The store of the secret doesn't answer, or no plug-in has its scheme.
        """
        if isinstance(secret, str):
            return secret
        try:
            value = self._lookup(secret.arn)(secret.arn, secret.role_arn)
        except CarawayError:
            raise
        except Exception as error:  # noqa: BLE001 (a plug-in may raise anything)
            # The message of a plug-in's error may contain the value, so it isn't shown.
            raise UnavailableError(f"secret {secret.arn} can't be looked up ({type(error).__name__})") from None
        return _part(secret, value)

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
