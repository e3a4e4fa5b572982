"""The secrets that definitions name: they are checked at the commit, so that no job fails later for lack of one."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.functions import PythonFunction, parts_of
from caraway.graph.specs import Graph, PythonExtractor
from caraway.graph.systems import IcebergSystem, KafkaSystem, S3System, SchemaRegistry, SecretRef, System

# Finds uses of `lib.secrets` in code; a secret whose name is computed can't be found this way.
ASKS = re.compile(r"""\bsecrets\s*\.\s*get\(\s*(["'])([^"'\\]+)\1\s*\)""")
STORE = "store:"

# The settings of systems and registries that are passwords, and the names that some of them have in the authoring API.
_PASSWORDS = ("password", "secret_access_key", "account_key", "service_account_key", "credential", "token")
_WRITTEN = {
    (KafkaSystem, "password"): "sasl_plain_password",
    (S3System, "secret_access_key"): "aws_secret_access_key",
    (IcebergSystem, "secret_access_key"): "aws_secret_access_key",
}
# Finds an address with a password: scheme://user:password@host.
_LOGIN = re.compile(r"[a-z0-9+.\-]+://[^/?#@]*:[^/?#]+@", re.IGNORECASE)

# Returns the value of a secret, or raises the errors of `caraway.graph.secrets.resolver.Resolver.resolve`.
LookUp = Callable[[SecretRef], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """A secret that a definition names.

    Attributes:
        entity: The dataset or featureset.
        where: The part of the definition, for people.
        secret: The secret.
        by_code: True if a user's function asks for the secret when it runs, so that it may be added until then.
    """

    entity: str
    where: str
    secret: SecretRef
    by_code: bool = False


def secret_references(graph: Graph) -> Iterator[SecretReference]:
    """Yield the secrets that sources, sinks and functions of a graph refer to, each once for each definition."""
    for dataset in graph.datasets:
        parts: list[tuple[str, object]] = []
        parts += [(f"source {source.connector.identifier}", source) for source in dataset.sources]
        parts += [(f"sink {sink.connector.identifier}", sink) for sink in dataset.sinks]
        parts += [(f"pipeline {pipeline.name}", pipeline.operator) for pipeline in dataset.pipelines]
        for part, spec in parts:
            where = f"dataset {dataset.name}, {part}"
            yield from _references(dataset.name, where, spec)
    for featureset in graph.featuresets:
        for extractor in featureset.extractors:
            where = f"featureset {featureset.name}, extractor {extractor.name}"
            yield from _references(featureset.name, where, extractor)


def lacking(
    references: Iterable[SecretReference], look_up: LookUp, changed: Collection[str]
) -> tuple[list[str], list[str]]:
    """Look up secrets; return a line for each that makes a commit impossible, and one for each that is only reported.

    A commit is impossible if an entity that is new or `changed` names a secret that doesn't exist. Entities that run
    already must not block other changes, and a secret that code asks for may be added later.
    """
    faults, warnings = [], []
    for reference in references:
        try:
            look_up(reference.secret)
        except UnknownEntityError as error:
            if reference.by_code or reference.entity not in changed:
                warnings.append(f"secret missing: {reference.where}: {error}")
            else:
                faults.append(f"{reference.where}: {error}")
        except UnavailableError as error:
            warnings.append(f"secret not found out: {reference.where}: {error}")
    return faults, warnings


def passwords_in_clear(graph: Graph, changed: Collection[str]) -> list[str]:
    """Return a line for each password that a definition which is new or `changed` has as plain text."""
    lines: dict[str, None] = {}
    for dataset in graph.datasets:
        if dataset.name not in changed:
            continue
        parts: list[tuple[str, object]] = [(f"source {each.connector.identifier}", each) for each in dataset.sources]
        parts += [(f"sink {each.connector.identifier}", each) for each in dataset.sinks]
        for part, spec in parts:
            for name in _in_clear(spec):
                lines[
                    f"password in clear: dataset {dataset.name}, {part}: {name} is written in the definition, which "
                    "commits keep and show; keep the value by `caraway secrets set NAME`, write "
                    'Secret(arn="store:NAME") in its place, and change the password'
                ] = None
    return list(lines)


def _in_clear(spec: object) -> Iterator[str]:
    """Yield the names, as authors write them, of the settings of a part that are passwords in plain text."""
    for part in parts_of(spec):
        if not isinstance(part, System | SchemaRegistry):
            continue
        for name in _PASSWORDS:
            if isinstance(value := getattr(part, name, None), str) and value:
                yield _WRITTEN.get((type(part), name), name)
        for name in ("uri", "url", "host"):
            if isinstance(value := getattr(part, name, None), str) and _LOGIN.match(value):
                yield "the login in url (give username and password)" if name == "url" else f"the password in {name}"


def _references(entity: str, where: str, spec: object) -> Iterator[SecretReference]:
    """Yield the secrets in a part of a definition, each once."""
    for secret, by_code in dict.fromkeys(_found(spec)):
        yield SecretReference(entity=entity, where=where, secret=secret, by_code=by_code)


def _found(spec: object) -> Iterator[tuple[SecretRef, bool]]:
    for part in parts_of(spec):
        match part:
            case SecretRef():
                yield part, False
            case PythonFunction():
                yield from _asked(part.source_code, *part.includes)
            case PythonExtractor():
                yield from _asked(part.source_code)


def _asked(*texts: str) -> Iterator[tuple[SecretRef, bool]]:
    for text in texts:
        for found in ASKS.finditer(text):
            yield SecretRef(arn=STORE + found[2]), True
