"""`MockClient`: a client without a server, for unit tests."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import msgspec
import pandas as pd

from caraway.client import Client, Response, arguments
from caraway.client.client import MAIN_BRANCH
from caraway.client.profiling import profile
from caraway.client.results import CommitResult, LogResult
from caraway.client.training import complete, table_of
from caraway.client.waiting import WaitResult
from caraway.client.why import WhyInputs, question_of
from caraway.compute.profiles.tables import Profile
from caraway.compute.query.datasets import DatasetLookups
from caraway.compute.query.xray import Progress, describe
from caraway.compute.why.explaining import Question, explain
from caraway.compute.why.in_process import EngineHistories
from caraway.compute.why.lookups import Listing
from caraway.compute.why.model import LISTED, Why
from caraway.datasets.dataset import Dataset
from caraway.dtypes.values import is_null
from caraway.errors import ConflictError, InvalidInputError, UnknownEntityError
from caraway.featuresets.features import Feature
from caraway.featuresets.featureset import Featureset
from caraway.graph.envs import for_env, require_env
from caraway.graph.erase_keys import goes_downstream
from caraway.graph.lineage import effective_tags
from caraway.graph.lineage_graph import as_json, lineage_of
from caraway.graph.validation.graphs import validate_placement
from caraway.testing import hooks
from caraway.testing.branch import Branch
from caraway.testing.feeding import log_dataset, log_webhook
from caraway.testing.frames import arrow_frame, key_rows
from caraway.testing.queries import compute, look_up, row_times
from caraway.testing.responses import committed, failed, ok

if TYPE_CHECKING:
    from caraway.client.training import TrainingSet


class MockClient(Client):
    """A client that keeps branches, definitions and data in memory and computes everything at once.

    Lookups and secrets outside of extractors are answered by the newest mock client.

    Args:
        branch: The branch to work on, which is created beside main; main by default.
    """

    def __init__(self, branch: str | None = None) -> None:
        # `Client.__init__` isn't called, since it looks for a server; all methods that would use one are overridden.
        self.url = "mock"
        self.token = ""
        self._branch = branch or MAIN_BRANCH
        self._queue = arguments.Queue()
        self._branches = {name: Branch.empty() for name in dict.fromkeys((MAIN_BRANCH, self._branch))}
        self._secrets: dict[str, str] = {}
        hooks.announce(self)

    def close(self) -> None:
        """Do nothing."""

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
        timeout: float = 0.0,
        progress: bool | None = None,
    ) -> CommitResult:
        """Make these definitions those of the branch, and wipe its data, unless the commit is incremental.

        Args:
            message: A description of the commit.
            datasets: The datasets.
            featuresets: The featuresets.
            preview: Ignored.
            env: Take only the sources, pipelines and extractors that are for this environment.
            incremental: Keep definitions that aren't in the lists, and the data of those that don't change.
            backfill: Ignored.
            wait: Ignored: a commit is served at once.
            timeout: Ignored.
            progress: Ignored.

        Returns:
            The entities created, changed and removed.

        Raises:
            CommitError: The definitions contradict each other or the branch.
            DefinitionTypeError: A list contains something else than datasets or featuresets.
        """
        arguments.require_message(message)
        self._queue.clear()
        require_env(env)
        defined = arguments.gather(datasets or (), featuresets or ())
        validate_placement(defined, env)
        graph = for_env(defined, env)
        before = self._current()
        with hooks.secrets_of(self.get_secret):
            after = self._branches[self._branch] = before.committed(graph, env, incremental=incremental)
        return committed(before.graph, after.graph)

    def log(
        self,
        webhook: str,
        endpoint: str,
        df: pd.DataFrame,
        batch_size: int = 1000,
        *,
        retry_timeout: float = 0.0,
        strict: bool = True,
        wait: bool = False,
        timeout: float = 0.0,
        progress: bool | None = None,
    ) -> LogResult:
        """Add rows to every dataset, of any branch, that has this endpoint; derived datasets are computed at once.

        Raises:
            UnknownEntityError: No dataset has the endpoint.
            InvalidInputError: A column is missing or a value doesn't fit; then no row is stored.
        """
        if len(df):
            with hooks.secrets_of(self.get_secret):
                log_webhook(self._branches, webhook, endpoint, df)
        return LogResult(200, {}, b"{}", webhook=webhook, endpoint=endpoint, chunks=min(1, len(df)), accepted=len(df))

    def wait(self, timeout: float = 0.0, *, progress: bool | None = None) -> WaitResult:
        """Return at once: all logged rows are served."""
        self._current()
        return WaitResult(seconds=0.0, since={})

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
        """Compute features for each row of a frame; see `Client.query`.

        Raises:
            NotImplementedError: `log` is set.
            InvalidInputError: An argument is wrong, the frame lacks a column, or a feature can't be computed.
            ExtractorError: An extractor failed.
        """
        if log:
            raise NotImplementedError("query: a mock client keeps no features, leave log=True out")
        given, wanted = arguments.input_features(inputs, "query"), arguments.output_features(outputs, "query")
        frame = arguments.require_columns(input_dataframe, list(given), "query")
        branch = self._current()
        if not wanted or not len(frame):
            return pd.DataFrame()
        at = None if timestamps is None else row_times(timestamps, len(frame))
        with hooks.secrets_of(self.get_secret):
            return compute(branch.queries, given, list(wanted), frame, at)

    def query_rows(self, *given: Any, **named: Any) -> list[dict[str, Any]]:
        """Compute features for each row of a frame, with the arguments of `query`; see `Client.query_rows`."""
        rows = self.query(*given, **named).astype(object).to_dict("records")
        return [{str(name): None if is_null(value) else value for name, value in row.items()} for row in rows]

    def query_offline(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        timestamp_column: str,
        input_dataframe: pd.DataFrame | None = None,
        input_s3: Any = None,
        output_s3: Any = None,
        feature_to_column_map: Any = None,
        workflow: str | None = None,
        use_v2: bool = True,
        num_dpus: int | None = None,
        *,
        as_known: bool = False,
        before: bool = False,
        execution: str = "auto",
    ) -> Any:
        """Compute features for each row of a frame as of the row's time; with `before`, of a microsecond earlier.

        Returns:
            The frame of features, with the time stamps as its last column.

        Raises:
            InvalidInputError: There is no frame (a mock client reads none from S3), or it doesn't fit.
            AssertionError: An argument for S3 is given besides a frame.
            KeyError: The frame has no such time stamp column.
            ExtractorError: An extractor failed.
        """
        _refuse_as_known(as_known=as_known)
        if input_dataframe is None:
            raise InvalidInputError(
                "query_offline: a mock client needs input_dataframe; it has no S3, so input_s3 is for servers only"
            )
        s3 = {"input_s3": input_s3, "output_s3": output_s3, "feature_to_column_map": feature_to_column_map}
        if used := [name for name, value in s3.items() if value is not None]:
            raise AssertionError(f"query_offline: a mock client has no S3, leave {', '.join(used)} out")
        given, wanted = (
            arguments.input_features(inputs, "query_offline"),
            arguments.output_features(outputs, "query_offline"),
        )
        frame = arguments.require_columns(input_dataframe, list(given), "query_offline")
        if timestamp_column not in frame.columns:
            raise UnknownEntityError(
                f"query_offline: the frame has no time stamp column {timestamp_column!r}; columns: "
                f"{', '.join(map(str, frame.columns))}"
            )
        branch = self._current()
        if not wanted or not len(frame):
            return pd.DataFrame()
        at = row_times(frame[timestamp_column], len(frame))
        with hooks.secrets_of(self.get_secret):
            seen_at = [time_us - 1 for time_us in at] if before else at
            result = compute(branch.queries, given, list(wanted), frame, seen_at)
        result = result.drop(columns=timestamp_column, errors="ignore")
        result[timestamp_column] = pd.DatetimeIndex(pd.to_datetime(at, unit="us", utc=True)).as_unit("ns")
        return result

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
        """Compute features for each row as of the row's time; see `Client.training_set`.

        Raises:
            InvalidInputError: An argument is wrong, the rows don't fit, or a feature can't be computed.
            ExtractorError: An extractor failed.
        """
        _refuse_as_known(as_known=as_known)
        frame = table_of(rows).to_pandas()
        found = self.query_offline(inputs, outputs, timestamp_column, frame, before=before)
        given = arguments.input_features(inputs, "training_set")
        for name in frame:
            if name not in found and name not in given:
                found[name] = frame[name]
        return complete(found)

    def track_offline_query(self, request_id: str) -> Any:
        """Return an error response: no query is under way, since `query_offline` returns the features themselves."""
        return failed(404, f"a mock client answers at once, there is no offline query {request_id}")

    def explain_offline_query(self, request_id: str) -> Any:
        """Return an error response: no query is under way, since `query_offline` returns the features themselves."""
        return self.track_offline_query(request_id)

    def explain_offline(
        self,
        inputs: Sequence[Feature | str],
        outputs: Sequence[Feature | Featureset | str],
        *,
        as_known: bool = False,
        execution: str = "auto",
    ) -> Any:
        """Return an error response: a mock client reads no tables, whose size decides where a query is computed."""
        del inputs, outputs, as_known, execution
        return failed(404, "a mock client reads no tables, so there is nothing to explain; ask a server")

    def offline_result(
        self, request_id: str, *, timeout: float | None = None, progress: bool | None = None
    ) -> "TrainingSet":
        """Raise: no query is under way, since `query_offline` returns the features themselves.

        Raises:
            UnknownEntityError: Always.
        """
        del timeout, progress
        raise UnknownEntityError(f"a mock client answers at once, there is no offline query {request_id}")

    def cancel_offline_query(self, request_id: str) -> Any:
        """Return an error response: no query is under way, since `query_offline` returns the features themselves."""
        return self.track_offline_query(request_id)

    def why(
        self,
        feature: Feature | str,
        inputs: WhyInputs,
        at: Any = None,
        *,
        as_known: bool = False,
        offset: int = 0,
        limit: int = LISTED,
        sample: bool = False,
        timeout: float = 0.0,
    ) -> Why:
        """Explain the value of a feature; see `Client.why`.

        A mock client knows no times of ingestion and no positions.

        Raises:
            UnknownFeatureError: There is no such feature.
            InvalidInputError: An argument is wrong, or the feature can't be computed from the inputs.
            ExtractorError: An extractor failed.
        """
        _refuse_as_known(as_known=as_known)
        asked = question_of(feature, inputs, at, as_known=False, offset=offset, limit=limit, sample=sample)
        question = Question(
            feature=asked.feature,
            inputs=asked.inputs,
            at_us=asked.at_us,
            listing=Listing(offset, limit, sample),
            branch=self._branch,
        )
        branch = self._current()
        histories = EngineHistories(branch.engine, branch.catalog.datasets)
        with hooks.secrets_of(self.get_secret):
            found = explain(branch.catalog, branch, histories, question)
        return msgspec.structs.replace(found, commit="")

    def lookup(
        self,
        dataset: Dataset | str,
        keys: pd.DataFrame | list[dict[str, Any]],
        fields: Sequence[Any] | None = None,
        timestamps: "pd.Series[Any] | Sequence[Any] | None" = None,
    ) -> "tuple[pd.DataFrame | pd.Series[Any], pd.Series[bool]]":
        """Read rows of a keyed dataset; see `Client.lookup`.

        Raises:
            UnknownEntityError: The branch has no such dataset.
            InvalidInputError: An argument is wrong, or the dataset lacks the index.
        """
        name = arguments.dataset_name(dataset, "lookup")
        frame = arguments.key_frame(keys, f"lookup of {name}")
        self._current().catalog.dataset(name)
        at = None if timestamps is None else row_times(timestamps, len(frame))
        return look_up(self.lookups(past=at is not None), name, frame, [str(field) for field in fields or ()], at)

    def lookups(self, *, past: bool) -> DatasetLookups:
        """Return an object that answers lookups in the current branch; `past` selects the offline index."""
        branch = self._current()
        return DatasetLookups(branch.catalog, branch, past=past)

    def inspect(self, dataset: Dataset | str, n: int = 10) -> pd.DataFrame:
        """Return the stored rows of a dataset: all of them, or `n` random ones if there are more.

        Raises:
            InvalidInputError: The branch has no such dataset.
        """
        frame = self.get_dataset_df(arguments.dataset_name(dataset, "inspect"))
        return frame if len(frame) <= n else frame.sample(n).reset_index(drop=True)

    def erase(
        self,
        dataset: Dataset | str,
        erase_keys: pd.DataFrame | list[dict[str, Any]],
        *,
        downstream: bool | None = None,
    ) -> Response:
        """Remove all rows with these erase keys from a dataset, and any that come later.

        With `downstream`, datasets that are computed from it are computed again without the rows; see `Client.erase`.

        Returns:
            A response, 404 if the branch has no such dataset.

        Raises:
            InvalidInputError: A column isn't an erase key, one is missing, a value doesn't fit, or the dataset doesn't
                allow what `downstream` asks for.
            DefinitionTypeError: The dataset is neither a dataset nor a name.
        """
        name = arguments.dataset_name(dataset, "erase")
        where = f"erase in {name}"
        frame = arguments.erase_rows(dataset if isinstance(dataset, Dataset) else None, erase_keys, where)
        branch = self._current()
        spec = branch.catalog.datasets.get(name)
        if spec is None:
            return failed(404, f"erase: branch {self._branch} has no dataset {name}")
        arguments.check_erase_keys(frame, [field.name for field in spec.fields if field.erase_key], where)
        branch.engine.erase(name, key_rows(spec, frame), downstream=goes_downstream(spec, downstream))
        return ok()

    def get_secret(self, name: str) -> str:
        """Return a secret.

        Raises:
            UnknownEntityError: There is no secret of this name.
        """
        if name not in self._secrets:
            known = ", ".join(self._secrets) or "none"
            raise UnknownEntityError(f"there is no secret {name!r}; secrets: {known}")
        return self._secrets[name]

    def add_secret(self, name: str, value: str) -> Response:
        """Store a secret, for all branches."""
        self._secrets[name] = value
        return ok()

    def update_secret(self, name: str, value: str) -> Response:
        """Change a secret, or store a new one."""
        return self.add_secret(name, value)

    def delete_secret(self, name: str) -> Response:
        """Delete a secret.

        Raises:
            UnknownEntityError: There is no secret of this name.
        """
        self.get_secret(name)
        del self._secrets[name]
        return ok()

    def init_branch(self, name: str) -> Response:
        """Create an empty branch and check it out.

        Raises:
            InvalidInputError: The branch exists.
        """
        if name in self._branches:
            raise InvalidInputError(f"init_branch: branch {name} exists; check it out, or choose another name")
        self._branches[name] = Branch.empty()
        self._branch = name
        return ok()

    def clone_branch(self, name: str, from_branch: str) -> Response:
        """Create a branch with the definitions and data of another one, and check it out.

        Raises:
            ConflictError: The branch exists.
            UnknownEntityError: The other branch doesn't.
        """
        source = self._existing(from_branch)
        if name in self._branches:
            raise ConflictError(f"clone_branch: branch {name} exists; choose another name")
        self._branches[name] = source.copy()
        self._branch = name
        return ok()

    def delete_branch(self, name: str) -> Response:
        """Delete a branch; if it is the current one, main is checked out.

        Raises:
            ConflictError: The branch is main.
            UnknownEntityError: The branch doesn't exist.
        """
        if name == MAIN_BRANCH:
            raise ConflictError("delete_branch: main can't be deleted")
        self._existing(name)
        del self._branches[name]
        if self._branch == name:
            self._branch = MAIN_BRANCH
        return ok()

    def list_branches(self) -> list[str]:
        """Return the names of all branches."""
        return list(self._branches)

    def checkout(self, name: str, init: bool = False) -> None:
        """Switch to a branch; `init` creates it if it doesn't exist."""
        if init and name not in self._branches:
            self.init_branch(name)
        self._branch = name

    def xray(
        self,
        datasets: str | Sequence[str] | None = None,
        featuresets: str | Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        *,
        properties: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Return the content of the branch; see `Client.xray`.

        Raises:
            UnknownEntityError: There is no such dataset or featureset.
            InvalidInputError: There is no such property.
        """
        branch = self._current()
        return describe(
            branch.graph,
            effective_tags(branch.graph),
            lambda name: _progress(branch, name),
            datasets=datasets,
            featuresets=featuresets,
            properties=fields if fields is not None else properties,
        )

    def lineage(self) -> dict[str, Any]:
        """Return the lineage of the branch: which entity is computed from which."""
        return as_json(lineage_of(self._current().graph))

    def skew(self, feature: str | None = None, *, hours: int = 24, samples: int = 20) -> dict[str, Any]:
        """Return no findings: a mock client logs no served features that could be compared; see `Client.skew`."""
        del feature, hours, samples
        return {"branch": self._branch, "since": None, "features": [], "samples": []}

    def drift(self, feature: str | None = None, *, hours: int = 24, reference: str | None = None) -> dict[str, Any]:
        """Return no features: a mock client logs none that it served; see `Client.drift`."""
        del feature, hours, reference
        return {"branch": self._branch, "since": None, "false_alarms": None, "features": []}

    def drift_profiles(self, feature: str, *, hours: int = 24, reference: str | None = None) -> dict[str, Any]:
        """Return no profiles: a mock client logs no features that it served; see `Client.drift_profiles`."""
        del feature, hours, reference
        return {}

    def dataset_drift(self, dataset: Dataset | str, *, hours: int = 24, reference: str | None = None) -> dict[str, Any]:
        """Return no fields: a mock client profiles no rows; see `Client.dataset_drift`."""
        del hours, reference
        name = arguments.dataset_name(dataset, "dataset_drift")
        return {"branch": self._branch, "dataset": name, "since": None, "false_alarms": None, "fields": []}

    def dataset_profile(self, dataset: Dataset | str, *, hours: int = 24) -> "Profile | None":
        """Return None: a mock client profiles no rows; see `Client.dataset_profile`."""
        del hours
        arguments.dataset_name(dataset, "dataset_profile")
        return None

    def try_sources(
        self, name: str, datasets: Sequence[Dataset] = (), *, rows: int = 10, env: str | None = None
    ) -> list[dict[str, Any]]:
        """Raise: a mock client connects to no system; see `Client.try_sources`.

        Raises:
            InvalidInputError: Always.
        """
        del datasets, rows, env
        raise InvalidInputError(f"a mock client connects to no system, so it can't try {name}; ask a server")

    def freshness_history(self) -> dict[str, pd.Series]:
        """Return no ages: a mock client reads rows at once; see `Client.freshness_history`."""
        return {}

    def set_reference(self, reference: Any) -> dict[str, Any]:
        """Check the reference; a mock client compares nothing with it. See `Client.set_reference`."""
        made = reference if isinstance(reference, Profile) else profile(reference)
        names = {
            f"{spec.name}.{feature.name}" for spec in self._current().graph.featuresets for feature in spec.features
        }
        known = sorted(names & made.columns.keys())
        if not known:
            raise InvalidInputError("no column of the profile is a feature of the branch")
        return {"features": known, "ignored": [name for name in made.columns if name not in names]}

    def expectations(
        self, dataset: Dataset | str | None = None, *, hours: int = 24, samples: int = 3
    ) -> list[dict[str, Any]]:
        """Return how many rows of the branch's datasets are as expected, counted now; see `Client.expectations`.

        Raises `UnknownEntityError` if the branch has no such dataset.
        """
        from caraway.testing.expectations import counted  # noqa: PLC0415 (polars takes long to import)

        name = None if dataset is None else arguments.dataset_name(dataset, "expectations")
        return counted(self._current(), name, hours=hours, samples=samples)

    def get_dataset_df(self, dataset_name: str) -> pd.DataFrame:
        """Return all rows that a dataset ever had, ordered by time stamp, on Arrow.

        Raises:
            InvalidInputError: The branch has no such dataset.
        """
        branch = self._current()
        spec = branch.catalog.datasets.get(dataset_name)
        if spec is None:
            known = ", ".join(branch.catalog.datasets) or "none"
            raise InvalidInputError(f"branch {self._branch} has no dataset {dataset_name!r}; datasets: {known}")
        return arrow_frame(spec, branch.engine.rows(dataset_name))

    def get_datasets(self) -> list[Any]:
        """Return the datasets of the current branch."""
        return list(self._current().graph.datasets)

    def get_featuresets(self) -> list[Any]:
        """Return the featuresets of the current branch."""
        return list(self._current().graph.featuresets)

    def log_rows(self, dataset: str, df: pd.DataFrame) -> None:
        """Write rows directly to a dataset; see `caraway.testing.log`."""
        with hooks.secrets_of(self.get_secret):
            log_dataset(self._branches, self._branch, dataset, df)

    def sleep(self, seconds: float = 0) -> None:
        """Do nothing: all rows are processed at once."""

    def is_integration_client(self) -> bool:
        """Return False: there is no server."""
        return False

    def integration_mode(self) -> str:
        """Return "mock"."""
        return "mock"

    def _current(self) -> Branch:
        return self._existing(self._branch)

    def _existing(self, name: str) -> Branch:
        branch = self._branches.get(name)
        if branch is None:
            raise UnknownEntityError(f"there is no branch {name!r}; branches: {', '.join(self._branches)}")
        return branch


def _refuse_as_known(*, as_known: bool) -> None:
    if as_known:
        raise InvalidInputError("as_known: a mock client doesn't know when rows were ingested; ask a server")


def _progress(branch: Branch, name: str) -> Progress:
    rows, timestamp = branch.engine.rows(name), branch.catalog.dataset(name).timestamp
    newest: Any = max((row[timestamp] for row in rows), default=None)  # type: ignore[type-var]  # microseconds
    return Progress(len(rows), newest, 0)
