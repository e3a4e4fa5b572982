"""Two engines that both believe they run the jobs: the one with the newest token does, and the other one stops."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from caraway.dataplane.streams.engine.engine import EXIT_FENCED
from tests.faults.conftest import Traffic
from tests.integration.engine import member_process
from tests.integration.engine.rig import Rig
from tests.integration.spark.broker import Broker
from tests.timeouts import scaled

# The lease of these engines lasts so long.
SECONDS = "6"


class FencedRig(Rig):
    """An engine with a lease."""

    def __init__(self, folder: Path, bootstrap_servers: str, postgres: str) -> None:
        super().__init__(folder, bootstrap_servers, CARAWAY_POSTGRES__URL=postgres)
        self.program, self.arguments = Path(member_process.__file__), [SECONDS]

    def wait_until_all_run(self, traffic: Traffic) -> None:
        self.wait_until_running(len(traffic.jobs), 180)

    def tree(self) -> list[psutil.Process]:
        process = psutil.Process(self.process.pid)
        return [process, *process.children(recursive=True)]

    def pause(self) -> None:
        for process in self.tree():
            process.suspend()

    def resume(self) -> None:
        # The engine last: it may end the others as soon as it looks around.
        for process in reversed(self.tree()):
            process.resume()


@pytest.fixture
def rigs(broker: Broker, tmp_path: Path, postgres: str) -> Iterator[tuple[FencedRig, FencedRig]]:
    both = (
        FencedRig(tmp_path, broker.bootstrap_servers, postgres),
        FencedRig(tmp_path, broker.bootstrap_servers, postgres),
    )
    yield both
    for rig in both:
        if rig._process is not None and rig.process.poll() is None:
            rig.resume()
        rig.close()


def test_an_engine_that_comes_back_stops_and_has_harmed_nothing(
    rigs: tuple[FencedRig, FencedRig], traffic: Traffic
) -> None:
    first, second = rigs
    checkpoints = first.folder / "checkpoints"
    first.want(traffic.jobs)
    first.start()
    first.wait_until_all_run(traffic)
    traffic.send(0)
    traffic.agree(first, 1)
    # While it lives, nobody else gets in.
    second.start()
    second.process.wait(scaled(180))
    assert "another engine runs in this data folder" in second.log()

    first.pause()
    second.start()
    second.wait_until_all_run(traffic)
    assert [folder.name for folder in checkpoints.iterdir()] == ["token-2"]
    traffic.send(1)
    traffic.agree(second, 2)
    # Both work on what comes now, the first one as if nothing had been.
    traffic.send(2)
    first.resume()
    assert first.process.wait(scaled(90)) == EXIT_FENCED, first.log()
    assert second.process.poll() is None
    traffic.agree(second, 3)

    # The second engine has left a complete checkpoint, from which the third one continues.
    os.kill(second.process.pid, signal.SIGKILL)
    second.process.wait()
    first.start()
    first.wait_until_all_run(traffic)
    assert all((checkpoints / "token-2" / job.job_id / "commits").is_dir() for job in traffic.jobs)
    traffic.send(3)
    traffic.agree(first)
