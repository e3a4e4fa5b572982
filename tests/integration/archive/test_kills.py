"""An archive is killed at random moments; its tables are readable all the time, and have each row once."""


# mypy: disable-error-code="no-untyped-def, attr-defined, arg-type, assignment"

import random
from collections.abc import Callable
from contextlib import closing

import pytest

from caraway.client import Client
from tests.integration.archive.archive_process import ArchiveProcess, Duck, tables
from tests.integration.archive.doors import BATCH, definitions, rows
from tests.integration.server.server_process import ServerProcess, eventually

KILLS = 12
QUERY = "SELECT count(*), count(DISTINCT number), max(number) FROM {table}"


def count(duck: Duck, server: ServerProcess, name: str) -> tuple[int, int, int]:
    """Return the numbers of rows and of different rows that a foreign reader finds, and the greatest row."""
    found = tables(server.settings, name)
    if not found:
        return 0, 0, -1
    total, different, greatest = duck.ask(QUERY, found[0])
    return total, different, -1 if greatest is None else greatest


def test_no_row_is_lost_or_doubled_whenever_an_archive_is_killed(
    server: ServerProcess, archive_of: Callable[[str], ArchiveProcess]
) -> None:
    chance = random.Random(KILLS)
    archive = archive_of("archive")
    sent, last = 0, {"Opened": (0, 0, -1), "Doors": (0, 0, -1)}

    def look() -> dict[str, tuple[int, int, int]]:
        for name, before in last.items():
            found = count(duck, server, name)
            assert found[0] == found[1], (name, found)
            assert found >= before, (name, found, before)
            last[name] = found
        return last

    with closing(Client(str(server.settings.server.url))) as client, closing(Duck()) as duck:
        client.commit("doors", datasets=definitions(KILLS))
        for _ in range(KILLS):
            archive.start()
            begin = last["Opened"][0]
            client.log("doors", "opened", rows(sent))
            client.log("doors", "doors", rows(sent))
            sent += BATCH
            eventually(lambda begin=begin: bool(look()["Opened"][0] > begin), archive.said)  # type: ignore[misc]
            for _ in range(chance.randrange(20)):
                client.log("doors", "opened", rows(sent))
                client.log("doors", "doors", rows(sent))
                sent += BATCH
                look()
            archive.kill()
        archive.start()
        eventually(lambda: all(found[0] == sent for found in look().values()), archive.said)
        assert all(found == (sent, sent, sent - 1) for found in last.values())
        assert archive.lives(), archive.said()
        assert archive.stop() == 0
        look()


@pytest.mark.full(reason="a minute of kills; the test above kills one archive, cluster/ has tests of divisions")
def test_several_archives_divide_the_topics_and_take_each_other_s_over(
    server: ServerProcess, archive_of: Callable[[str], ArchiveProcess]
) -> None:
    archives = [archive_of(f"archive{number}") for number in range(3)]
    with closing(Client(str(server.settings.server.url))) as client, closing(Duck()) as duck:
        client.commit("doors", datasets=definitions(1))
        for archive in archives:
            archive.start()
        sent = 0

        def all_there() -> bool:
            return all(count(duck, server, name) == (sent, sent, sent - 1) for name in ("Opened", "Doors"))

        def said() -> str:
            return "\n".join(archive.said() for archive in archives)

        for archive in archives:
            for _ in range(5):
                client.log("doors", "opened", rows(sent))
                client.log("doors", "doors", rows(sent))
                sent += BATCH
            eventually(all_there, said)
            if archive is not archives[-1]:
                archive.kill()
        assert archives[-1].stop() == 0
        assert all_there()
