"""An engine that shares its jobs with others through a real Postgres; the wanted jobs are in a folder.

`member_process.py FOLDER [SECONDS]`: with SECONDS, its lease lasts so long, and what depends on it is as much shorter.
"""

import logging
import sys
from datetime import timedelta
from pathlib import Path

from caraway.dataplane.streams.engine import driver, fencing
from caraway.dataplane.streams.engine.engine import Engine, stop_on_signals
from caraway.process.settings.settings import load_settings
from caraway.state.database import connect
from caraway.state.ownership.members import ENGINES, Member
from tests.integration.engine.engine_process import FolderRegistry

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    logging.getLogger("py4j").setLevel(logging.ERROR)
    settings, shared = load_settings(), Path(sys.argv[1])
    for seconds in map(float, sys.argv[2:]):
        driver.LOCK_SECONDS, fencing.RENEW_SECONDS = seconds / 3, seconds / 6
        fencing.LASTING = timedelta(seconds=seconds)
    assert settings.postgres.url is not None
    member = Member(engine=connect(settings.postgres.url), group=ENGINES, node=settings.data_dir.name)
    engine = Engine(settings, FolderRegistry(shared), member)
    stop_on_signals(engine)
    sys.exit(engine.run())
