"""`Client`: commit definitions, log events, query features."""

import uuid
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from caraway.client.frames import column_values, columns_of, instants, typed_column, untyped_column
from caraway.client.response import BRANCH_HEADER, Response
from caraway.datasets.dataset import Dataset
from caraway.dtypes.types import DataType, optional
from caraway.errors import DefinitionTypeError, InvalidInputError, RemoteError, UnknownEntityError
from caraway.featuresets.features import Feature, is_valid_feature
from caraway.featuresets.featureset import Featureset
from caraway.graph.envs import for_env, require_env
from caraway.graph.specs import Graph
from caraway.graph.validation import validate
from caraway.graph.wire import CommitRequest, encode_commit

if TYPE_CHECKING:
    from caraway.client.http import Connection

MAIN_BRANCH = "main"
RETRY_TIMEOUT_S = 60.0
# Rejected rows that a message spells out.
SHOWN_REASONS = 10


class Client:
    """A user's way to a Caraway server.

    Args:
        url: Where the server is, such as "http://localhost:8400".
        token: Who the user is; empty if the server asks for none.
        branch: The branch to work on; main by default.
        connection: The connection to use in place of one to `url`.
    """

    def __init__(
        self, url: str, token: str = "", branch: str | None = None, *, connection: "Connection | None" = None
    ) -> None:
        self.url = url
        self.token = token
        self._branch = branch or MAIN_BRANCH
        if connection is None:
            # httpx takes longer to import than all of Caraway's definitions, and most uses of them need no client.
            from caraway.client.http import Connection  # noqa: PLC0415

            connection = Connection(url, token)
        self._connection = connection

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def branch(self) -> str:
        """Return the name of the current branch."""
        return self._branch

    def commit(  # noqa: PLR0917 (the API's signature)
        self,
        message: str,
        datasets: Sequence[Dataset] | None = None,
        featuresets: Sequence[Featureset] | None = None,
        preview: bool = False,  # noqa: FBT001, FBT002 (the API's signature)
        env: str | None = None,
        incremental: bool = False,  # noqa: FBT001, FBT002 (the API's signature)
        backfill: bool = True,  # noqa: FBT001, FBT002 (the API's signature)
    ) -> Response:
        """Make these definitions those of the branch: all of them or, if anything is wrong, none.

        Args:
            message: What the commit is about.
            datasets: The datasets.
            featuresets: The featuresets.
            preview: Only say what would happen.
            env: Take only the sources, pipelines and extractors that are for this environment.
            incremental: Keep what isn't mentioned; otherwise the lists are all that the branch holds.
            backfill: Allow that data is computed from the beginning.

        Raises:
            CommitError: The definitions don't fit together.
            DefinitionTypeError: A list holds something else than datasets or featuresets.
            RemoteError: The server refused.
            UnavailableError: The server doesn't answer.
        """
        require_env(env)
        graph = for_env(build_graph(datasets or (), featuresets or ()), env)
        validate(graph, partial=incremental)
        request = CommitRequest(
            message=message, graph=graph, preview=preview, incremental=incremental, backfill=backfill, env=env
        )
        params = {
            "preview": str(preview).lower(),
            "incremental": str(incremental).lower(),
            "backfill": str(backfill).lower(),
        }
        response = self._connection.post_bytes("/commit", encode_commit(request), self._headers(), params)
        summary = response.json().get("summary") or ["The server gave no summary.\n"]
        print("".join(summary), end="")  # noqa: T201 (part of the API)
        return response

    def log(
        self,
        webhook: str,
        endpoint: str,
        df: pd.DataFrame,
        batch_size: int = 1000,
        *,
        retry_timeout: float = RETRY_TIMEOUT_S,
    ) -> Response | None:
        """Post the rows of a frame to a webhook's endpoint, in chunks that are each taken as a whole or not at all.

        A chunk that gets no answer, or an error of the server, is sent again; the server recognises what it has taken.

        Args:
            webhook: Name of the webhook.
            endpoint: Name of the endpoint.
            df: The rows.
            batch_size: Rows in a chunk.
            retry_timeout: How long a chunk is tried, in seconds.

        Returns:
            The last answer; None if there are no rows.

        Raises:
            InvalidInputError: Some rows don't fit the dataset; all others, of all chunks, are taken.
            RemoteError: The server refused a whole chunk; earlier ones are taken, later ones weren't sent.
            UnavailableError: The server doesn't answer.
        """
        if batch_size < 1:
            raise InvalidInputError(f"log: batch_size is 1 or more, not {batch_size}")
        if not len(df):
            print("log: the frame has no rows, nothing is sent")  # noqa: T201 (part of the API)
            return None
        data, response = columns_of(df), None
        rejected, reasons = 0, []
        for start in range(0, len(df), batch_size):
            chunk = {name: values[start : start + batch_size] for name, values in data.items()}
            headers = {**self._headers(), "Idempotency-Key": str(uuid.uuid4())}
            body = {"webhook": webhook, "endpoint": endpoint, "data": chunk}
            response = self._connection.post_until_taken("/log", body, headers, retry_timeout=retry_timeout)
            report = response.json()
            rejected += report.get("rejected", 0)
            reasons += [f"row {start + e['row']}, {e['field']}: {e['message']}" for e in report.get("errors", ())]
        if rejected:
            shown = "".join(f"\n  {reason}" for reason in reasons[:SHOWN_REASONS])
            raise InvalidInputError(
                f"{webhook}/{endpoint} took {len(df) - rejected} of {len(df)} rows; it rejected:{shown}"
            )
        return response

    def query(  # noqa: PLR0917 (the API's signature)
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        input_dataframe: pd.DataFrame,
        log: bool = False,  # noqa: FBT001, FBT002 (the API's signature)
        workflow: str | None = None,
        sampling_rate: float | None = None,
        *,
        timestamps: "pd.Series[Any] | None" = None,
    ) -> pd.DataFrame:
        """Compute features for each row of a frame.

        Args:
            inputs: The features that the frame supplies, as objects or full names.
            outputs: The features wanted, as objects or names; a featureset stands for all of its features.
            input_dataframe: A column for each input, named by its full name.
            log: Keep what is computed, for training.
            workflow: A label for what is kept.
            sampling_rate: The share of rows that is kept.
            timestamps: The time of each row at which to read; now, if not given.

        Returns:
            A column for each feature, in the order wanted, and a row for each row of the frame.

        Raises:
            InvalidInputError: An argument is wrong, or the frame lacks a column.
            RemoteError: The server refused, or a feature can't be computed.
            UnavailableError: The server doesn't answer.
        """
        input_names = [_input_name(item) for item in inputs]
        wanted = _outputs(outputs)
        if missing := [name for name in input_names if name not in input_dataframe.columns]:
            raise InvalidInputError(
                f"query: the frame has no column {', '.join(missing)}; columns: "
                f"{', '.join(map(str, input_dataframe.columns))}"
            )
        if not wanted or not len(input_dataframe):
            return pd.DataFrame()
        body: dict[str, Any] = {
            "inputs": input_names,
            "outputs": list(wanted),
            "data": {name: column_values(input_dataframe[name]) for name in input_names},
            "log": log,
        }
        optional_items = {"workflow": workflow, "sampling_rate": sampling_rate}
        body |= {name: value for name, value in optional_items.items() if value is not None}
        if timestamps is not None:
            body["timestamps"] = instants(timestamps, len(input_dataframe))
        answer = self._connection.post_json("/query", body, self._headers()).json()
        return _result(answer, wanted)

    def lookup(
        self,
        dataset: Dataset | str,
        keys: pd.DataFrame,
        fields: Sequence[Any] | None = None,
        timestamps: "pd.Series[Any] | Sequence[Any] | None" = None,
    ) -> "tuple[pd.DataFrame | pd.Series[Any], pd.Series[bool]]":
        """Read rows of a keyed dataset.

        Args:
            dataset: The dataset, or its name.
            keys: A column for each key.
            fields: The columns wanted; all by default.
            timestamps: The time of each row at which to read; now, if not given.

        Returns:
            The rows, or a Series if one field is wanted; and which of them were found.

        Raises:
            InvalidInputError: An argument is wrong.
            UnknownEntityError: The branch has no such dataset.
            RemoteError: The server refused for another reason.
            UnavailableError: The server doesn't answer.
        """
        name = dataset.fqn() if isinstance(dataset, Dataset) else dataset
        if not isinstance(keys, pd.DataFrame):
            raise InvalidInputError(
                f"lookup of {name}: keys is a {type(keys).__name__}; give a DataFrame with a column for each key"
            )
        wanted = [str(item) for item in fields or ()]
        columns = columns_of(keys)
        rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
        body: dict[str, Any] = {"keys": rows, "fields": wanted}
        if timestamps is not None:
            body["timestamps"] = instants(timestamps, len(rows))
        try:
            answer = self._connection.post_json(f"/dataset/{name}/lookup", body, self._headers()).json()
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

    def _headers(self) -> dict[str, str]:
        return {BRANCH_HEADER: self._branch}


