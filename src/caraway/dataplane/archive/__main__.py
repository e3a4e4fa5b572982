"""`python -m caraway.dataplane.archive`: archive the topics of all branches, until SIGTERM or SIGINT."""

import socket
import sys

from caraway.dataplane.archive.archiver import Archiver
from caraway.dataplane.archive.downstream import DownstreamErasures
from caraway.dataplane.archive.erasing import TableErasures
from caraway.dataplane.archive.follower import Follower, encoder_of
from caraway.dataplane.archive.reports import ArchiveReports
from caraway.dataplane.archive.served import SERVED_PLAN, ServedEncoder, ServedErasures, ServedRemoval
from caraway.dataplane.archive.served_rows import ErasedRows
from caraway.dataplane.archive.trimming import Trimming
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.admin import check_access
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.dataplane.topics.left_out import LeftOutLetters
from caraway.dataplane.topics.truncation import Continuation
from caraway.graph.wire.graphs import decode_graph
from caraway.process.children.ending import on_request_to_end
from caraway.process.collector import collect_rarely
from caraway.process.program import database_url, run_program
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.database import connect, require_tables
from caraway.state.erasures import ErasureLog
from caraway.state.losses import Loss, Losses
from caraway.state.ownership.members import ARCHIVES, Member
from caraway.state.reader import StateReader
from caraway.state.skew import SkewStore
from caraway.state.tables import metadata
from caraway.state.watched import ServedPositions

# The archive has a lower priority than all processes that answer requests: users notice a server or a job that is
# behind, but not an archive that is some seconds late.
NICENESS = 10


def main() -> int:
    """Run an archive with the settings of the environment; return the exit code."""
    return run_program("archive", _run, niceness=NICENESS)


def _run(settings: Settings) -> int:
    collect_rarely()
    url = database_url(settings, "the archive")
    servers = sign_in(settings.kafka)
    check_access(servers)
    database = connect(url)
    require_tables(database, metadata.tables)
    reports = ArchiveReports(database)
    log = ErasureLog(database)
    erased, state = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys()), StateReader(database)
    erasures = TableErasures(log, erased)
    erased_rows = ErasedRows(erased, lambda commit: decode_graph(state.graph(commit)))
    letters = LeftOutLetters(servers, "archive")
    served = ServedEncoder(erased_rows)
    losses, watched = Losses(database), ServedPositions(database)

    def note_loss(place: Continuation, url: str, text: str) -> None:
        losses.note(Loss(topic=place.topic, follower="archive", kind="archive", text=text))
        if place.topic == SERVED_PLAN.name:
            watched.go_back(url.rpartition("/")[2], place.lost)

    follower = Follower(
        servers,
        settings.objects_url,
        settings.archive.seconds,
        report=reports.write,
        note_loss=note_loss,
        hides=erasures.hides,
        encoder=lambda plan: served if plan is SERVED_PLAN else encoder_of(plan, letters.write),
        replaced_hours=settings.archive.replaced_hours,
    )
    member = Member(engine=database, group=ARCHIVES, node=f"{socket.gethostname()}:{settings.data_dir}")
    archiver = Archiver(
        follower,
        state,
        member,
        erasures=erasures,
        downstream=DownstreamErasures(log, servers, replaced_hours=settings.archive.replaced_hours),
        served=ServedRemoval(
            ServedErasures(log, erased_rows, SkewStore(database).forget),
            servers,
            replaced_hours=settings.archive.replaced_hours,
        ),
        reports=reports,
        objects=ObjectFolder(settings.objects_url),
        trimming=Trimming(servers, settings.archive.topic_days),
    )
    on_request_to_end(archiver.stop)
    archiver.run()
    return 0


if __name__ == "__main__":
    sys.exit(main())
