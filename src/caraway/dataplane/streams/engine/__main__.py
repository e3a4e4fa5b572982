"""`python -m caraway.dataplane.streams.engine`: run the jobs of the registry in Postgres."""

import faulthandler
import logging
import socket
import sys

from caraway.dataplane.streams.engine.engine import Engine, stop_on_signals
from caraway.dataplane.topics.admin import check_access
from caraway.dataplane.topics.credentials import sign_in
from caraway.graph.plan.model import JobPlan
from caraway.process.program import database_url, run_program
from caraway.process.secrets.keyring import open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.database import connect, require_tables
from caraway.state.losses import Loss, Losses
from caraway.state.ownership.members import ENGINES, Member
from caraway.state.registry import JobRegistry
from caraway.state.secrets import SecretStore, hand_out
from caraway.state.tables import metadata


def main() -> int:
    """Run an engine with the settings of the environment; return the exit code."""
    return run_program("engine", _run, log=_configure_logging)


def _configure_logging(level: str) -> None:
    # If a library crashes the process, for example with SIGSEGV, the stack traces of all threads are printed.
    faulthandler.enable()
    logging.basicConfig(
        level=level.upper(), format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr
    )
    logging.getLogger("py4j").setLevel(logging.ERROR)


def _run(settings: Settings) -> int:
    url = database_url(settings, "the engine")
    check_access(sign_in(settings.kafka))
    database = connect(url)
    require_tables(database, metadata.tables)
    member = Member(engine=database, group=ENGINES, node=f"{socket.gethostname()}:{settings.data_dir}")
    store = SecretStore(database, open_keyring(settings.key_file))
    hand_out(store, local=settings.spark.master.startswith("local"), host=socket.gethostname())
    losses = Losses(database)

    def note_loss(plan: JobPlan, topic: str, text: str) -> None:
        losses.note(Loss(topic=topic, follower=plan.job_id, kind="job", text=text))

    engine = Engine(settings, JobRegistry(database), member, note_loss=note_loss)
    stop_on_signals(engine)
    return engine.run()


if __name__ == "__main__":
    sys.exit(main())
