"""An engine with a lease in Postgres, in a process of its own; its registry is a folder."""

import logging
import sys
from datetime import timedelta
from pathlib import Path

from caraway.cluster.members import ENGINES, Member
from caraway.config.settings import load_settings
from caraway.engine import driver, fencing
from caraway.engine.engine import Engine, stop_on_signals
from caraway.state.database import connect
from tests.integration.engine.engine_process import FolderRegistry

# The same rules in less time.
driver.LOCK_SECONDS = 2.0
fencing.LASTING = timedelta(seconds=6)
fencing.RENEW_SECONDS = 1.0

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings, folder = load_settings(), Path(sys.argv[1])
    assert settings.postgres.url is not None
    member = Member(engine=connect(settings.postgres.url), group=ENGINES, node=str(folder))
    engine = Engine(settings, FolderRegistry(folder), member)
    stop_on_signals(engine)
    sys.exit(engine.run())
