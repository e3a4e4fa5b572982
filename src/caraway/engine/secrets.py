"""Secrets for the functions of an engine's jobs."""

import logging
import threading

from caraway.spark.secret_port import SecretPort, open_port
from caraway.state.secret_book import SecretBook

log = logging.getLogger(__name__)

# A changed secret is known to the engine after this time; while Postgres is away what was known last goes on.
INTERVAL_SECONDS = 5.0


def hand_out(book: SecretBook, *, local: bool, host: str) -> SecretPort:
    """Let the functions of this engine's jobs get the secrets of a book, which is kept up to date.

    Args:
        book: The secrets.
        local: Whether Spark runs on this machine only.
        host: The name of this machine, where workers on others find it.
    """
    threading.Thread(target=_follow, args=(book,), name="secrets", daemon=True).start()
    return open_port(book.get, "127.0.0.1" if local else host)


def _follow(book: SecretBook) -> None:
    pause = threading.Event()
    while True:
        try:
            book.refresh()
        except Exception as error:  # noqa: BLE001
            # Postgres is away or isn't set up yet: whatever it is, it may be over the next time.
            log.debug("the secrets can't be read: %s", error)
        pause.wait(INTERVAL_SECONDS)
