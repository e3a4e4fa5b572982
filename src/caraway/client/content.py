"""The content of a branch: its entities, their rows, and how they are."""

import base64
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import pandas as pd

from caraway.client.answers import Answer, Answers
from caraway.client.arguments import dataset_name, name_list
from caraway.client.caller import Caller
from caraway.client.frames import row_frame
from caraway.client.profiling import profile
from caraway.client.why import WhyInputs, question_of
from caraway.compute.profiles.tables import Profile
from caraway.compute.why.model import LISTED, Why, why_from_json
from caraway.compute.why.waiting import TIMEOUT_S as WHY_TIMEOUT_S
from caraway.compute.why.waiting import awaited
from caraway.datasets.dataset import Dataset
from caraway.featuresets.features import Feature
from caraway.observations import monitoring


class Content(Caller):
    """The part of `Client` that shows what a branch holds."""

    def inspect(self, dataset: Dataset | str, n: int = 10) -> pd.DataFrame:
        """Return some rows of a dataset.

        Args:
            dataset: The dataset, or its name.
            n: The greatest number of rows.
        """
        name = dataset_name(dataset, "inspect")
        params = {"n": str(n)}
        path = f"/dataset/{quote(name, safe='')}/inspect"
        answer = self._connection.request("GET", path, self._headers(), params=params).json()
        types = dict(dataset.node_schema.columns) if isinstance(dataset, Dataset) else {}
        return row_frame(answer, types)

    def xray(
        self,
        datasets: str | Sequence[str] | None = None,
        featuresets: str | Sequence[str] | None = None,
        fields: Sequence[str] | None = None,
        *,
        properties: Sequence[str] | None = None,
    ) -> dict[str, Any]:
        """Describe datasets and featuresets of the branch, by default all of them.

        Args:
            datasets: Names.
            featuresets: Names.
            fields: The wanted properties; all by default.
            properties: The same as `fields`.
        """
        params = {
            "datasets": name_list(datasets),
            "featuresets": name_list(featuresets),
            "properties": name_list(fields if fields is not None else properties),
        }
        return Answer("xray", self._connection.request("GET", "/xray", self._headers(), params=params).json())

    def lineage(self) -> dict[str, Any]:
        """Return the lineage of the branch: which entity is computed from which."""
        return Answer("lineage", self._connection.request("GET", "/lineage", self._headers()).json())

    def skew(self, feature: str | None = None, *, hours: int = 24, samples: int = 20) -> dict[str, Any]:
        """Return how features that were served compare with the same features computed again from the archive.

        Args:
            feature: The full name of a feature, or the name of a featureset, to see only that.
            hours: How many hours back the features were served.
            samples: The most values that are shown of those that differ.

        Returns:
            `features` has for each feature and commit the numbers of values that were `checked` and `mismatched`, the
            `reasons` of mismatches, and why others are `unchecked`. `samples` has values that differ.

        Raises `RemoteError` if the branch has no such feature.
        """
        params = {"feature": feature, "hours": str(hours), "samples": str(samples)}
        answer = self._connection.request("GET", "/skew", self._headers(), params=params).json()
        return Answer("skew", answer, (monitoring.SKEW, monitoring.SKEW_SAMPLES))

    def drift(self, feature: str | None = None, *, hours: int = 24, reference: str | None = None) -> dict[str, Any]:
        """Return how features that were served compare with a reference, from profiles by the hour.

        Args:
            feature: The full name of a feature, or the name of a featureset, to see only that.
            hours: How many hours back the features were served. The current hour is one of them.
            reference: "training" for the reference that was set (`set_reference`), "previous" for what was served in
                as many hours before, "day" or "week" for the same hours a day or a week before. By default the
                reference that was set, or else "day".

        Returns:
            `features` has for each feature whether it has `drifted`, and its `distances`. A distance has a `value`,
            the part of it that chance doesn't explain (`at_least`), and the `threshold` from which it is an alarm.
            The probability of any alarm is at most `false_alarms` if nothing has changed.

        Raises `RemoteError` if the branch has no such feature.
        """
        params = {"feature": feature, "hours": str(hours), "reference": reference}
        answer = self._connection.request("GET", "/drift", self._headers(), params=params).json()
        return Answer("drift", answer, (monitoring.DRIFT, monitoring.FEATURE_DISTANCES))

    def dataset_drift(self, dataset: Dataset | str, *, hours: int = 24, reference: str | None = None) -> dict[str, Any]:
        """Return what the fields of a dataset are like, and how they compare with earlier rows.

        The dataset must declare `@meta(drift=...)`. Keys, erase keys and the timestamp have no profile; the column
        `delay_seconds` is the time from the event to its ingestion.

        Args:
            dataset: The dataset, or its name.
            hours: How many hours of event time, back from the newest row, which is in the last of them.
            reference: "previous" for as many hours before, "day" (the default) or "week" for the same hours a day or a
                week before.

        Returns:
            `fields` has for each field its `profile` (numbers, moments, quantiles, frequent values), whether it has
            `drifted`, and its `distances`, as `drift` has them for features.

        Raises:
            RemoteError: The branch has no such dataset, or it isn't profiled.
        """
        name = dataset_name(dataset, "dataset_drift")
        params = {"hours": str(hours), "reference": reference}
        path = f"/drift/datasets/{quote(name, safe='')}"
        answer = self._connection.request("GET", path, self._headers(), params=params).json()
        return Answer("drift", answer, (monitoring.PROFILES, monitoring.FIELD_DISTANCES))

    def dataset_profile(self, dataset: Dataset | str, *, hours: int = 24) -> "Profile | None":
        """Return the profile of the fields of a dataset, to look at, to draw or to compare (`caraway.drift`).

        Args:
            dataset: The dataset, or its name. It must declare `@meta(drift=...)`.
            hours: How many hours of event time, back from the newest row, which is in the last of them.

        Returns:
            The profile; None if no row was profiled yet.

        Raises:
            RemoteError: The branch has no such dataset, or it isn't profiled.
            UnavailableError: The library of the sketches isn't installed (`pip install caraway[drift]`).
        """
        name = dataset_name(dataset, "dataset_profile")
        path = f"/drift/datasets/{quote(name, safe='')}/profile"
        answer = self._connection.request("GET", path, self._headers(), params={"hours": str(hours)}).json()
        packed = answer["profile"]
        return None if packed is None else Profile.from_bytes(base64.b64decode(packed))

    def drift_profiles(self, feature: str, *, hours: int = 24, reference: str | None = None) -> dict[str, Any]:
        """Return the profiles of a feature that `drift` compares, to look at or to draw (`caraway.plot_drift`).

        Args:
            feature: The full name of the feature.
            hours: How many hours back the feature was served. The current hour is one of them.
            reference: The reference with which it is compared; see `drift`.

        Returns:
            A `Profile` with the column of the feature: "served" of what was served, and under the kind of the
            reference, such as "training", that of the reference. A profile that there isn't is missing.

        Raises:
            RemoteError: The branch has no such feature.
            UnavailableError: The library of the sketches isn't installed (`pip install caraway[drift]`).
        """
        params = {"feature": feature, "hours": str(hours), "reference": reference}
        answer = self._connection.request("GET", "/drift/profiles", self._headers(), params=params).json()
        found = {answer["reference"]: answer["reference_profile"], "served": answer["served"]}
        return {
            kind: Profile.from_bytes(base64.b64decode(packed))
            for kind, packed in found.items()
            if kind is not None and packed is not None
        }

    def freshness_history(self) -> dict[str, pd.Series]:
        """Return how old what queries read was, in the minutes of the last day that the server has measured.

        Returns:
            For each dataset the greatest ages of minutes, in seconds; the index has the beginnings of the minutes.
        """
        answer = self._connection.request("GET", "/freshness/history", self._headers()).json()
        return {
            found["dataset"]: pd.Series(
                found["seconds"],
                index=pd.to_datetime(found["at"], unit="s", utc=True),
                name=found["dataset"],
                dtype="float64",
            )
            for found in answer["datasets"]
        }

    def set_reference(self, reference: Any) -> dict[str, Any]:
        """Set the rows with which served features are compared from now on, as those that a model was trained on.

        Only a profile of the rows is sent and kept: counts, moments, quantiles and frequent values of each feature. It
        takes the place of an earlier reference of the same features on the branch.

        Args:
            reference: A training set, its profile, or a table with columns named after features, such as `User.age`.

        Returns:
            `features`, whose reference was set, and `ignored`, the columns that aren't features of the branch.

        Raises:
            InvalidInputError: There is no column of a feature, or `reference` is no table.
            UnavailableError: The library of the sketches isn't installed (`pip install caraway[drift]`).
        """
        made = reference if isinstance(reference, Profile) else profile(reference)
        body = {"profile": base64.b64encode(made.to_bytes()).decode()}
        answer: dict[str, Any] = self._connection.request("POST", "/drift/reference", self._headers(), body=body).json()
        return answer

    def expectations(
        self, dataset: Dataset | str | None = None, *, hours: int = 24, samples: int = 3
    ) -> list[dict[str, Any]]:
        """Return how many rows of the branch's datasets are as their owners expect (`@expectations`).

        Args:
            dataset: A dataset, to see only its expectations.
            hours: How many hours of event time the series has, back from the newest row.
            samples: How many of the rows that failed an expectation are returned at most, for each expectation.

        Returns:
            For each expectation its `dataset`, `version` and name (`expectation`), its `status` ("ok", "violated" or
            "no_data"), the share of rows that should pass (`mostly`), whether rows that fail are refused (`strict`),
            and the counts of the `total`, the `last_hour` and the `last_day`: rows `evaluated`, rows `failed`, and the
            `rate` of rows that passed. `samples` has rows that failed, and `series` the counts of hours of event time.

        Raises `RemoteError` if the branch has no such dataset.
        """
        name = None if dataset is None else dataset_name(dataset, "expectations")
        params = {"dataset": name, "hours": str(hours), "samples": str(samples)}
        answer = self._connection.request("GET", "/expectations", self._headers(), params=params).json()
        return Answers(monitoring.EXPECTATIONS, answer["expectations"])

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
        timeout: float = WHY_TIMEOUT_S,
    ) -> Why:
        """Explain the value of a feature: the events and versions from which it is computed (docs/guides/why.md).

        Args:
            feature: The feature.
            inputs: The value of each feature that a query would be given.
            at: The time as of which it is explained: a datetime, an ISO text or an epoch number; None for now.
            as_known: Only records count that had been ingested by this time, as when the value was served then.
            offset: How many of the rows that count in a lookup aren't listed at the begin.
            limit: How many of them are listed at most, up to 1,000.
            sample: List a sample that is spread evenly over all of them.
            timeout: The time limit in seconds.

        Returns:
            The explanation, which prints as a tree, also in notebooks.

        Raises:
            InvalidInputError: An argument is wrong.
            RemoteError: There is no such feature, it can't be computed, or the server refused.
            UnavailableError: The server doesn't answer, or the explanation takes longer than the limit.
        """
        asked = question_of(feature, inputs, at, as_known=as_known, offset=offset, limit=limit, sample=sample)
        answer = self._connection.request("POST", "/why", self._headers(), body=asked.body()).json()

        def look(request_id: str) -> Mapping[str, Any]:
            found: Mapping[str, Any] = self._connection.request(
                "GET", "/why", self._headers(), params={"request_id": request_id}
            ).json()
            return found

        return why_from_json(awaited(answer, look, timeout))
