"""`Client`: what a program uses to talk to a Caraway server."""

import uuid
from collections.abc import Sequence
from typing import Any

import orjson
import pandas as pd

from caraway.client.commits import build_commit
from caraway.client.frames import times, to_columns, to_list, typed_series, untyped_series
from caraway.client.response import Response
from caraway.client.selection import Output, columns_of, full_name
from caraway.client.transport import Transport
from caraway.datasets import Dataset
from caraway.dtypes.types import BOOL
from caraway.errors import InvalidInputError, RemoteError, UnknownEntityError
from caraway.featuresets import Feature, Featureset

COMMIT_TIMEOUT_SECONDS = 300.0
RETRY_SECONDS = 60.0
# The status with which the server refuses a batch of which no row fits.
ALL_REJECTED = 422
# Rejected rows that a message spells out; the answer holds more.
SHOWN_REJECTIONS = 5


class Client:
    """A connection to a server, pointing at one of its branches.

    Attributes:
        url: The server's address.
        token: The bearer token; empty sends none.
    """

    def __init__(self, url: str, token: str = "", branch: str | None = None) -> None:
        """Point at `url`; nothing is sent before the first call."""
        self.url = url
        self.token = token
        self._branch = branch or "main"
        self._transport = Transport(url, token)

    def branch(self) -> str:
        """Name the current branch."""
        return self._branch

    def checkout(self, name: str) -> None:
        """Point at another branch; whether it exists shows with the next request."""
        self._branch = name

    def close(self) -> None:
        """Close the connection to the server."""
        self._transport.close()

    def commit(  # noqa: PLR0913 (the API's signature)
        self,
        message: str,
        datasets: Sequence[Dataset] | None = None,
        featuresets: Sequence[Featureset] | None = None,
        preview: bool = False,  # noqa: FBT001, FBT002 (the API's signature)
        env: str | None = None,
        incremental: bool = False,  # noqa: FBT001, FBT002 (the API's signature)
        backfill: bool = True,  # noqa: FBT001, FBT002 (the API's signature)
    ) -> Response:
        """Make these definitions the content of the branch, all or nothing, and print what that changes.

        Args:
            message: What the commit is about.
            datasets: All datasets of the branch, or with `incremental` those to add or change.
            featuresets: The same for featuresets.
            preview: Check and tell, change nothing.
            env: Take the sources, pipelines and extractors that this environment selects; None takes all.
            incremental: Leave entities that aren't mentioned as they are.
            backfill: False refuses a commit that would have to compute a pipeline from scratch.

        Raises:
            CommitError: The definitions don't fit together.
            RemoteError: The server refused; its message says why.
            UnavailableError: The server doesn't answer.
        """
        content = build_commit(message, datasets or [], featuresets or [], env=env, incremental=incremental)
        answer = self._transport.send(
            "POST",
            "/commit",
            branch=self._branch,
            content=content,
            params={
                "preview": str(preview).lower(),
                "incremental": str(incremental).lower(),
                "backfill": str(backfill).lower(),
            },
            headers={"Content-Type": "application/octet-stream"},
            timeout_seconds=COMMIT_TIMEOUT_SECONDS,
        )
        body = answer.json()
        summary = body.get("summary") if isinstance(body, dict) else None
        print("".join(summary) if summary else "The server gave no summary of the commit.", end="" if summary else "\n")  # noqa: T201 (the API promises it)
        return answer

    def log(
        self,
        webhook: str,
        endpoint: str,
        df: pd.DataFrame,
        batch_size: int = 1000,
        *,
        retry_seconds: float = RETRY_SECONDS,
    ) -> Response | None:
        """Send rows to a webhook's endpoint. When this returns, they are durable.

        Each batch is sent again until the server has taken it, and is taken once only.

        Args:
            webhook: Name of the webhook.
            endpoint: Its endpoint.
            df: The rows, with a column for each field of the dataset.
            batch_size: Rows in a request.
            retry_seconds: How long to go on trying while the server doesn't answer.

        Returns:
            The last answer; None if there are no rows.

        Raises:
            InvalidInputError: Some rows don't fit the dataset. All others, of all batches, have been accepted.
            RemoteError: The server refused a batch.
            UnavailableError: The server didn't answer for `retry_seconds`.
        """
        if df.empty:
            print(f"Nothing to log to {webhook}/{endpoint}: the frame has no rows.")  # noqa: T201 (the API promises it)
            return None
        rejected = 0
        rejections: list[str] = []
        answer: Response | None = None
        for start in range(0, len(df), batch_size):
            batch = df.iloc[start : start + batch_size]
            try:
                answer = self._log_batch(webhook, endpoint, batch, retry_seconds)
                body = answer.json()
            except RemoteError as error:
                if error.status != ALL_REJECTED:
                    raise
                body = error.body
            rejected += body["rejected"]
            rejections += [
                f"row {start + error['row']}, {error['field']}: {error['message']}" for error in body["errors"]
            ]
        if rejected:
            shown = rejections[:SHOWN_REJECTIONS]
            more = [f"and {rejected - len(shown)} more"] if rejected > len(shown) else []
            lines = "\n  ".join([*shown, *more])
            raise InvalidInputError(
                f"{webhook}/{endpoint} took {len(df) - rejected} of {len(df)} rows; these were rejected:\n  {lines}"
            )
        return answer

    def query(  # noqa: PLR0913 (the API's signature)
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Output],
        input_dataframe: pd.DataFrame,
        log: bool = False,  # noqa: FBT001, FBT002 (the API's signature)
        workflow: str | None = None,
        sampling_rate: float | None = None,
        *,
        timestamps: "pd.Series[Any] | None" = None,
    ) -> pd.DataFrame:
        """Compute features for the rows of a frame.

        Args:
            inputs: Features that the frame gives.
            outputs: Features and featuresets that are wanted.
            input_dataframe: A column for each input, under its full name (`Featureset.feature`).
            log: Keep the computed features for training.
            workflow: Label of what is kept.
            sampling_rate: Part of the rows that is kept, 0 to 1.
            timestamps: The time of each row at which to read; without it all are read as of now.

        Returns:
            A column for each wanted feature, a row for each row of the frame.

        Raises:
            InvalidInputError: An input has no column, or a featureset is given as input.
            RemoteError: The server refused; its message says why.
            UnavailableError: The server doesn't answer.
        """
        names = [full_name(feature) for feature in inputs]
        columns = columns_of(outputs)
        if input_dataframe.empty or not columns:
            return pd.DataFrame()
        missing = [name for name in names if name not in input_dataframe.columns]
        if missing:
            raise InvalidInputError(
                f"the input frame has no column for {', '.join(missing)}; its columns are "
                f"{', '.join(map(str, input_dataframe.columns))}"
            )
        request: dict[str, Any] = {
            "inputs": names,
            "outputs": [name for name, _ in columns],
            "data": to_columns(input_dataframe[names]),
            "log": log,
        }
        if workflow is not None:
            request["workflow"] = workflow
        if sampling_rate is not None:
            request["sampling_rate"] = sampling_rate
        if timestamps is not None:
            request["timestamps"] = times(timestamps, len(input_dataframe))
        body = self._transport.send("POST", "/query", branch=self._branch, content=orjson.dumps(request)).json()
        types = dict(columns)
        return pd.DataFrame(
            {
                name: untyped_series(values, name) if (dtype := types.get(name)) is None else typed_series(values, dtype, name)
                for name, values in body.items()
            }
        )

    def lookup(
        self,
        dataset: Dataset | str,
        keys: pd.DataFrame,
        fields: Sequence[str] | None = None,
        timestamps: "pd.Series[Any] | None" = None,
    ) -> "tuple[pd.DataFrame | pd.Series[Any], pd.Series[bool]]":
        """Look rows of a dataset up by key.

        Args:
            dataset: The dataset or its name.
            keys: A column for each key field, a row for each lookup.
            fields: The fields wanted; without them all.
            timestamps: The time of each row at which to read; without it all are read as of now.

        Returns:
            The rows (a series if exactly one field is wanted), and whether each was found.

        Raises:
            InvalidInputError: `keys` isn't a frame.
            UnknownEntityError: There is no such dataset.
            RemoteError: The server refused; its message says why.
            UnavailableError: The server doesn't answer.
        """
        name = dataset if isinstance(dataset, str) else dataset._name  # noqa: SLF001 (the API's own attribute)
        if not isinstance(keys, pd.DataFrame):
            raise InvalidInputError(f"lookup of {name}: keys is a {type(keys).__name__}, it has to be a DataFrame")
        columns = to_columns(keys)
        request: dict[str, Any] = {
            "keys": [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)],
            "fields": list(fields or []),
        }
        if timestamps is not None:
            request["timestamps"] = times(timestamps, len(keys))
        try:
            answer = self._transport.send(
                "POST", f"/dataset/{name}/lookup", branch=self._branch, content=orjson.dumps(request)
            )
        except Exception as error:
            if getattr(error, "remote_code", "") == UnknownEntityError.code:
                raise UnknownEntityError(str(error)) from error
            raise
        body = answer.json()
        types = {} if isinstance(dataset, str) else dataset.data_types()
        frame = pd.DataFrame(
            {
                column: typed_series(values, optional_types, column)
                if (optional_types := types.get(column)) is not None
                else untyped_series(values, column)
                for column, values in body["data"].items()
            }
        )
        found = typed_series(body["found"], BOOL, "found").astype(bool)
        return (frame[fields[0]] if fields is not None and len(fields) == 1 else frame), found

    def _log_batch(self, webhook: str, endpoint: str, batch: pd.DataFrame, retry_seconds: float) -> Response:
        data = {str(name): to_list(batch[name]) for name in batch.columns}
        return self._transport.send_until(
            "POST",
            "/log",
            branch=self._branch,
            content=orjson.dumps({"webhook": webhook, "endpoint": endpoint, "data": data}),
            headers={"Idempotency-Key": uuid.uuid4().hex},
            retry_seconds=retry_seconds,
        )
