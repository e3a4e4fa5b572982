"""The sending of events: whoever has one never waits, and no more than a certain number wait to be sent."""

import threading
from collections import deque

import httpx2
import structlog
from prometheus_client import Counter

from caraway.errors import UnavailableError
from caraway.process.recurring import Recurring

LOG = structlog.get_logger(__name__)

EVENTS = Counter("caraway_openlineage_events", "Events of OpenLineage, by what became of them.", ["outcome"])
SENT, REFUSED, DROPPED = (EVENTS.labels(outcome=outcome) for outcome in ("sent", "refused", "dropped"))

# At most this many events, with at most this many bytes together, wait to be sent. Further events are dropped.
MOST_WAITING, MOST_BYTES = 10_000, 32 << 20
TIMEOUT_SECONDS = 5.0
# Seconds until the next attempt after a first error, and after many errors.
RETRY_SECONDS = (1.0, 60.0)
# HTTP status codes of refusals that are temporary, so that the request is sent again.
LATER = frozenset({408, 425, 429})


class EventSender:
    """Sends events over HTTP, one after the other, from a thread of its own. Thread safe."""

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        *,
        transport: httpx2.BaseTransport | None = None,
        retry_s: tuple[float, float] = RETRY_SECONDS,
    ) -> None:
        """Prepare; nothing is sent before `start`.

        Args:
            url: The setting `openlineage.url`, such as http://marquez:5000/api/v1/lineage.
            api_key: The bearer token of requests, if the receiver needs one.
            transport: How requests are made; by default over the network.
            retry_s: The pause in seconds after a request that wasn't taken, which doubles, and the longest pause.
        """
        self._url = url
        headers = {"Content-Type": "application/json"}
        if api_key is not None:
            headers["Authorization"] = f"Bearer {api_key}"
        # A redirect could lead to any address, so none is followed.
        self._http = httpx2.Client(
            timeout=TIMEOUT_SECONDS, follow_redirects=False, headers=headers, transport=transport
        )
        self._lock = threading.Lock()
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._work = Recurring("lineage events", self._send_all, RETRY_SECONDS[1], retry_s=retry_s)

    def start(self) -> None:
        """Start the thread."""
        self._work.start()

    def put(self, event: bytes) -> None:
        """Add an event, as JSON, to those that wait to be sent; it is dropped if too many wait."""
        with self._lock:
            fits = len(self._waiting) < MOST_WAITING and self._bytes + len(event) <= MOST_BYTES
            if fits:
                self._waiting.append(event)
                self._bytes += len(event)
        if fits:
            self._work.wake()
        else:
            DROPPED.inc()

    @property
    def waiting(self) -> int:
        """The number of events that wait."""
        return len(self._waiting)

    def stop(self, timeout_s: float) -> None:
        """End the thread, and wait at most `timeout_s` for the request under way; events that wait are dropped."""
        if self._work.stop(timeout_s):
            self._http.close()

    def _send_all(self) -> None:
        while self._waiting and not self._work.stopping.is_set():
            self._post(self._waiting[0])
            with self._lock:
                self._bytes -= len(self._waiting.popleft())

    def _post(self, event: bytes) -> None:
        """Send an event. Raises `UnavailableError` if it may be taken later."""
        # The address may contain a password, so errors don't show it.
        try:
            answer = self._http.post(self._url, content=event)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            raise UnavailableError(f"openlineage.url gives no answer ({type(error).__name__})") from None
        if answer.is_success:
            SENT.inc()
        elif answer.is_server_error or answer.status_code in LATER:
            raise UnavailableError(f"openlineage.url answers {answer.status_code}")
        else:
            REFUSED.inc()
            LOG.warning("openlineage.url refuses an event, which isn't sent again", status=answer.status_code)
