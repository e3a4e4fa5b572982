"""`python -m caraway.drift_watch`: profile served features, until SIGTERM, or as long as there are any."""

import sys
import threading

import sqlalchemy as sa

from caraway.alerts.lasting import LastingAlerts
from caraway.alerts.webhook import Webhook
from caraway.config.settings import Settings
from caraway.drift_watch.alerting import NAME, OBJECT
from caraway.drift_watch.watch import DriftWatch, Parts
from caraway.erasure.keys import ErasedKeys
from caraway.objects.folder import ObjectFolder
from caraway.secrets.keyring import open_keyring
from caraway.served.drift import LEASE
from caraway.watches.process import Passes, run_watch


def _watch(settings: Settings, database: sa.Engine, stopping: threading.Event) -> None:
    erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
    alerts = LastingAlerts(NAME, OBJECT, ObjectFolder(settings.objects_url), Webhook(settings.alerts.webhook))
    watch = DriftWatch(settings, Parts(database, erased, alerts))
    Passes("drift", watch.run_once, settings.drift.seconds, stopping).make()


if __name__ == "__main__":
    sys.exit(run_watch("drift", LEASE, _watch))
