"""Logging: one JSON object a line on stderr, from structlog and from libraries alike."""

import faulthandler
import logging
import sys

import structlog

from caraway.process.request_ids import add_request_id

# Libraries that log the URL of each request in full, with a password if the URL has one. Only their warnings are
# logged.
QUIET = ("httpcore2", "httpx2")


def configure_logging(level: str) -> None:
    """Write log lines of `level` and above to stderr as JSON and, after a crash, the stacks of all threads as text."""
    faulthandler.enable()
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        add_request_id,
        structlog.stdlib.add_logger_name,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.format_exc_info,
    ]
    structlog.configure(
        processors=[*shared, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        logger_factory=structlog.stdlib.LoggerFactory(),
        wrapper_class=structlog.stdlib.BoundLogger,
        cache_logger_on_first_use=True,
    )
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                structlog.processors.JSONRenderer(),
            ],
        )
    )
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)
    for name in QUIET:
        logging.getLogger(name).setLevel(logging.WARNING)
