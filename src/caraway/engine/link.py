"""The registry at arm's length: jobs go on, and the engine stays responsive, while Postgres is away."""

import logging
import threading
from collections.abc import Mapping, Sequence

from caraway.engine.jobs import JobStatus, brief
from caraway.engine.ports import Registry
from caraway.errors import UnavailableError
from caraway.plan.model import JobPlan

log = logging.getLogger(__name__)

POLL_SECONDS = 0.25


class RegistryLink:
    """Polls the registry in a thread of its own and hands reports to it.

    Only changes are reported, and of several reports on one job only the newest: after an outage it is the present
    that counts.
    """

    def __init__(self, registry: Registry) -> None:
        """Talk to `registry`, which no other thread may use."""
        self._registry = registry
        self._lock = threading.Lock()
        self._desired: Sequence[JobPlan] | None = None
        self._told: dict[str, JobStatus] = {}
        self._untold: dict[str, JobStatus] = {}
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="registry", daemon=True)
        self._reachable = True

    def start(self) -> None:
        """Begin to poll."""
        self._thread.start()

    @property
    def desired(self) -> Sequence[JobPlan] | None:
        """The jobs that must run, as last heard; None until the registry has answered once."""
        with self._lock:
            return self._desired

    def report(self, statuses: Mapping[str, JobStatus]) -> None:
        """Tell how jobs are, soon."""
        with self._lock:
            changed = {job_id: status for job_id, status in statuses.items() if self._told.get(job_id) != status}
            self._untold.update(changed)

    def close(self, timeout_seconds: float) -> None:
        """Pass on the last reports, if the registry takes them in that time."""
        self._closing.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        while not self._closing.wait(POLL_SECONDS):
            self._exchange()
        self._exchange()

    def _exchange(self) -> None:
        try:
            desired = self._registry.desired_jobs()
            with self._lock:
                self._desired = desired
                reports = dict(self._untold)
            for job_id, status in reports.items():
                self._tell(job_id, status)
        except UnavailableError as error:
            self._note(reachable=False, text=str(error))
        except Exception as error:  # noqa: BLE001
            # A registry that is not migrated yet, a graph of a newer version: whatever it is, running jobs must go on.
            self._note(reachable=False, text=brief(error))
        else:
            self._note(reachable=True, text="")

    def _tell(self, job_id: str, status: JobStatus) -> None:
        self._registry.report(
            job_id,
            state=status.state,
            mode=status.mode,
            attempts=status.attempts,
            error=status.error,
            progress=status.progress,
        )
        with self._lock:
            self._told[job_id] = status
            if self._untold.get(job_id) == status:
                del self._untold[job_id]

    def _note(self, *, reachable: bool, text: str) -> None:
        if reachable != self._reachable:
            log.warning(
                "the registry answers again" if reachable else "the registry is away: %s", *([text] if text else [])
            )
        self._reachable = reachable
