"""The topics that are archived, and what is told of their tables, as plain data."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from caraway.graph.plan.model import GraphPlan, TopicPlan

# The folder of the archive in the object store.
FOLDER = "archive"
# The suffix of the topics with the rows of aggregates, which an index writes for jobs. The topics aren't archived,
# since their rows can always be written again from the inputs of the aggregates.
ROWS = ".rows"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSize:
    """The size of a table.

    Attributes:
        rows: The number of records.
        files: The number of its files.
        bytes: The size of these files.
    """

    rows: int
    files: int
    bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReport:
    """A table as its writer sees it, after a write.

    Attributes:
        topic: The topic.
        dataset: Its dataset.
        url: The address of the table.
        positions: The offset of the next message to archive, by partition: all rows before it are in the table.
        size: The size of the table.
    """

    topic: str
    dataset: str
    url: str
    positions: Mapping[int, int]
    size: TableSize


def archived_topics(plans: Iterable[GraphPlan]) -> dict[str, TopicPlan]:
    """Return the topics of plans that are archived, by name: all but those with rows of aggregates for jobs."""
    topics = (topic for plan in plans for topic in plan.topics)
    return {topic.name: topic for topic in topics if not topic.name.endswith(ROWS)}


def topic_folder(topic: str) -> str:
    """Return the folder of the tables of a topic in the object store."""
    return f"{FOLDER}/{topic}"


def table_path(topic: str, topic_id: str) -> str:
    """Return the path of a topic's table in the object store.

    The id of the topic, which Kafka gives it, is part of it: a topic that was removed and created again begins at
    offset 0, so its records don't belong into the former table. The id is Base64, whose slashes would divide the path.
    """
    return f"{topic_folder(topic)}/{topic_id.replace('/', '_').replace('+', '-')}"
