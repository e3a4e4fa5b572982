"""`python -m caraway.offline ID`: run one offline query to its end, unless another process does."""

import os
import sys
import threading
from datetime import timedelta
from functools import partial

import structlog

from caraway.archive.erasing import TableErasures
from caraway.archive.model import archived_topics
from caraway.archive.reading import ArchivedTopics, cuts_now
from caraway.children.ending import on_request_to_end
from caraway.cluster.leases import HeldLease, Lease
from caraway.config.errors import ConfigurationError
from caraway.config.settings import Settings, load_settings
from caraway.erasure.keys import ErasedKeys
from caraway.erasure.requests import ErasureLog
from caraway.errors import CarawayError, UnavailableError
from caraway.functions.confinement.configured import confinement_of
from caraway.functions.extractors.pool import FunctionPool
from caraway.logs import configure_logging
from caraway.objects.folder import ObjectFolder
from caraway.offline.engine import OfflineEngine
from caraway.offline.queries.credentials import opened
from caraway.offline.queries.inputs import Files, open_rows
from caraway.offline.queries.model import OfflineQuery, Place, QueryStatus, StoredRows, folder_of
from caraway.offline.queries.places import own_prefix
from caraway.offline.queries.running import QueryRun, attempted
from caraway.offline.queries.store import LEASES, OfflineQueries, process_name
from caraway.offline.reader import OfflineReader
from caraway.query.catalog import Catalog
from caraway.recurring import Recurring
from caraway.secrets.keyring import open_keyring
from caraway.secrets.store import SecretStore
from caraway.state.database import connect
from caraway.state.plans import Plans
from caraway.state.reader import StateReader
from caraway.topics.credentials import sign_in

LOG = structlog.get_logger(__name__)

# A process that hasn't renewed its lease for so long has died, and another one goes on with its query.
LASTING = timedelta(seconds=15)
RENEW_SECONDS = 3.0
NICENESS = 5
# The exit code of a process whose query is worked on by another one, or goes on later.
LATER = 75


def main(query_id: str) -> int:
    """Run a query with the settings of the environment; return the exit code."""
    try:
        os.umask(0o077)
        os.nice(NICENESS)
        settings = load_settings()
        configure_logging(settings.log_level)
        if settings.postgres.url is None:
            raise ConfigurationError("postgres.url: an offline query needs to know the database")
        database = connect(settings.postgres.url)
        lease = HeldLease(
            Lease(engine=database, name=LEASES + query_id, owner=process_name(os.getpid())),
            LASTING,
            renew_s=RENEW_SECONDS,
        )
        if not lease.keep(succeeds=False):
            return LATER
        stopping = threading.Event()
        on_request_to_end(stopping.set)
        renewing = Recurring("lease", partial(_keep, lease), RENEW_SECONDS)
        renewing.start()
        try:
            queries = OfflineQueries(database)
            query = queries.get(query_id)
            if not query.status.is_over:
                attempted(queries, query, partial(_run, settings, queries, query, stopping))
        finally:
            renewing.stop(RENEW_SECONDS)
            lease.release()
    except UnavailableError as error:
        sys.stderr.write(f"offline query {query_id}: {error}\n")
        return LATER
    except CarawayError as error:
        sys.stderr.write(f"offline query {query_id}: {error}\n")
        return 1
    return 0


def _keep(lease: HeldLease) -> None:
    if not lease.keep(succeeds=False):
        # Another process has taken the query over, so this one must not write any more.
        LOG.error("the lease of the query is lost")
        os._exit(LATER)


def _run(
    settings: Settings, queries: OfflineQueries, query: OfflineQuery, stopping: threading.Event
) -> QueryStatus | None:
    database = connect(settings.postgres.url or "")
    keyring = open_keyring(settings.key_file)
    objects = ObjectFolder(settings.objects_url)
    request = query.request
    rows_access = opened(keyring, query.id, request.rows) if isinstance(request.rows, Place) else None
    rows = open_rows(query.id, request, objects, Files(settings.offline.local_files, rows_access))
    planned = Plans(StateReader(database)).planned(query.commit)
    topics = archived_topics([planned.plan])
    servers = sign_in(settings.kafka)
    cuts = query.cuts or cuts_now(servers, topics)
    queries.begin(query.id, cuts, rows.count())
    output, prefix = objects, own_prefix(query.id)
    if request.output is not None:
        files = Files(settings.offline.local_files, opened(keyring, query.id, request.output))
        output, prefix = ObjectFolder(request.output.url, files.at(request.output)), ""
    erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
    TableErasures(ErasureLog(database), erased).refresh()
    secrets = SecretStore(database, keyring)
    functions = FunctionPool(
        1,
        settings.offline.extractor_seconds,
        settings.server.extractor_memory_mb,
        secrets=secrets.get,
        confinement=confinement_of(settings),
    )
    source = ArchivedTopics(servers, settings.objects_url, cuts)
    plans = planned.plan
    with OfflineReader(source, plans.indexes, plans.topics, erased=erased, known=request.as_known) as reader:
        engine = OfflineEngine(Catalog(query.commit, planned.graph), reader, functions.compile)
        plan = engine.plan(request.inputs, request.outputs)
        if plan.runs_user_code:
            secrets.refresh()
            functions.start()
        try:
            found = queries.get(query.id)
            run = QueryRun(
                query=found,
                plan=plan,
                rows=rows,
                queries=queries,
                output=output,
                prefix=prefix,
                stopping=stopping.is_set,
            )
            status = run.run()
        finally:
            functions.stop()
    if status is not None:
        LOG.info("an offline query is over", query=query.id, status=status.value)
        if isinstance(request.rows, StoredRows):
            objects.remove(f"{folder_of(query.id)}/{request.rows.name}")
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
