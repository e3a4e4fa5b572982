"""`python -m caraway.dataplane.streams.engine`: run the jobs of the registry in Postgres."""

import faulthandler
import logging
import os
import socket
import sys

from caraway.dataplane.streams.engine.engine import Engine, stop_on_signals
from caraway.dataplane.topics.admin import check_access
from caraway.dataplane.topics.credentials import sign_in
from caraway.errors import CarawayError
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.settings import load_settings
from caraway.state.database import connect, require_tables
from caraway.state.ownership.members import ENGINES, Member
from caraway.state.registry import JobRegistry
from caraway.state.secrets import SecretStore, hand_out
from caraway.state.tables import metadata


def main() -> int:
    """Run an engine with the settings of the environment; return the exit code."""
    try:
        # The engine's files are readable by this user alone, also if it wasn't started by `caraway up`.
        os.umask(0o077)
        settings = load_settings()
        # If a library crashes the process, for example with SIGSEGV, the stack traces of all threads are printed.
        faulthandler.enable()
        logging.basicConfig(
            level=settings.log_level.upper(),
            format="%(asctime)s %(levelname)s %(name)s: %(message)s",
            stream=sys.stderr,
        )
        logging.getLogger("py4j").setLevel(logging.ERROR)
        if settings.postgres.url is None:
            raise ConfigurationError("postgres.url: the engine needs to know the database")
        check_access(sign_in(settings.kafka))
        database = connect(settings.postgres.url)
        require_tables(database, metadata.tables)
        member = Member(engine=database, group=ENGINES, node=f"{socket.gethostname()}:{settings.data_dir}")
        store = SecretStore(database, open_keyring(settings.key_file))
        hand_out(store, local=settings.spark.master.startswith("local"), host=socket.gethostname())
        engine = Engine(settings, JobRegistry(database), member)
        stop_on_signals(engine)
        return engine.run()
    except CarawayError as error:
        sys.stderr.write(f"engine: {error}\n")
        return 1


if __name__ == "__main__":
    sys.exit(main())
