"""The webhook to which alerts are sent: the address is the operator's own setting, and no other one is asked."""

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

import httpx2
import structlog
from tenacity import RetryError, Retrying, retry_if_exception_type, stop_after_attempt, wait_random_exponential

from caraway.offline.monitoring.alerts.alert import Alert, as_request
from caraway.process.authorities import authorities

LOG = structlog.get_logger(__name__)

ATTEMPTS = 4
TIMEOUT_SECONDS = 5.0
# One request contains at most this many alerts.
AT_ONCE = 100


class _NotTakenError(Exception):
    """The webhook didn't take a request, and may take it later."""


class Webhook:
    """Logs alerts, and sends them to a webhook if there is one."""

    def __init__(
        self,
        url: str | None,
        *,
        transport: httpx2.BaseTransport | None = None,
        pause_s: float = 0.5,
        clock: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """Prepare.

        Args:
            url: The setting `alerts.webhook`, such as http://alertmanager:9093/api/v2/alerts; None: alerts are logged.
            transport: How requests are made; by default over the network.
            pause_s: The longest pause before the second try, in seconds; it doubles with each further one.
            clock: Returns the time.
        """
        self._url = url
        self._transport = transport
        self._pause_s = pause_s
        self._clock = clock

    def send(self, alerts: Sequence[Alert]) -> bool:
        """Log alerts and send them, and return whether they were taken; otherwise they should be sent again later."""
        taken = True
        for first in range(0, len(alerts), AT_ONCE):
            taken &= self._send(alerts[first : first + AT_ONCE])
        if taken:
            for alert in alerts:
                log = LOG.info if alert.is_resolved else LOG.warning
                log(
                    "alert resolved" if alert.is_resolved else "alert",
                    alert=alert.name,
                    **alert.labels,
                    **alert.annotations,
                )
        return taken

    def _send(self, alerts: Sequence[Alert]) -> bool:
        if self._url is None:
            return True
        retrying = Retrying(
            retry=retry_if_exception_type(_NotTakenError),
            stop=stop_after_attempt(ATTEMPTS),
            wait=wait_random_exponential(multiplier=self._pause_s, max=10 * self._pause_s),
        )
        try:
            retrying(self._post, self._url, alerts)
        except RetryError as error:
            LOG.warning(
                "alerts aren't taken by alerts.webhook", alerts=len(alerts), reason=str(error.last_attempt.exception())
            )
            return False
        return True

    def _post(self, url: str, alerts: Sequence[Alert]) -> None:
        # A redirect could lead to any address, so none is followed. The address may contain a password, so errors don't
        # show it.
        try:
            with httpx2.Client(
                timeout=TIMEOUT_SECONDS, follow_redirects=False, transport=self._transport, verify=authorities()
            ) as client:
                answer = client.post(url, json=as_request(alerts, self._clock()))
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise _NotTakenError(f"no answer ({type(error).__name__})") from None
        if not answer.is_success:
            raise _NotTakenError(f"it answers {answer.status_code}")
