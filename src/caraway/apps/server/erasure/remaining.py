"""The places that keep clear text of erased rows, as an answer to a request to erase names them (decisions 25, 43)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from caraway.dataplane.archive.served_log import SERVED
from caraway.dataplane.index.storage.snapshots import KEPT
from caraway.dataplane.topics.dead_letters import DEAD_LETTERS
from caraway.graph.specs import DatasetSpec, Graph
from caraway.graph.trees import datasets_read, reached


@dataclass(frozen=True, slots=True)
class Remains:
    """A place that an erasure doesn't reach, or not at once.

    Attributes:
        where: The place.
        what: The data that it keeps.
        until: The event that removes them.
    """

    where: str
    what: str
    until: str


def remaining(dataset: str, graph: Graph, topics: Sequence[str], *, downstream: bool = False) -> list[Remains]:
    """Return the places that keep rows of erased keys of a dataset in clear text.

    Args:
        dataset: The name of the dataset.
        graph: The definitions of the branch.
        topics: The topics on which its keys were erased.
        downstream: The erasure also reaches the topic and what is computed from the rows.
    """
    specs = {spec.name: spec for spec in graph.datasets}
    readers: dict[str, list[str]] = {}
    for spec in graph.datasets:
        for name in _inputs(spec):
            readers.setdefault(name, []).append(spec.name)
    computed = list(reached([dataset], readers))
    places = [*(_going if downstream else _staying)(dataset, topics, [specs[name] for name in computed])]
    places += [
        Remains(f"dataset {name}", f"the rows from which {dataset} is computed, and their topic", _until(specs[name]))
        for name in reached([dataset], {spec.name: _inputs(spec) for spec in graph.datasets})
        if name in specs
    ]
    return [
        *places,
        Remains(
            f"topic {DEAD_LETTERS}",
            "rows that were refused or failed before the erasure",
            "Kafka has compacted the topic (minutes); rows above 16 KiB, of which only the head is kept, stay",
        ),
        Remains(
            f"topic {SERVED}",
            "features that queries with `log` were answered with",
            "the archive has copied them and Kafka has deleted its old files (minutes), or seven days have passed",
        ),
        Remains(
            "archive of served features",
            "rows whose key was computed by an extractor, and features of other keys that show the erased one, such as "
            "lists; rows with the key itself are removed, and their files archive.replaced_hours (24) later",
            "somebody deletes these rows from its table",
        ),
        Remains("samples of the skew watch", "features of such rows", "skew.kept_days have passed"),
        Remains(
            "profiles of the drift watch",
            "frequent texts, extremes and quantiles of features, as far as rows of the key have a part in them",
            "drift.kept_days have passed; a reference is set anew",
        ),
        *(
            Remains(
                f"profiles of dataset {name}",
                "frequent texts, extremes and quantiles of its fields, as far as rows of the key have a part in them",
                "rows that are drift.kept_days newer have come",
            )
            for name in (dataset, *computed)
            if name in specs and specs[name].profiled
        ),
        *_copies(dataset),
    ]


def _copies(dataset: str) -> list[Remains]:
    """Return the places that keep rows beside topics, the archive's tables and the monitoring."""
    return [
        Remains(
            "files of the quality watch",
            f"hashes of 8 bytes of rows of {dataset}, if a job writes it and it has expectations",
            "the dataset or its expectations change",
        ),
        Remains(
            "archive",
            f"rows of {dataset}, in files of its table that were replaced when the key was erased",
            "archive.replaced_hours (24) have passed",
        ),
        Remains(
            "results of offline queries",
            "features of rows that were asked for before the erasure, also in the buckets that callers have named",
            "offline.kept_days have passed since the query's end",
        ),
        Remains(
            "explanations of values (why.json)",
            "rows that a value was computed from, of explanations that were asked for before the erasure",
            "offline.kept_days have passed since the explanation",
        ),
        Remains(
            "positions of sources, in Postgres",
            f"the last value of the column by which a source of {dataset} is read, and, of sources that compare whole "
            "tables, hashes of 8 bytes of rows, from which few values could be guessed",
            "the source has read on, and the row is gone from it; or no branch has the source",
        ),
        Remains(
            "logs of the server, the engine and the functions",
            "values that functions printed, or that an error names",
            "somebody removes the files",
        ),
        Remains(
            "backups, and the systems that sent the rows or that sinks write",
            "whatever they keep",
            "it is erased there",
        ),
    ]


def _staying(dataset: str, topics: Sequence[str], computed: Sequence[DatasetSpec]) -> Iterator[Remains]:
    """Yield the places that an erasure in the dataset alone doesn't reach."""
    for topic in topics:
        yield Remains(
            f"topic {topic}",
            "the records that were written before the erasure",
            "they are erased downstream (downstream=True); or the topic is removed: an hour after no branch uses this "
            "version of the dataset, so raise its version",
        )
    for spec in computed:
        yield Remains(
            f"dataset {spec.name}", f"rows computed from {dataset}, their topic, and its job's state", _until(spec)
        )
    yield Remains(
        "snapshots of the index",
        "entries that were written before the erasure; a server that begins with one removes them again",
        f"{KEPT} newer snapshots are there, and an hour has passed",
    )


def _going(dataset: str, topics: Sequence[str], computed: Sequence[DatasetSpec]) -> Iterator[Remains]:
    """Yield the places that an erasure downstream reaches in the minutes or hours after the request."""
    for topic in topics:
        yield Remains(
            f"topic {topic}",
            "the records that were written before the erasure",
            "the archive has all records before it, jobs have processed them, and Kafka has deleted its old files "
            "(minutes)",
        )
    for spec in computed:
        yield Remains(
            f"dataset {spec.name}",
            f"values computed with the rows of {dataset}",
            "the branch serves the commit that computes them again",
        )
    yield Remains(
        "index files of each server, snapshots of the index",
        "entries that were computed with the rows",
        "what is computed again is served, and an hour has passed; the least and greatest keys of old files until the "
        "server's next start",
    )


def _inputs(spec: DatasetSpec) -> list[str]:
    return [name for pipeline in spec.pipelines for name in datasets_read(pipeline.operator)]


def _until(spec: DatasetSpec) -> str:
    keys = [field.name for field in spec.fields if field.erase_key]
    if keys and not spec.pipelines:
        return f"the keys are erased there, too, by {', '.join(keys)}"
    if keys:
        return f"the keys are erased there, too, by {', '.join(keys)}, or downstream of the dataset that has the source"
    if not spec.pipelines:
        return "its version is raised and its topic removed: it has no erase key"
    return "the rows are erased downstream of the dataset with their source; or its version is raised: no erase key"
