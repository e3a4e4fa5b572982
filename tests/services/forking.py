"""Processes of Caraway's programs that tests start without each importing all modules anew.

Each process of pytest has a fork server (`caraway.process.children.forking`). Tests of a whole stack start the same
programs by their commands (`tests/e2e`), so that a module that is only there by chance is noticed.
"""

import atexit
import math

from caraway.process.children.forking import ForkServer

FORKS = ForkServer(
    (
        "caraway.apps.server",
        "caraway.dataplane.archive",
        "caraway.offline",
        "caraway.offline.monitoring",
    ),
    idle_seconds=math.inf,
)
atexit.register(FORKS.end)
