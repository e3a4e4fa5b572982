"""The index that a load builds, and its result: the tables, and the offsets up to which they account for the topic."""

from dataclasses import dataclass

import msgspec

from caraway.dataplane.archive.store.reading import TopicParts
from caraway.dataplane.index.storage.intervals import is_divisible
from caraway.dataplane.objects.folder import Digest, ObjectFolder
from caraway.graph.plan.model import IndexPlan, TopicPlan
from caraway.offline.queries.model import LoadRequest, folder_of

NAME = "load.json"
# The folder of the tables in that of the request.
TABLES = "tables"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadIndex:
    """An index that is to be built.

    Attributes:
        load: The request.
        plan: The index.
        topic: Its topic.
        found: The places of the topic's records.
    """

    load: LoadRequest
    plan: IndexPlan
    topic: TopicPlan
    found: TopicParts


class LoadTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table in the object store, below the folder of the request."""

    name: str
    digest: Digest
    bytes: int
    records: int


class LoadManifest(msgspec.Struct, frozen=True, kw_only=True):
    """The tables of a load.

    Attributes:
        format: The format of the databases that can take them.
        offsets: The offsets up to which they account for the topic, by partition.
        tables: The tables, no two of which overlap.
    """

    format: str
    offsets: dict[int, int]
    tables: list[LoadTable]

    @property
    def records(self) -> int:
        """The number of records in the tables."""
        return sum(table.records for table in self.tables)


_DECODE = msgspec.json.Decoder(LoadManifest).decode


def write_manifest(objects: ObjectFolder, query_id: str, manifest: LoadManifest) -> None:
    """Write the result of a load, after which its tables are complete."""
    objects.write(f"{folder_of(query_id)}/{NAME}", msgspec.json.encode(manifest))


def read_manifest(objects: ObjectFolder, query_id: str) -> LoadManifest:
    """Return the result of a load. Raises `UnavailableError` if there is none, or the object store doesn't answer."""
    return _DECODE(objects.read(f"{folder_of(query_id)}/{NAME}"))


def is_loadable(plan: IndexPlan) -> bool:
    """Return whether an index can be built in divisions, since the entries of a key depend on no other key.

    The locations of identities that may be revised, and the rows that are sent to jobs, belong to the index as a whole.
    """
    return is_divisible(plan) and not plan.revised and plan.emits is None
