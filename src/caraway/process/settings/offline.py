"""The settings of the archive, and of the offline queries that read it."""

from typing import Annotated

from pydantic import Field

from caraway.process.settings.section import MemorySize, Section, SparkMaster


class ArchiveSettings(Section):
    """The archive: the records of all datasets in Delta tables in the object store.

    Attributes:
        enabled: False: the stack runs no archive; offline queries and training sets then read what the topics have.
        seconds: Seconds after which an accepted row is in its table. Small values make many small files, which are
            compacted later.
        topic_days: Days after which records that are in their table are removed from their topic. None: topics keep all
            records.
        replaced_hours: Hours for which a table keeps files that were replaced, since a reader may have begun with them.
            Rows of erased keys stay in these files until then.
    """

    enabled: bool = True
    seconds: Annotated[float, Field(gt=0)] = 30.0
    topic_days: Annotated[float, Field(ge=0)] | None = None
    replaced_hours: Annotated[int, Field(ge=0)] = 24


class OfflineSettings(Section):
    """Offline queries, which compute features for many rows as of the rows' times.

    Attributes:
        processes: The most offline queries that a server works on at a time, each in a process of its own; further ones
            wait. 0: this server leaves them to others.
        extractor_seconds: The longest time that a Python extractor may take for some thousands of rows.
        local_files: True: a request may name files of the server's machine as its input or output. Then everybody who
            may query data can read and write every file that the server can.
        endpoints: Host and port of stores beside those of the clouds, such as one's own MinIO, that requests may name
            as `endpoint_override`. The server opens no connection to other hosts for a request.
        own_rights: Addresses, such as `s3://bucket/training`, below which files of requests are read and written with
            the server's own rights. For all others a request needs access keys or a role.
        roles: The ARNs of the roles of AWS that the server may assume for requests that name them.
        memory_mb: The memory, in MiB, for the records that a query reads in its own process. A query that needs more
            runs on Spark.
        spark_master: Spark master of these queries, each of which has a session of its own. `local[N,M]` runs N tasks
            at a time in the query's process, and each up to M times.
        spark_driver_memory: Java heap of these sessions.
        spark_broadcast_mb: Datasets whose records need less memory, in MiB, are read as a whole by each task. Larger
            ones are divided by key.
        spark_records_mb: The records of a dataset that a task of Spark holds in memory, in MiB; it sorts more of them
            on the disk.
        spark_conf: More of Spark's own settings, as `name=value`, such as `spark.executor.memory=2g`.
        kept_days: Days after which the results of a query are removed from the server's object store.
    """

    processes: Annotated[int, Field(ge=0, le=100)] = 1
    extractor_seconds: Annotated[float, Field(gt=0)] = 60.0
    local_files: bool = False
    endpoints: tuple[str, ...] = ()
    own_rights: tuple[str, ...] = ()
    roles: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    memory_mb: Annotated[int, Field(ge=1)] = 4096
    spark_master: SparkMaster = "local[*,3]"
    spark_driver_memory: MemorySize = "1g"
    spark_broadcast_mb: Annotated[int, Field(ge=0)] = 64
    spark_records_mb: Annotated[float, Field(gt=0)] = 64.0
    spark_conf: tuple[Annotated[str, Field(pattern=r"^spark\.[^=\s]+=.*$")], ...] = ()
    kept_days: Annotated[float, Field(gt=0)] = 30.0
