"""A standalone Spark cluster on this machine, started from PySpark's jars: a master and some workers."""

import os
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyspark

from caraway.apps.stack import ports
from caraway.dataplane.streams.java.runtime import find_java
from tests.timeouts import deadline_in, scaled

SPARK_HOME = Path(pyspark.__file__).parent
JARS = SPARK_HOME / "jars" / "*"
DEPLOY = "org.apache.spark.deploy"
HOST = "127.0.0.1"


class Cluster:
    """The processes of a cluster, each with a log."""

    def __init__(self, folder: Path, *, cores: int, memory: str) -> None:
        """Set the cores and the memory that each worker offers."""
        self._folder = folder
        self._offer = ["--cores", str(cores), "--memory", memory]
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self.url = f"spark://{HOST}:{ports.choose()}"

    def start(self, workers: int) -> None:
        master = ["--host", HOST, "--port", self.url.rpartition(":")[2], "--webui-port", "0"]
        self._run("master", f"{DEPLOY}.master.Master", master)
        self._wait_for("master", "I have been elected leader")
        for number in range(workers):
            self.start_worker(number)
        for number in range(workers):
            self._wait_for(f"worker{number}", "Successfully registered with master")

    def start_worker(self, number: int) -> None:
        """Start a further worker; it is used as soon as it has registered."""
        scratch = self._folder / f"work{number}"
        options = ["--host", HOST, *self._offer, "--webui-port", "0", "-d", str(scratch), self.url]
        self._run(f"worker{number}", f"{DEPLOY}.worker.Worker", options)

    def kill_worker(self, number: int) -> None:
        """Kill a worker; its executor ends when it sees that."""
        self._processes[f"worker{number}"].kill()

    def executors(self) -> set[str]:
        """Return the folders in which executors have run, one each."""
        return {str(path) for path in self._folder.glob("work*/app-*/*") if path.is_dir()}

    def stop(self) -> None:
        # The master is stopped last.
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(scaled(10))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _run(self, name: str, main: str, arguments: list[str]) -> None:
        # The log level at which master and workers report that they are ready.
        settings = self._folder / "log4j2.properties"
        settings.write_text(LOGGING)
        options = ["-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", f"-Dlog4j2.configurationFile={settings}"]
        with (self._folder / f"{name}.log").open("wb") as log:
            command = [str(find_java()), "-cp", str(JARS), *options, main, *arguments]
            # A worker starts executors from this folder.
            environment = {**os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_SCALA_VERSION": "2.13"}
            self._processes[name] = subprocess.Popen(command, env=environment, stdout=log, stderr=log)

    def _wait_for(self, name: str, text: str) -> None:
        log = self._folder / f"{name}.log"
        deadline = deadline_in(120)
        while not re.search(text, log.read_text()):
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            time.sleep(0.1)


LOGGING = """
rootLogger.level = info
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %p %m%n
"""


@contextmanager
def running_cluster(folder: Path, *, workers: int, cores: int, memory: str) -> Iterator[Cluster]:
    """Yield a running cluster, and stop it afterwards."""
    cluster = Cluster(folder, cores=cores, memory=memory)
    try:
        cluster.start(workers)
        yield cluster
    finally:
        cluster.stop()
