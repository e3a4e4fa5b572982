"""The assets in a deployment: topics in Kafka, jobs in engines, indexes in servers."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from caraway.state.asset_store import wall_clock
from caraway.state.blueprints import AssetKind
from caraway.state.model import DesiredState, JobRecord, JobState

# A living engine stops a job that isn't needed any more within seconds, and reports that in Postgres. If nothing was
# reported on the job for this long, the engine has ended, and the job with it, so the job can be destroyed.
SILENT = timedelta(seconds=60)


class Deployed:
    """Creates and removes topics in Kafka; returns what jobs and indexes, which others create, still wait for."""

    def __init__(
        self,
        *,
        make_topics: Callable[[Iterable[str]], None],
        drop_topics: Callable[[Iterable[str]], None],
        job: Callable[[str], JobRecord | None],
        index_lag: Callable[[str], str],
        clock: Callable[[], datetime] = wall_clock,
    ) -> None:
        """Keep the functions and readers to work with.

        Args:
            make_topics: Creates those of the topics that don't exist.
            drop_topics: Removes those of the topics that exist.
            job: Returns the job of an id, with the last report of its engine; None if there is none.
            index_lag: Returns what an index waits for, "" if it has caught up with its topic.
            clock: Returns the time.
        """
        self._make_topics = make_topics
        self._drop_topics = drop_topics
        self._job = job
        self._index_lag = index_lag
        self._clock = clock

    def create(self, kind: AssetKind, names: Sequence[str]) -> Mapping[str, str]:
        """Create topics; for jobs and indexes, which engines and servers create, return what they wait for."""
        match kind:
            case AssetKind.TOPIC:
                self._make_topics(names)
                return dict.fromkeys(names, "")
            case AssetKind.JOB:
                return {name: unready(self._job(name)) for name in names}
            case AssetKind.INDEX:
                return {name: self._index_lag(name) for name in names}
            case AssetKind.INGEST | AssetKind.SINK:
                return dict.fromkeys(names, "")

    def destroy(self, kind: AssetKind, names: Sequence[str]) -> Mapping[str, str]:
        """Remove topics; for jobs, return why they may still write. Servers and engines remove what they have made."""
        match kind:
            case AssetKind.TOPIC:
                self._drop_topics(names)
                return dict.fromkeys(names, "")
            case AssetKind.JOB:
                return {name: unstopped(self._job(name), self._clock()) for name in names}
            case AssetKind.INDEX | AssetKind.INGEST | AssetKind.SINK:
                return dict.fromkeys(names, "")


def unready(job: JobRecord | None) -> str:
    """Return what a started job still waits for, "" if it has caught up with its inputs."""
    if job is None:
        return "the job isn't registered"
    match job.state:
        case JobState.RUNNING:
            lag = job.progress.get("lag_records")
            if lag is None:
                return "the job hasn't reported its progress yet"
            return f"the job is {lag} records behind" if lag else ""
        case JobState.FAILING:
            return f"the job fails: {job.error}"
        case JobState.PENDING | JobState.STARTING | JobState.STOPPED:
            return f"the job is {job.standstill}"


def unstopped(job: JobRecord | None, now: datetime) -> str:
    """Return why a job that is to end may still write; "" if it can't write any more."""
    never_began = job is None or (job.state is JobState.PENDING and job.attempts == 0)
    if never_began or job is None or job.state is JobState.STOPPED:
        return ""
    if job.desired is DesiredState.STOPPED and now - job.updated_at > SILENT:
        return ""
    return f"the job is {job.state}; its engine has to stop it"
