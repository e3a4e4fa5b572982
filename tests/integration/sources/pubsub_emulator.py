"""Google's own emulator of PubSub, where it is installed."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from subprocess import DEVNULL, Popen

import grpc
import pytest

from caraway.apps.stack import ports
from caraway.dataplane.streams.java.runtime import find_java

FOLDER = Path("/usr/lib/google-cloud-sdk/platform/pubsub-emulator/lib")


@contextmanager
def running_emulator() -> Iterator[str]:
    """Run the emulator, and yield its address; without it the test is skipped, which is reported."""
    jars = sorted(FOLDER.glob("cloud-pubsub-emulator-*-all.jar"))
    if not jars:
        pytest.skip("Google's emulator isn't installed: apt-get install google-cloud-cli-pubsub-emulator")
    port = ports.choose()
    command = [str(find_java()), "-Xmx1g", "-jar", str(jars[-1]), "--host=127.0.0.1", f"--port={port}"]
    with Popen(command, stdout=DEVNULL, stderr=DEVNULL) as process:
        try:
            with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
                grpc.channel_ready_future(channel).result(60)
            yield f"127.0.0.1:{port}"
        finally:
            process.kill()
