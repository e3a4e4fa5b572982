"""A deployment whose topics keep only what isn't archived yet answers as before, even if it loses its index."""

import shutil
from collections.abc import Callable
from contextlib import closing

import pandas as pd
import pytest

from caraway.client import Client
from caraway.dataplane.topics.positions import TopicEnds
from tests.integration.archive.archive_process import ArchiveProcess
from tests.integration.archive.doors import BATCH, definitions, rows
from tests.integration.server.server_process import ServerProcess, eventually


def newest(found: pd.DataFrame) -> dict[str, int]:
    """Return the number of the newest row of each door."""
    last = found.sort_values("at", kind="stable").groupby("door").tail(1)
    return dict(zip(last["door"], last["number"], strict=True))


@pytest.mark.full(reason="a server and archives for half a minute; test_short_topics.py builds an index the same way")
def test_a_lost_index_is_built_from_the_archive(
    server: ServerProcess, archive_of: Callable[..., ArchiveProcess]
) -> None:
    kafka = str(server.settings.kafka.bootstrap_servers)
    archive = archive_of("archive", topic_days=0.0)
    archive.start()
    (opened, doors) = definitions(91)

    def answered(client: Client) -> dict[str, int]:
        keys = pd.DataFrame({"door": [f"d{number}" for number in range(7)]})
        found, _ = client.lookup(doors, keys=keys)
        # A key without a row yet has NA, which isn't equal to anything, not even unequal.
        return {
            door: int(number) for door, number in zip(keys["door"], found["number"], strict=True) if pd.notna(number)
        }

    with closing(Client(str(server.settings.server.url))) as client:
        client.commit("doors", datasets=[opened, doors])
        client.log("doors", "doors", rows(0))
        topic, ends = server.topic("Doors"), TopicEnds(kafka)

        def removed() -> int:
            return sum(ends.beginnings([topic])[topic].values())

        eventually(lambda: removed() == BATCH, lambda: f"{removed()} {archive.said()}")
        # The process has ended when the next rows come, so these are on the topic alone.
        archive.kill()
        client.log("doors", "doors", rows(BATCH))
        expected = newest(pd.concat([rows(0), rows(BATCH)]))
        eventually(lambda: answered(client) == expected, server.said)
        server.kill()
        # Snapshots of the index are lost as well.
        shutil.rmtree(server.settings.data_dir / "index")
        shutil.rmtree(server.settings.data_dir / "objects" / "index-snapshots", ignore_errors=True)
        server.start()
        eventually(lambda: answered(client) == expected, server.said)
