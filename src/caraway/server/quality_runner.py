"""The process of the quality watch, which a server starts when a dataset has expectations or is profiled."""

from collections.abc import Callable, Mapping

from typing_extensions import override

from caraway.children.forking import ForkServer
from caraway.expectations.counts import Counts
from caraway.expectations.suite import checks_of as parts_of
from caraway.quality.checks import branches_of, checks_of
from caraway.quality.metrics import DATASET_DRIFT_FIGURES, QUALITY_FIGURES, FieldDistance, Key
from caraway.quality.profiles import DatasetProfiles
from caraway.quality.store import QualityStore
from caraway.server.watch_runner import WatchRunner
from caraway.state.plans import Needed


class QualityRunner(WatchRunner):
    """Runs the quality watch while there are datasets with expectations or profiles."""

    def __init__(
        self,
        store: QualityStore,
        profiles: DatasetProfiles,
        needed: Callable[[], Needed | None],
        *,
        forks: ForkServer,
        enabled: bool,
        name: str,
        environment: Mapping[str, str],
    ) -> None:
        """Prepare; see `WatchRunner`. `needed` returns what the branches need; None before that is known."""
        super().__init__(
            "quality",
            store,
            forks=forks,
            program="caraway.quality",
            enabled=enabled,
            name=name,
            environment=environment,
        )
        self._counts = store
        self._profiles = profiles
        self._needed = needed

    @override
    def _show(self) -> None:
        # Without checks nothing is read from Postgres.
        needed = self._with_checks()
        QUALITY_FIGURES.set({} if needed is None else self._totals(needed))
        DATASET_DRIFT_FIGURES.set([] if needed is None else self._drift(needed))

    @override
    def _has_news(self) -> bool:
        return self._with_checks() is not None

    def _with_checks(self) -> Needed | None:
        """Return what the branches need, if any of their datasets has expectations or is profiled."""
        needed = self._needed()
        if needed is None or not any(planned.plan.checks for planned in needed.commits.values()):
            return None
        return needed

    def _drift(self, needed: Needed) -> list[FieldDistance]:
        checks, branches = checks_of(needed), branches_of(needed)
        profiled = [check_id for check_id in branches if checks[check_id].profiled]
        found = self._profiles.found(profiled) if profiled else {}
        return [
            (branch, checks[check_id].dataset.name, one)
            for check_id, each in found.items()
            for branch in branches[check_id]
            for one in each
        ]

    def _totals(self, needed: Needed) -> dict[Key, Counts]:
        checks, branches = checks_of(needed), branches_of(needed)
        totals = self._counts.totals(branches)
        return {
            (branch, checks[check_id].dataset.name, part.name): found.counts
            for check_id, names in branches.items()
            for number, part in enumerate(parts_of(checks[check_id].suite))
            if (found := totals.get((check_id, number))) is not None
            for branch in names
        }
