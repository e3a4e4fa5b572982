"""The secrets that definitions name, and which of them are missing: known at the commit, not at the first row."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, fields, is_dataclass

from caraway.errors import UnavailableError, UnknownEntityError
from caraway.graph.connectors import SecretRef, identifier
from caraway.graph.functions import PythonFunction
from caraway.graph.specs import Graph, PythonExtractor

# As `lib.secrets` is used; a name that is computed can't be known before.
ASKS = re.compile(r"""\bsecrets\s*\.\s*get\(\s*(["'])([^"'\\]+)\1\s*\)""")
STORE = "store:"

# Returns the value of a secret, or raises what `integrations.resolver.Resolver.resolve` does.
LookUp = Callable[[SecretRef], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class SecretReference:
    """A secret that a definition names.

    Attributes:
        entity: The dataset or featureset.
        where: Where in it, for people.
        secret: The secret.
        by_code: Whether a user's function asks for it when it runs, so that it may still come.
    """

    entity: str
    where: str
    secret: SecretRef
    by_code: bool = False


def secret_references(graph: Graph) -> Iterator[SecretReference]:
    """Yield the secrets that sources, sinks and functions of a graph refer to, each once for each definition."""
    for dataset in graph.datasets:
        parts: list[tuple[str, object]] = []
        parts += [(f"source {identifier(source.connector)}", source) for source in dataset.sources]
        parts += [(f"sink {identifier(sink.connector)}", sink) for sink in dataset.sinks]
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

    Impossible is a reference of an entity that is new or `changed` to a secret that isn't there. What runs already
    shall not stand in the way of other changes, and what code asks for may come later.
    """
    faults, told = [], []
    for reference in references:
        try:
            look_up(reference.secret)
        except UnknownEntityError as error:
            if reference.by_code or reference.entity not in changed:
                told.append(f"secret missing: {reference.where}: {error}")
            else:
                faults.append(f"{reference.where}: {error}")
        except UnavailableError as error:
            told.append(f"secret not found out: {reference.where}: {error}")
    return faults, told


def _references(entity: str, where: str, spec: object) -> Iterator[SecretReference]:
    """Yield the secrets in a part of a definition, each once."""
    for secret, by_code in dict.fromkeys(_found(spec)):
        yield SecretReference(entity=entity, where=where, secret=secret, by_code=by_code)


def _found(spec: object) -> Iterator[tuple[SecretRef, bool]]:
    match spec:
        case SecretRef():
            yield spec, False
        case PythonFunction():
            yield from _asked(spec.source_code, *spec.includes)
        case PythonExtractor():
            yield from _asked(spec.source_code)
        case tuple():
            for part in spec:
                yield from _found(part)
        case _ if is_dataclass(spec):
            for field in fields(spec):
                yield from _found(getattr(spec, field.name))


def _asked(*texts: str) -> Iterator[tuple[SecretRef, bool]]:
    for text in texts:
        for found in ASKS.finditer(text):
            yield SecretRef(arn=STORE + found[2]), True
