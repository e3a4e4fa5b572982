"""`AsyncClient`: queries and logs of programs that run on asyncio."""

from collections.abc import Sequence
from typing import Any, Self

import pandas as pd

from caraway.client.branches import MAIN_BRANCH
from caraway.client.conversations import RETRY_TIMEOUT_S, Asked, log_rows, query_as_frame, query_rows
from caraway.client.discovery import find_server
from caraway.client.http import AsyncConnection
from caraway.client.response import BRANCH_HEADER
from caraway.client.results import LogResult
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset


class AsyncClient:
    """A client for applications that run on asyncio: it queries and logs without holding up the event loop.

    One client serves any number of tasks of one event loop at a time; it keeps connections open, up to 100. Its
    methods raise what those of `Client` raise, and return the same.

    Args:
        url: The server, found as by `Client`.
        token: The token to send, found as by `Client`.
        branch: The branch to work on; main by default.
        connection: The connection to use in place of one to `url`.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        branch: str | None = None,
        *,
        connection: AsyncConnection | None = None,
    ) -> None:
        if connection is None:
            address = find_server(url, token)
            connection = AsyncConnection(address.url, address.token)
        self._connection = connection
        self._headers = {BRANCH_HEADER: branch or MAIN_BRANCH}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._connection.close()

    async def query(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        input_dataframe: pd.DataFrame | list[dict[str, Any]],
        *,
        log: bool = False,
        workflow: str | None = None,
        sampling_rate: float | None = None,
        timestamps: "pd.Series[Any] | None" = None,
    ) -> pd.DataFrame:
        """Compute features for each row of a frame, as `Client.query` does."""
        asked = Asked(
            inputs=inputs,
            outputs=outputs,
            frame=input_dataframe,
            log=log,
            workflow=workflow,
            sampling_rate=sampling_rate,
            timestamps=timestamps,
        )
        return await self._connection.run(query_as_frame(asked, self._headers))

    async def query_rows(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        input_dataframe: pd.DataFrame | list[dict[str, Any]],
        *,
        log: bool = False,
        workflow: str | None = None,
        sampling_rate: float | None = None,
        timestamps: "pd.Series[Any] | None" = None,
    ) -> list[dict[str, Any]]:
        """Compute features, and return each row as a dict, as `Client.query_rows` does."""
        asked = Asked(
            inputs=inputs,
            outputs=outputs,
            frame=input_dataframe,
            log=log,
            workflow=workflow,
            sampling_rate=sampling_rate,
            timestamps=timestamps,
        )
        return await self._connection.run(query_rows(asked, self._headers))

    async def log(
        self,
        webhook: str,
        endpoint: str,
        df: pd.DataFrame,
        batch_size: int = 1000,
        *,
        retry_timeout: float = RETRY_TIMEOUT_S,
        strict: bool = True,
    ) -> LogResult | None:
        """Post the rows of a frame to a webhook's endpoint, in chunks, as `Client.log` does."""
        return await self._connection.run(
            log_rows(
                webhook,
                endpoint,
                df,
                self._headers,
                batch_size=batch_size,
                retry_timeout=retry_timeout,
                strict=strict,
                clock=self._connection.clock,
            )
        )
