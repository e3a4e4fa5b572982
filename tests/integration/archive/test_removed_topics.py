"""The table of a topic that is removed is removed as well, and no other."""

from pathlib import Path
from typing import Any

import sqlalchemy as sa

from caraway.apps.server.control.service import CommitService
from caraway.dataplane.archive.archiver import Archiver
from caraway.dataplane.archive.downstream import DownstreamErasures
from caraway.dataplane.archive.erasing import TableErasures
from caraway.dataplane.archive.follower import Follower
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.served import ServedErasures, ServedRemoval
from caraway.dataplane.archive.served_rows import ErasedRows
from caraway.dataplane.archive.store.model import TableReport, TableSize, topic_folder
from caraway.dataplane.archive.trimming import Trimming
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.graph.wire.graphs import CommitRequest, decode_graph
from caraway.state.database import connect
from caraway.state.erasures import ErasureLog
from caraway.state.ownership.members import ARCHIVES, Member
from caraway.state.reader import StateReader
from caraway.state.tables import assets
from tests.integration.control.steps import Clock, Plant, Steps
from tests.integration.control.test_steps import graph


def test_the_table_of_a_removed_topic_is_removed(postgres: str, kafka: str, tmp_path: Path) -> None:
    (tmp_path / "topics").mkdir()
    plant = Plant(postgres, tmp_path / "topics", Steps(), Clock())
    service: CommitService = plant.commits
    service.commit(CommitRequest(message="one", graph=graph(1)))
    engine, objects = connect(postgres), ObjectFolder(str(tmp_path / "objects"))
    reports, state, log, erased = ArchiveReports(engine), StateReader(engine), ErasureLog(engine), ErasedKeys(dict)
    rows = ErasedRows(erased, lambda commit: decode_graph(state.graph(commit)))
    archiver = Archiver(
        Follower(kafka, objects.url, 1.0),
        state,
        Member(engine=engine, group=ARCHIVES, node="test"),
        erasures=TableErasures(log, erased),
        downstream=DownstreamErasures(log, kafka, replaced_hours=24),
        served=ServedRemoval(ServedErasures(log, rows, lambda _: None), kafka, replaced_hours=24),
        reports=reports,
        objects=objects,
        trimming=Trimming(kafka, None),
    )
    topics = [asset.name for asset in state.assets() if asset.kind == "topic"]
    for topic in [*topics, "caraway.Unknown.1"]:
        objects.write(f"{topic_folder(topic)}/id/file", b"rows")
        size = TableSize(rows=1, files=1, bytes=4)
        reports.write(TableReport(topic=topic, dataset="D", url="u", positions={0: 1}, size=size))

    def left() -> tuple[Any, Any]:
        archiver.clear()
        return set(reports.all()), {stored.name.split("/")[1] for stored in objects.stored()}

    every = {*topics, "caraway.Unknown.1"}
    assert left() == (every, every)
    with engine.begin() as connection:
        connection.execute(sa.update(assets).where(assets.c.id == f"topic:{topics[0]}").values(state="gone"))
    # A topic of which nothing is known stays: another deployment may use the same object store.
    assert left() == (every - {topics[0]}, every - {topics[0]})
    plant.close()
    engine.dispose()
