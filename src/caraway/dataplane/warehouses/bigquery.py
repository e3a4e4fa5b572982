"""Clients of BigQuery, by Google's own library over the REST protocol."""

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from caraway.errors import UnavailableError
from caraway.graph.systems import BigQuerySystem, Secretish

try:
    from google.api_core.client_info import ClientInfo
    from google.api_core.client_options import ClientOptions
    from google.api_core.exceptions import (
        BadRequest,
        Forbidden,
        GoogleAPICallError,
        GoogleAPIError,
        NotFound,
        Unauthorized,
    )
    from google.auth.exceptions import GoogleAuthError, RefreshError
    from google.cloud.bigquery import DEFAULT_RETRY, Client
    from google.oauth2.service_account import Credentials
except ImportError as error:
    raise UnavailableError(
        "BigQuery is reached by google-cloud-bigquery, which isn't installed: pip install caraway[bigquery]"
    ) from error

SCOPE = "https://www.googleapis.com/auth/bigquery"
# Seconds for which the library repeats requests that fail temporarily: fewer than a trial of a source takes, so that
# the trial shows the error. Then seconds for which an answer is awaited, and for which a statement may run.
REQUESTS_S, ANSWER_S, STATEMENT_S = 20, 60, 600
RETRY = DEFAULT_RETRY.with_timeout(REQUESTS_S)


def connect(
    system: BigQuerySystem, resolve: Callable[[Secretish], str], endpoint: str | None = None, *, where: str
) -> Client:
    """Return a client, which signs in at its first request.

    Args:
        system: The project, and the key by which it is opened.
        resolve: Returns the values of secrets.
        endpoint: The URL of BigQuery's API in this deployment; None for Google's.
        where: The system and the thing in it, for messages.

    Raises:
        UnavailableError: The key isn't one.
    """
    text = resolve(system.service_account_key)
    try:
        credentials = Credentials.from_service_account_info(json.loads(text), scopes=[SCOPE])
    except (ValueError, TypeError, AttributeError, GoogleAuthError):
        # The library's error may contain parts of the key, so it isn't shown.
        raise UnavailableError(
            f"{where}: the service account key isn't the JSON of a key, as Google's console gives it"
        ) from None
    if endpoint is not None and "://" not in endpoint:
        endpoint = f"https://{endpoint}"
    return Client(
        project=system.project_id,
        credentials=credentials,
        client_options=ClientOptions(api_endpoint=endpoint) if endpoint else None,
        client_info=ClientInfo(user_agent="caraway"),
    )


@contextmanager
def errors(where: str, close: Callable[[], None]) -> Iterator[None]:
    """Raise errors of the library in the block as `UnavailableError`, with the remedy.

    Args:
        where: The system and the thing in it.
        close: Ends the client, whose access may have ended.
    """
    try:
        yield
    # The library passes some errors of its HTTP libraries on, and raises ValueError for an incomplete answer.
    except (GoogleAPIError, GoogleAuthError, OSError, ValueError) as error:
        close()
        cause = getattr(error, "cause", None) or error  # that of requests which were repeated in vain
        found = getattr(cause, "message", None) if isinstance(cause, GoogleAPICallError) else None
        text = " ".join(str(found or cause).split())[:500] or type(cause).__name__
        remedy = _remedy(cause)
        raise UnavailableError(f"{where}: {text}{f'; {remedy}' if remedy else ''}") from None


def _remedy(error: BaseException) -> str:
    match error:
        case RefreshError() | Unauthorized():
            return "the service account's key was refused: give a key that is valid, or look at the machine's clock"
        case Forbidden() if "quota" in str(error).casefold() or "rate limit" in str(error).casefold():
            return "wait, or raise the project's quota"
        case Forbidden():
            return (
                "give the service account roles/bigquery.jobUser in the project and roles/bigquery.dataViewer on the "
                "dataset"
            )
        case BadRequest() if "partition" in str(error):
            return "use the column of the partitions as the cursor, or don't require a filter by it"
        case BadRequest() if "esources exceeded" in str(error) or "timeout" in str(error):
            return f"a statement may take {STATEMENT_S} s: partition or cluster the table by the cursor"
        case NotFound():
            return "a result is kept for a day, and the table may have been made anew: it is read again from the cursor"
        case _:
            return ""


def quote(*names: str) -> str:
    """Return the parts of a name in quotes."""
    return ".".join("`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`" for name in names)
