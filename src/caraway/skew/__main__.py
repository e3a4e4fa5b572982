"""`python -m caraway.skew`: compute samples of served features again, until SIGTERM, or as long as there are any."""

import sys
import threading

import sqlalchemy as sa

from caraway.config.settings import Settings
from caraway.erasure.keys import ErasedKeys
from caraway.functions.confinement.configured import confinement_of
from caraway.functions.extractors.pool import FunctionPool
from caraway.secrets.keyring import open_keyring
from caraway.secrets.store import SecretStore
from caraway.served.skew import LEASE
from caraway.skew.watch import Parts, SkewWatch
from caraway.watches.process import Passes, run_watch


def _watch(settings: Settings, database: sa.Engine, stopping: threading.Event) -> None:
    secrets = SecretStore(database, open_keyring(settings.key_file))
    functions = FunctionPool(
        1,
        settings.offline.extractor_seconds,
        settings.server.extractor_memory_mb,
        secrets=secrets.get,
        confinement=confinement_of(settings),
    )
    erased = ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys())
    watch = SkewWatch(settings, Parts(database, erased, functions, secrets))
    try:
        Passes("skew", watch.run_once, settings.skew.seconds, stopping).make()
    finally:
        functions.stop()


if __name__ == "__main__":
    sys.exit(run_watch("skew", LEASE, _watch))
