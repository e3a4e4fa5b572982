"""`Client`: commit definitions, log events, query features."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self
from urllib.parse import quote

import pandas as pd

from caraway.client.arguments import (
    Queue,
    build_graph,
    dataset_name,
    erase_rows,
    gather,
    key_frame,
    require_message,
)
from caraway.client.branches import MAIN_BRANCH, Branches
from caraway.client.content import Content
from caraway.client.conversations import RETRY_TIMEOUT_S, Asked, log_rows, query_as_frame, query_rows
from caraway.client.discovery import ServerAddress, find_server
from caraway.client.frames import (
    instants,
    rows_of,
    typed_column,
    untyped_column,
)
from caraway.client.offline_calls import OfflineCalls
from caraway.client.progress import progress_for
from caraway.client.response import Response
from caraway.client.results import CommitResult, LogResult, commit_result
from caraway.client.secrets import Secrets
from caraway.client.waiting import WaitResult, wait_until_served
from caraway.datasets.dataset import Dataset
from caraway.dtypes.types import optional
from caraway.errors import RemoteError, UnknownEntityError
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset
from caraway.graph.envs import for_env, require_env
from caraway.graph.validation.graphs import validate, validate_placement
from caraway.graph.wire.graphs import CommitRequest, encode_commit

if TYPE_CHECKING:
    from caraway.client.http import Connection
# The default time limit in seconds of `wait`, and of a `log` or `commit` that waits until its effect is served. A job
# that starts, or an engine that comes back, takes up to a minute, and a chain of several jobs takes longer.
WAIT_TIMEOUT_S = 300.0

__all__ = ["MAIN_BRANCH", "Client", "build_graph"]


class Client(OfflineCalls, Content, Secrets, Branches):
    """A user's way to a Caraway server.

    Every method that sends a request raises `UnavailableError` if the server doesn't answer, and `RemoteError` if it
    refuses. A method lists these only where there is more to say.

    Args:
        url: The server, such as "http://127.0.0.1:8100". By default that of the environment, or of the stack that
            runs on this machine; see `caraway.client.discovery.find_server`.
        token: The token to send. By default that of the environment, or of the stack on this machine if `url` is its
            address; with an empty token requests carry none.
        branch: The branch to work on; main by default.
        connection: The connection to use in place of one to `url`.

    Raises:
        InvalidInputError: Several stacks run on this machine, and neither argument nor environment chooses one.
        UnavailableError: CARAWAY_DATA_DIR names a folder in which no stack runs.
    """

    def __init__(
        self,
        url: str | None = None,
        token: str | None = None,
        branch: str | None = None,
        *,
        connection: "Connection | None" = None,
    ) -> None:
        address = find_server(url, token) if connection is None else ServerAddress(url or "", token or "")
        self.url = address.url
        self.token = address.token
        self._branch = branch or MAIN_BRANCH
        self._queue = Queue()
        if connection is None:
            # httpx2 takes longer to import than all of Caraway's definitions, and most uses of them need no client.
            from caraway.client.http import Connection  # noqa: PLC0415

            connection = Connection(address.url, address.token)
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        """Return the server and the branch; the token isn't shown."""
        return f"{type(self).__name__}({self.url!r}, branch={self._branch!r})"

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    # -----------------------------------------------------------------------------------------------------------------
    # Definitions

    def add(self, obj: Dataset | Featureset) -> None:
        """Queue a dataset or featureset for `build_commit`.

        Raises:
            DefinitionError: An entity of this name is queued already.
            NotImplementedError: `obj` is neither a dataset nor a featureset.
        """
        self._queue.add(obj)

    def queued(self) -> tuple[list[Dataset], list[Featureset]]:
        """Return the entities that were added since the last commit."""
        return list(self._queue.datasets), list(self._queue.featuresets)

    def commit(
        self,
        message: str,
        datasets: Sequence[Dataset] | None = None,
        featuresets: Sequence[Featureset] | None = None,
        preview: bool = False,
        env: str | None = None,
        incremental: bool = False,
        backfill: bool = True,
        *,
        wait: bool = False,
        timeout: float = WAIT_TIMEOUT_S,
        progress: bool | None = None,
    ) -> CommitResult:
        """Make these definitions those of the branch: all of them or, if anything is wrong, none.

        Args:
            message: A description of the commit.
            datasets: The datasets.
            featuresets: The featuresets.
            preview: Only report what would happen.
            env: Take only the sources, pipelines and extractors that are for this environment.
            incremental: Keep definitions that aren't in the lists; otherwise the lists are all that the branch holds.
            backfill: Allow that data is computed from the beginning.
            wait: Return only when the commit is served, with all rows that were accepted before; see `wait`. A
                preview waits for nothing.
            timeout: How long to wait, in seconds.
            progress: Show the progress; by default in terminals and notebooks.

        Returns:
            The entities created, changed and removed, and the jobs that start, with their modes and the reasons. It is
            a response, too.

        Raises:
            CommitError: The definitions contradict each other.
            DefinitionTypeError: A list contains something else than datasets or featuresets.
            NotServedError: The commit is made, but not all is served in time.
        """
        self._queue.clear()
        request = self.build_commit(
            message, datasets or (), featuresets or (), preview, env, incremental=incremental, backfill=backfill
        )
        params = {
            "preview": str(preview).lower(),
            "incremental": str(incremental).lower(),
            "backfill": str(backfill).lower(),
        }
        try:
            response = self._connection.post_bytes("/commit", encode_commit(request), self._headers(), params)
        except RemoteError as error:
            if isinstance(error.body, dict) and error.body.get("err_diff"):
                print(error.body["err_diff"])  # noqa: T201 (part of the API)
            raise
        result = commit_result(response)
        print("".join(result.summary or ["The server gave no summary.\n"]), end="")  # noqa: T201 (part of the API)
        if wait and not preview:
            self._wait(timeout, commit=True, progress=progress)
        return result

    @staticmethod
    def build_commit(
        message: str,
        datasets: Sequence[Dataset],
        featuresets: Sequence[Featureset],
        preview: bool = False,
        env: str | None = None,
        *,
        incremental: bool = False,
        backfill: bool = True,
    ) -> "CommitRequest":
        """Check definitions and return the request that `commit` sends, without sending it."""
        require_message(message)
        require_env(env)
        defined = gather(datasets, featuresets)
        validate_placement(defined, env)
        given = for_env(defined, env)
        validate(given, partial=incremental)
        return CommitRequest(
            message=message,
            # Entities that are marked as deleted are sent, too: unless a commit is incremental, the server refuses a
            # commit that merely leaves out an entity of the branch.
            graph=given,
            preview=preview,
            incremental=incremental,
            backfill=backfill,
            env=env,
        )

    def try_sources(
        self, name: str, datasets: Sequence[Dataset] = (), *, rows: int = 10, env: str | None = None
    ) -> list[dict[str, Any]]:
        """Have the server connect to sources and read a sample, which changes nothing.

        Args:
            name: The name of a dataset or of a system, such as that of a `Kafka`.
            datasets: Definitions that aren't committed yet; none: those of the branch.
            rows: The most rows of each source's sample, up to 100.
            env: Take only the sources for this environment.

        Returns:
            For each source its `dataset`, `source`, `seconds` and `error`, which is empty if it can be read, and the
            `rows` of the sample, each with its `origin`, its `payload`, the `changes` that it makes in the dataset, and
            the `reasons` why it would be refused.

        Raises:
            CommitError: The definitions contradict each other.
            RemoteError: Nothing has this name, or rows of it are sent by clients.
        """
        body = b""
        if datasets:
            body = encode_commit(self.build_commit("a trial of sources", datasets, (), env=env, incremental=True))
        params = {"name": name, "rows": str(rows)}
        found: list[dict[str, Any]] = self._connection.post_bytes("/source/try", body, self._headers(), params).json()[
            "sources"
        ]
        return found

    # -----------------------------------------------------------------------------------------------------------------
    # Data and features

    def log(
        self,
        webhook: str,
        endpoint: str,
        df: pd.DataFrame,
        batch_size: int = 1000,
        *,
        retry_timeout: float = RETRY_TIMEOUT_S,
        strict: bool = True,
        wait: bool = False,
        timeout: float = WAIT_TIMEOUT_S,
        progress: bool | None = None,
    ) -> LogResult | None:
        """Post the rows of a frame to a webhook's endpoint, in chunks.

        Each row that fits is accepted, whatever the other rows are. A chunk that gets no answer, or an error of the
        server, is sent again; the server recognises rows that it has accepted before. If the server asks to wait,
        because it is behind or busy (429), the chunk is sent again after the time that it asks for.
        Datetimes without a zone are sent as UTC, with a warning.

        Args:
            webhook: Name of the webhook.
            endpoint: Name of the endpoint.
            df: The rows.
            batch_size: Rows in a chunk.
            retry_timeout: How long sending a chunk is repeated, in seconds.
            strict: Raise if rows were refused; otherwise the result names them.
            wait: Return only when the rows are served; see `wait`.
            timeout: How long to wait then, in seconds.
            progress: Show the progress; by default in terminals and notebooks.

        Returns:
            The numbers of accepted and refused rows of all chunks, and the reasons. It is the last chunk's
            response, too. None if there are no rows.

        Raises:
            InvalidInputError: Some rows don't fit the dataset; all others, of all chunks, are accepted. Its `result` is
                the value that would be returned.
            NotServedError: The rows are accepted, but not served in time.
            RemoteError: The server refused a whole chunk; earlier ones are accepted, later ones weren't sent.
            UnavailableError: The server doesn't answer; earlier chunks are accepted.
        """
        result = self._connection.run(
            log_rows(
                webhook,
                endpoint,
                df,
                self._headers(),
                batch_size=batch_size,
                retry_timeout=retry_timeout,
                strict=strict,
                clock=self._connection.clock,
            )
        )
        if wait and result is not None:
            self._wait(timeout, commit=False, progress=progress)
        return result

    def wait(self, timeout: float = WAIT_TIMEOUT_S, *, progress: bool | None = None) -> WaitResult:
        """Wait until all that the server has accepted on the branch is served.

        When it returns, a query through this server sees every row that the server had accepted before the call, from
        any client, and all that pipelines compute from it; and the branch serves its newest commit.

        Args:
            timeout: How long to wait, in seconds; 0 asks once.
            progress: Show the progress; by default in terminals and notebooks.

        Raises:
            InvalidInputError: `timeout` is negative.
            NotServedError: Something still lags after that time; the text names it, and its lag.
        """
        return self._wait(timeout, commit=True, progress=progress)

    def _wait(self, timeout: float, *, commit: bool, progress: bool | None) -> WaitResult:
        def ask(body: Mapping[str, Any], retry_timeout: float) -> Response:
            return self._connection.post_until_taken("/wait", body, self._headers(), retry_timeout=retry_timeout)

        return wait_until_served(ask, timeout=timeout, commit=commit, progress=progress_for("wait", wanted=progress))

    def query(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        input_dataframe: pd.DataFrame | list[dict[str, Any]],
        log: bool = False,
        workflow: str | None = None,
        sampling_rate: float | None = None,
        *,
        timestamps: "pd.Series[Any] | None" = None,
    ) -> pd.DataFrame:
        """Compute features for each row of a frame.

        Args:
            inputs: The features that the frame supplies, as objects or full names.
            outputs: The wanted features, as objects or names; a featureset stands for all of its features.
            input_dataframe: A column for each input, named by its full name; or a dict for each row.
            log: Keep the computed features, for training.
            workflow: A label for the kept features.
            sampling_rate: The share of rows that is kept.
            timestamps: The time of each row at which to read; now by default.

        Returns:
            A column for each feature, in the wanted order, and a row for each row of the frame.

        Raises:
            InvalidInputError: An argument is wrong, or the frame lacks a column.
            RemoteError: The server refused, or a feature can't be computed.
        """
        asked = Asked(
            inputs=inputs,
            outputs=outputs,
            frame=input_dataframe,
            log=log,
            workflow=workflow,
            sampling_rate=sampling_rate,
            timestamps=timestamps,
        )
        return self._connection.run(query_as_frame(asked, self._headers()))

    def query_rows(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        input_dataframe: pd.DataFrame | list[dict[str, Any]],
        log: bool = False,
        workflow: str | None = None,
        sampling_rate: float | None = None,
        *,
        timestamps: "pd.Series[Any] | None" = None,
    ) -> list[dict[str, Any]]:
        """Compute features as `query` does, and return each row as a dict of Python values by the names of features.

        Nulls are None. This takes less time than the frame that `query` returns, above all for one row.
        """
        asked = Asked(
            inputs=inputs,
            outputs=outputs,
            frame=input_dataframe,
            log=log,
            workflow=workflow,
            sampling_rate=sampling_rate,
            timestamps=timestamps,
        )
        return self._connection.run(query_rows(asked, self._headers()))

    def lookup(
        self,
        dataset: Dataset | str,
        keys: pd.DataFrame | list[dict[str, Any]],
        fields: Sequence[Any] | None = None,
        timestamps: "pd.Series[Any] | Sequence[Any] | None" = None,
    ) -> "tuple[pd.DataFrame | pd.Series[Any], pd.Series[bool]]":
        """Read rows of a keyed dataset.

        Args:
            dataset: The dataset, or its name.
            keys: A column for each key; or an object for each row.
            fields: The wanted columns; all by default.
            timestamps: The time of each row at which to read; now by default.

        Returns:
            The rows, or a Series if one field is wanted; and for each key whether its row was found.

        Raises:
            InvalidInputError: An argument is wrong.
            UnknownEntityError: The branch has no such dataset.
            RemoteError: The server refused for another reason.
        """
        name = dataset_name(dataset, "lookup")
        rows = rows_of(key_frame(keys, f"lookup of {name}"))
        wanted = [str(item) for item in fields or ()]
        body: dict[str, Any] = {"keys": rows, "fields": wanted}
        if timestamps is not None:
            body["timestamps"] = instants(timestamps, len(rows))
        path = f"/dataset/{quote(name, safe='')}/lookup"
        try:
            answer = self._connection.request("POST", path, self._headers(), body=body).json()
        except RemoteError as error:
            if error.remote_code != UnknownEntityError.code:
                raise
            raise UnknownEntityError(str(error)) from error
        types = dict(dataset.node_schema.columns) if isinstance(dataset, Dataset) else {}
        data = {
            field: typed_column(answer["data"][field], optional(types[field]), field)
            if field in types
            else untyped_column(answer["data"][field], field)
            for field in wanted or answer["data"]
        }
        found = pd.Series(answer["found"], dtype=bool, name="found")
        return (data[wanted[0]] if len(wanted) == 1 else pd.DataFrame(data)), found

    def erase(
        self,
        dataset: Dataset | str,
        erase_keys: pd.DataFrame | list[dict[str, Any]],
        *,
        downstream: bool | None = None,
    ) -> Response:
        """Remove all rows with these erase keys from a dataset, and any that come later. This can't be undone.

        Args:
            dataset: The dataset, or its name.
            erase_keys: A column for each erase key of the dataset; or an object for each row.
            downstream: True: the rows are also removed from the dataset's topic, and everything that is computed from
                them is computed again without them, which takes as long as a new pipeline's backfill. False: datasets
                that are computed from this one keep their rows, and the topic keeps its old records. By default it is
                true if an erase key isn't a key of the dataset, otherwise false.

        Raises:
            InvalidInputError: A column isn't an erase key, an erase key is missing, or the dataset doesn't allow what
                `downstream` asks for.
            DefinitionTypeError: The dataset is neither a dataset nor a name.
        """
        name = dataset_name(dataset, "erase")
        frame = erase_rows(dataset if isinstance(dataset, Dataset) else None, erase_keys, f"erase in {name}")
        body: dict[str, Any] = {"erase_keys": rows_of(frame)}
        if downstream is not None:
            body["downstream"] = downstream
        path = f"/dataset/{quote(name, safe='')}/erase"
        return self._connection.request("POST", path, self._headers(), body=body)
