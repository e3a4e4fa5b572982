"""`python -m caraway.archive`: archive the topics of all branches, until SIGTERM or SIGINT."""

import os
import socket
import sys

from caraway.archive.archiver import Archiver
from caraway.archive.downstream import DownstreamErasures
from caraway.archive.erasing import TableErasures
from caraway.archive.follower import Follower, encoder_of
from caraway.archive.reports import ArchiveReports
from caraway.archive.served import SERVED_PLAN, ServedEncoder, ServedErasures, ServedRemoval
from caraway.archive.trimming import Trimming
from caraway.children.ending import on_request_to_end
from caraway.cluster.members import ARCHIVES, Member
from caraway.collector import collect_rarely
from caraway.config.errors import ConfigurationError
from caraway.config.settings import load_settings
from caraway.erasure.keys import ErasedKeys
from caraway.erasure.requests import ErasureLog
from caraway.erasure.served_rows import ErasedRows
from caraway.errors import CarawayError
from caraway.graph.wire.graphs import decode_graph
from caraway.logs import configure_logging
from caraway.objects.folder import ObjectFolder
from caraway.secrets.keyring import open_keyring
from caraway.served.skew import SkewStore
from caraway.state.database import connect, require_tables
from caraway.state.reader import StateReader
from caraway.state.tables import metadata
from caraway.topics.admin import check_access
from caraway.topics.credentials import sign_in

# The archive gives way to all that answers requests: a server or a job that is behind is noticed, an archive that comes
# some seconds later isn't.
NICENESS = 10


def main() -> int:
    """Run an archive with the settings of the environment; return the exit code."""
    try:
        os.umask(0o077)
        os.nice(NICENESS)
        collect_rarely()
        settings = load_settings()
        configure_logging(settings.log_level)
        if settings.postgres.url is None:
            raise ConfigurationError("postgres.url: the archive needs to know the database")
        servers = sign_in(settings.kafka)
        check_access(servers)
        database = connect(settings.postgres.url)
        require_tables(database, metadata.tables)
        reports = ArchiveReports(database)
        log = ErasureLog(database)
        erased, state = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys()), StateReader(database)
        erasures = TableErasures(log, erased)
        erased_rows = ErasedRows(erased, lambda commit: decode_graph(state.graph(commit)))
        served = ServedEncoder(erased_rows)
        follower = Follower(
            servers,
            settings.objects_url,
            settings.archive.seconds,
            report=reports.write,
            hides=erasures.hides,
            encoder=lambda plan: served if plan is SERVED_PLAN else encoder_of(plan),
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
    except CarawayError as error:
        sys.stderr.write(f"archive: {error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