def build_graph(datasets: Sequence[Dataset], featuresets: Sequence[Featureset]) -> Graph:
    """Gather definitions into a graph, without those that are marked as deleted.

    Raises:
        DefinitionTypeError: A list holds something else.
    """
    for kind, items, expected in (("datasets", datasets, Dataset), ("featuresets", featuresets, Featureset)):
        for item in items:
            if not isinstance(item, expected):
                raise DefinitionTypeError(f"commit: {kind} holds {item!r}, which is a {type(item).__name__}")
    dataset_specs = [item.to_spec() for item in datasets]
    featureset_specs = [item.to_spec() for item in featuresets]
    return Graph(
        datasets=tuple(spec for spec in dataset_specs if not spec.metadata.deleted),
        featuresets=tuple(spec for spec in featureset_specs if not spec.metadata.deleted),
    )


def _input_name(item: object) -> str:
    if isinstance(item, Feature):
        return item.fqn()
    if isinstance(item, str) and is_valid_feature(item):
        return item
    if isinstance(item, (Featureset, str)):
        raise InvalidInputError(f"query: input {item!r} is not a feature; list the features of a featureset one by one")
    raise InvalidInputError(f"query: input {item!r} is a {type(item).__name__}, not a feature")


def _outputs(outputs: Sequence[Feature | Featureset | str]) -> dict[str, DataType | None]:
    """Return the names wanted, in order, with their types where they are known."""
    wanted: dict[str, DataType | None] = {}
    for item in outputs:
        match item:
            case Feature():
                wanted[item.fqn()] = item.data_type
            case Featureset():
                wanted.update({feature.fqn(): feature.data_type for feature in item.features})
            case str() if item.count(".") <= 1:
                wanted.setdefault(item, None)
            case _:
                raise InvalidInputError(f"query: output {item!r} is neither a feature nor a featureset")
    return wanted


def _result(answer: dict[str, list[Any]], wanted: dict[str, DataType | None]) -> pd.DataFrame:
    columns: dict[str, pd.Series[Any]] = {}
    for name, dtype in wanted.items():
        if dtype is not None:
            columns[name] = typed_column(answer[name], dtype, name)
            continue
        # A featureset's name stands for all of its features, in the server's order.
        names = [name] if name in answer else [found for found in answer if found.startswith(f"{name}.")]
        for found in names:
            columns.setdefault(found, untyped_column(answer[found], found))
    return pd.DataFrame(columns)
