"""The watch over lineage, if the settings ask for one."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from importlib import import_module

import sqlalchemy as sa

from caraway.dataplane.objects.folder import ObjectFolder
from caraway.offline.monitoring.openlineage.sender import EventSender
from caraway.offline.monitoring.openlineage.watch import LineageWatch, MakesEvents
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.monitoring import OpenLineageSettings
from caraway.state.model import JobRecord
from caraway.state.ownership.leases import HeldLease, Lease
from caraway.state.plans import Needed

LEASE = "openlineage"
LASTING = timedelta(seconds=30)


def lineage_watches(
    settings: OpenLineageSettings,
    database: sa.Engine,
    objects: ObjectFolder,
    *,
    member: str,
    needed: Callable[[], Needed | None],
    jobs: Callable[[], Sequence[JobRecord]],
) -> list[LineageWatch]:
    """Return the watch; none if no address of a receiver is set.

    Args:
        settings: The settings.
        database: Postgres.
        objects: The object store.
        member: The name of this server among those of the deployment.
        needed: Returns what the branches need; None as long as it isn't known.
        jobs: Returns the jobs as engines report them.

    Raises `ConfigurationError` if OpenLineage's client isn't installed.
    """
    if settings.url is None:
        return []
    try:
        module = import_module("caraway.offline.monitoring.openlineage.events")
    except ImportError as error:
        raise ConfigurationError(
            f"openlineage.url: OpenLineage's client isn't installed ({error}): pip install caraway[openlineage]"
        ) from error
    events: MakesEvents = module.Events(settings.namespace)
    lease = HeldLease(Lease(engine=database, name=LEASE, owner=member), LASTING)
    sender = EventSender(settings.url, settings.api_key)
    return [LineageWatch(events, sender, needed=needed, jobs=jobs, objects=objects, lease=lease)]
