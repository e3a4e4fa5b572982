"""`python -m caraway.offline ID`: run one offline query to its end, unless another process does."""

import os
import sys
import threading
from datetime import timedelta
from functools import partial

import sqlalchemy as sa
import structlog

from caraway.dataplane.archive.store.model import archived_topics
from caraway.dataplane.archive.store.reading import cuts_now
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.topics.credentials import sign_in
from caraway.offline.executions import evaluation_of
from caraway.offline.loads.running import run_load
from caraway.offline.queries.context import opened_context
from caraway.offline.queries.credentials import opened
from caraway.offline.queries.evaluation import before_its_time
from caraway.offline.queries.inputs import Files, open_rows
from caraway.offline.queries.model import (
    JSON_INPUT,
    OfflineQuery,
    Place,
    QueryStatus,
    StoredRows,
    WhyRequest,
    folder_of,
)
from caraway.offline.queries.places import own_prefix
from caraway.offline.queries.running import QueryRun, attempted
from caraway.offline.queries.store import LEASES, OfflineQueries, process_name
from caraway.offline.why.messages import TopicMessages
from caraway.offline.why.running import write_explanation
from caraway.process.children.ending import LATER, on_request_to_end
from caraway.process.program import database_url, run_program
from caraway.process.recurring import Recurring
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.database import connect
from caraway.state.ownership.leases import HeldLease, Lease
from caraway.state.plans import Plans
from caraway.state.reader import StateReader

LOG = structlog.get_logger(__name__)

# How long the lease of a query lasts. If the process that runs the query doesn't renew the lease in this time, another
# process may take the query over.
LASTING = timedelta(seconds=15)
RENEW_SECONDS = 3.0
NICENESS = 5


def main(query_id: str) -> int:
    """Run a query with the settings of the environment; return the exit code."""
    name, run = f"offline query {query_id}", partial(_attempt, query_id)
    return run_program(name, run, niceness=NICENESS, unavailable=LATER)


def _attempt(query_id: str, settings: Settings) -> int:
    """Run a query, unless another process does; return the exit code."""
    database = connect(database_url(settings, "an offline query"))
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
            attempted(queries, query, partial(_run, settings, database, query, stopping))
    finally:
        renewing.stop(RENEW_SECONDS)
        lease.release()
    return 0


def _keep(lease: HeldLease) -> None:
    if not lease.keep(succeeds=False):
        # Another process has taken the query over, so this one must not write any more.
        LOG.error("the lease of the query is lost")
        os._exit(LATER)


def _run(settings: Settings, database: sa.Engine, query: OfflineQuery, stopping: threading.Event) -> QueryStatus | None:
    queries = OfflineQueries(database)
    keyring = open_keyring(settings.key_file)
    objects = ObjectFolder(settings.objects_url)
    request = query.request
    if request.load is not None:
        return run_load(settings, database, query, request.load, objects, stopping=stopping.is_set)
    if request.why is not None:
        return _explain(settings, database, query, request.why, objects)
    rows_access = opened(keyring, query.id, request.rows) if isinstance(request.rows, Place) else None
    rows = open_rows(query.id, request, objects, Files(settings.offline.local_files, rows_access))
    planned = Plans(StateReader(database)).planned(query.commit)
    cuts = query.cuts or cuts_now(sign_in(settings.kafka), archived_topics([planned.plan]))
    queries.begin(query.id, cuts, rows.count())
    output, prefix = objects, own_prefix(query.id)
    if request.output is not None:
        files = Files(settings.offline.local_files, opened(keyring, query.id, request.output))
        output, prefix = ObjectFolder(request.output.url, files.at(request.output)), ""
    with (
        opened_context(settings, database, planned, request, query.commit, cuts=cuts) as context,
        evaluation_of(settings, context, objects, query.id) as evaluation,
    ):
        run = QueryRun(
            query=queries.get(query.id),
            plan=evaluation.plan,
            rows=rows,
            queries=queries,
            output=output,
            prefix=prefix,
            part_rows=evaluation.part_rows,
            evaluate=before_its_time(evaluation.evaluate) if request.before else evaluation.evaluate,
            coverage=evaluation.coverage,
            stopping=stopping.is_set,
            watch=context.watch,
        )
        status = run.run()
    if status is not None:
        LOG.info("an offline query is over", query=query.id, status=status.value)
        if isinstance(request.rows, StoredRows):
            objects.remove(f"{folder_of(query.id)}/{request.rows.name}")
    return status


def _explain(
    settings: Settings, database: sa.Engine, query: OfflineQuery, asked: WhyRequest, objects: ObjectFolder
) -> QueryStatus:
    queries = OfflineQueries(database)
    planned = Plans(StateReader(database)).planned(query.commit)
    servers = sign_in(settings.kafka)
    cuts = query.cuts or cuts_now(servers, archived_topics([planned.plan]))
    queries.begin(query.id, cuts, 1)
    with opened_context(settings, database, planned, query.request, query.commit, cuts=cuts) as context:
        messages = TopicMessages(servers, settings.objects_url)
        memory_mb = settings.offline.memory_mb
        write_explanation(context, query, asked, objects=objects, messages=messages, memory_mb=memory_mb)
    queries.end(query.id, QueryStatus.SUCCEEDED)
    # The explanation contains the query's inputs, too. So the object that stores only the inputs isn't needed any more.
    objects.remove(f"{folder_of(query.id)}/{JSON_INPUT}")
    LOG.info("an explanation is ready", query=query.id)
    return QueryStatus.SUCCEEDED


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
