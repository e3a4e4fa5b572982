"""The settings of the jobs on Spark, and of the functions of users that run in them."""

import os
from typing import Annotated, Literal

from pydantic import Field

from caraway.process.settings.section import FolderPath, MemorySize, Section, SparkMaster


class SparkSettings(Section):
    """Spark, which runs the jobs.

    Attributes:
        master: Spark master. Real-time mode needs a slot for every task of every job at once, and an idle task
            costs next to nothing: hence many more slots than cores.
        driver_memory: Java heap of the driver, such as `1g`.
        checkpoints: Folder of the jobs' checkpoints, which all engines that share jobs must see, under the same path;
            None is one in the data folder.
        checkpoint_interval_seconds: Seconds between two checkpoints of a job. Each checkpoint pauses its job for a
            third of a second, and a restart replays at most one interval. Spark's real-time mode wants at least 5.
        function_seconds: The most seconds that one call of a user's function with a batch may take; rows for which it
            takes longer become dead letters.
        function_memory_mb: Memory that a user's function may take, in MiB, beyond what its process has with all modules
            loaded.
        conf: More of Spark's own settings, as `name=value`, such as `spark.executor.memory=2g`.
        jars: Jars of the Kafka connector; the stack fills this in for the parts that it starts.
    """

    master: SparkMaster = "local[256]"
    driver_memory: MemorySize = "1g"
    checkpoints: FolderPath | None = None
    checkpoint_interval_seconds: Annotated[int, Field(ge=5)] = 180
    function_seconds: Annotated[float, Field(gt=0)] = 60.0
    function_memory_mb: Annotated[int, Field(ge=64)] = 1024
    conf: tuple[Annotated[str, Field(pattern=r"^spark\.[^=\s]+=.*$")], ...] = ()
    jars: tuple[FolderPath, ...] = ()

    @property
    def processors(self) -> int | None:
        """Return how many processors the tasks share: those of this machine if Spark runs locally; None: unknown."""
        return os.cpu_count() if self.master.startswith("local") else None


class FunctionSettings(Section):
    """Users' functions, which run in processes that can compute and nothing else (docs/operate/security.md).

    Attributes:
        isolation: "available" isolates functions as far as the system can and logs what it lacks, "required" refuses to
            run them if it lacks anything, "off" runs them with all rights of the platform.
        user: The number of the user that they run as if the platform runs as root; None chooses an unused one.
        network: True: they may open connections.
        processes: True: they may start processes.
        readable: Files and folders that they may read, such as a model's.
        environment: Names of environment variables of the platform that they may see.
    """

    isolation: Literal["required", "available", "off"] = "available"
    user: Annotated[int, Field(ge=1, le=2**31)] | None = None
    network: bool = False
    processes: bool = False
    readable: tuple[FolderPath, ...] = ()
    environment: tuple[Annotated[str, Field(min_length=1)], ...] = ()


class JarsSettings(Section):
    """The source of the Java libraries.

    Attributes:
        ivy_settings: An Ivy settings file that names your mirror; None uses Maven Central.
    """

    ivy_settings: FolderPath | None = None
