"""Expectations as a mock client has them: counted over all rows of the branch's datasets."""

from typing import Any

import numpy as np

from caraway.compute.expectations.counts import HOUR_US, Counts, by_window
from caraway.compute.expectations.report import Failure, states
from caraway.compute.expectations.suite import CompiledSuite
from caraway.dtypes.instants import to_datetime
from caraway.dtypes.values import to_json
from caraway.errors import UnknownEntityError
from caraway.graph.expectations import ExpectationSuite
from caraway.graph.specs import DatasetSpec
from caraway.testing.branch import Branch


def counted(branch: Branch, dataset: str | None, *, hours: int, samples: int) -> list[dict[str, Any]]:
    """Return the states of a branch's expectations; see `Client.expectations`.

    Raises `UnknownEntityError` if there is no such dataset.
    """
    specs = branch.catalog.datasets
    if dataset is not None and dataset not in specs:
        raise UnknownEntityError(
            f"there is no dataset {dataset!r} on the branch; datasets: {', '.join(specs) or 'none'}"
        )
    found: list[dict[str, Any]] = []
    for spec in branch.graph.datasets:
        if spec.expectations is not None and dataset in (None, spec.name):
            found += _counted(branch, spec, spec.expectations, hours, samples)
    return found


def _counted(
    branch: Branch, spec: DatasetSpec, suite: ExpectationSuite, hours: int, samples: int
) -> list[dict[str, Any]]:
    types = {field.name: field.dtype for field in spec.fields}
    compiled = CompiledSuite(suite, types)
    rows = branch.engine.rows(spec.name)
    times: list[int] = [row[spec.timestamp] for row in rows]  # type: ignore[misc]  # stored instants are ints
    checked = compiled.check({name: [row[name] for row in rows] for name in compiled.columns}, len(rows))
    windows = by_window(checked, np.array(times, np.int64))
    newest = max((start for _, start in windows), default=0)
    found = []
    for number, state in enumerate(states(spec.name, suite.version, compiled.checks, windows)):
        wanted = dict.fromkeys((*spec.keys, *compiled.checks[number].columns))
        failed = np.flatnonzero(checked[number].failed)[::-1][:samples].tolist()
        shown = [
            Failure(
                at=to_datetime(times[place]),
                values={
                    name: None if (value := rows[place][name]) is None else to_json(types[name])(value)
                    for name in wanted
                    if name != spec.timestamp
                },
            )
            for place in failed
        ]
        by_hour: dict[int, Counts] = {}
        for (place, start), counts in windows.items():
            if place == number and start > newest - hours * HOUR_US:
                hour = start - start % HOUR_US
                by_hour[hour] = by_hour.get(hour, Counts()) + counts
        series = [
            {"start": to_datetime(hour).isoformat(), "evaluated": counts.evaluated, "failed": counts.failed}
            for hour, counts in sorted(by_hour.items())
        ]
        samples_ = [{"at": one.at.isoformat(), "values": dict(one.values)} for one in shown]
        found.append({**state.as_json(), "samples": samples_, "series": series})
    return found
