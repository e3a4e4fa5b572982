"""Offline queries: features of many rows, each as of its own time."""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import pandas as pd

from caraway.client.answers import Answer
from caraway.client.arguments import input_features, output_features
from caraway.client.caller import Caller
from caraway.client.offline import explain_parameters, offline_body
from caraway.client.progress import progress_for
from caraway.client.training import (
    ARROW,
    TrainingSet,
    stream_of,
    table_in,
    table_of,
    until_answered,
    wait_for,
    warn_of_zones,
)
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset

if TYPE_CHECKING:
    import pyarrow as pa


class OfflineCalls(Caller):
    """The part of `Client` that computes training sets."""

    def query_offline(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        timestamp_column: str,
        input_dataframe: pd.DataFrame | None = None,
        input_s3: Any = None,
        output_s3: Any = None,
        feature_to_column_map: dict[Any, str] | None = None,
        workflow: str | None = None,
        use_v2: bool = True,
        num_dpus: int | None = None,
        *,
        as_known: bool = False,
        before: bool = False,
        execution: str = "auto",
    ) -> Any:
        """Start a job that computes features for each row as of the row's time, into a bucket.

        Args:
            inputs: The features that the rows supply, as objects or full names.
            outputs: The wanted features, as objects or names.
            timestamp_column: The column with the time of each row.
            input_dataframe: The rows: a column for each input, named by its full name. It is sent as a whole.
            input_s3: The place of the rows, if they aren't in a frame: `S3(...).bucket(name, prefix=...)`.
            output_s3: The place for the result; the server's own bucket by default.
            feature_to_column_map: With `input_s3`: the column of each input.
            workflow: A label.
            use_v2: Compute it by the second engine.
            num_dpus: How many workers to use; a job that fails with it isn't repeated.
            as_known: True: each row sees only what had been ingested by its time; see `training_set`.
            before: True: each row sees what was before its time; see `training_set`.
            execution: See `training_set`.

        Returns:
            A dict of `request_id`, `output_bucket`, `output_prefix`, `completion_rate`, `failure_rate`, `status`.

        Raises:
            InvalidInputError: An argument is wrong.
        """
        body = offline_body(
            inputs,
            outputs,
            timestamp_column,
            input_dataframe,
            input_s3=input_s3,
            output_s3=output_s3,
            feature_to_column_map=feature_to_column_map,
        )
        optional_items = {"workflow": workflow, "num_dpus": num_dpus}
        if as_known:
            body["as_known"] = True
        if before:
            body["before"] = True
        if execution != "auto":
            body["execution"] = execution
        body |= {"use_v2": use_v2} | {name: value for name, value in optional_items.items() if value is not None}
        return self._connection.request("POST", "/query_offline", self._headers(), body=body).json()

    def track_offline_query(self, request_id: str) -> Any:
        """Return the progress of an offline query; see `query_offline`.

        Raises:
            RemoteError: There is no such query.
        """
        params = {"request_id": str(request_id)}
        return self._connection.request("GET", "/query_offline/status", self._headers(), params=params).json()

    def explain_offline(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        *,
        as_known: bool = False,
        execution: str = "auto",
    ) -> Any:
        """Return what an offline query would read, where it would be computed and why, without computing it.

        Args:
            inputs: The features that the rows would supply, as objects or full names.
            outputs: The wanted features, as objects or names.
            as_known: See `training_set`.
            execution: See `training_set`.

        Returns:
            A dict of `execution`, `reason`, `records`, `memory_mb`, `limit_mb`, `seconds` (an estimate), `datasets`.

        Raises:
            InvalidInputError: An argument is wrong.
        """
        params = explain_parameters(inputs, outputs) | {"execution": execution, "as_known": str(as_known).lower()}
        answer = self._connection.request("GET", "/query_offline/explain", self._headers(), params=params).json()
        return Answer("offline query", answer)

    def explain_offline_query(self, request_id: str) -> Any:
        """Return what `explain_offline` does for an offline query that was asked, with its `progress`.

        The progress has the rows, the bytes of results and the seconds of each step until now.

        Raises:
            RemoteError: There is no such query, or it hasn't begun to read.
        """
        params = {"request_id": str(request_id)}
        answer = self._connection.request("GET", "/query_offline/explain", self._headers(), params=params).json()
        return Answer("offline query", answer)

    def cancel_offline_query(self, request_id: str) -> Any:
        """Request the end of an offline query, and return its progress.

        Raises:
            RemoteError: There is no such query.
        """
        params = {"request_id": str(request_id)}
        return self._connection.request("POST", "/query_offline/cancel", self._headers(), params=params, body={}).json()

    def training_set(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        timestamp_column: str,
        rows: Any,
        *,
        as_known: bool = False,
        before: bool = False,
        execution: str = "auto",
        workflow: str | None = None,
        timeout: float | None = None,
        progress: bool | None = None,
    ) -> "TrainingSet":
        """Compute features for each row as of the row's time, and wait for the result.

        It is an offline query (`query_offline`) whose rows go to the server as Arrow, and whose result comes back.

        Args:
            inputs: The features that the rows supply, as objects or full names.
            outputs: The wanted features, as objects or names.
            timestamp_column: The column with the time of each row; UTC if it has no zone, with a warning.
            rows: A frame of pandas or polars, or an Arrow table: a column for each input, named by its full name, and
                that of times. Other columns, such as labels, are in the result as well.
            as_known: True: each row sees only what had been ingested by its time. Rows that came late, or were added
                later, then don't show up in features of a time before that. By default a row sees all that happened by
                its time, as far as it is known now.
            before: True: each row sees what was before its time, to the microsecond. Rows at the times of events, such
                as payments that are to be labelled, otherwise count their own event, which serving doesn't know yet.
            execution: "process" computes the query in one process, and "spark" on Spark; "auto" chooses by the size of
                the records that the query reads. The results are the same.
            workflow: A label.
            timeout: The longest wait in seconds; None: as long as it takes.
            progress: Show the progress; by default in terminals and notebooks.

        Returns:
            The rows with their features, as pandas, polars, Arrow or batches.

        Raises:
            InvalidInputError: An argument is wrong.
            NotServedError: The query isn't over in time.
            OfflineQueryError: The query failed, or was cancelled.
            RemoteError: The server refused.
            UnavailableError: The server didn't answer; see `offline_result`.
        """
        names = list(input_features(inputs, "training_set"))
        wanted = list(output_features(outputs, "training_set"))
        params = {"inputs": ",".join(names), "outputs": ",".join(wanted), "timestamp_column": timestamp_column}
        if workflow is not None:
            params["workflow"] = workflow
        if as_known:
            params["as_known"] = "true"
        if before:
            params["before"] = "true"
        if execution != "auto":
            params["execution"] = execution
        headers = self._headers() | {"Content-Type": ARROW}
        table = table_of(rows)
        warn_of_zones(table, names, timestamp_column)
        begun = self._connection.post_bytes("/query_offline", stream_of(table), headers, params).json()
        return self.offline_result(begun["request_id"], timeout=timeout, progress=progress)

    def offline_result(
        self, request_id: str, *, timeout: float | None = None, progress: bool | None = None
    ) -> "TrainingSet":
        """Wait until an offline query is over, and return its result; see `training_set`.

        The wait outlives a restart of the server, as the query does.

        Raises:
            NotServedError: The query isn't over in time.
            OfflineQueryError: The query failed, or was cancelled.
            RemoteError: There is no query with this id.
            UnavailableError: The server was down for ten minutes, or until the time was over. The query goes on, and
                the text has its id.
        """

        def read(number: int) -> "pa.Table":
            params = {"request_id": str(request_id), "part": str(number)}
            answer = until_answered(
                request_id,
                lambda: self._connection.request("GET", "/query_offline/result", self._headers(), params=params),
            )
            return table_in(answer.content)

        status = wait_for(
            request_id,
            lambda: self.track_offline_query(request_id),
            timeout=timeout,
            progress=progress_for("offline query", wanted=progress),
        )
        return TrainingSet(status, read, partial(self.explain_offline_query, request_id))
