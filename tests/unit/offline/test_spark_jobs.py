"""The wait for an action of Spark, with a stand-in for the session."""

from threading import Event
from typing import Any

import pytest

from caraway.offline.spark import jobs
from caraway.offline.spark.jobs import waited


class Session:
    """A session whose action has no job when the first cancellation comes, as between two of its jobs."""

    def __init__(self) -> None:
        self.sparkContext = self
        self.asked, self.ended = Event(), Event()
        self.job: Event | None = None

    def cancelAllJobs(self) -> None:  # noqa: N802 (Spark's name)
        if self.job is not None:
            self.job.set()
        self.asked.set()

    def act(self) -> None:
        assert self.asked.wait(30)
        self.job = Event()
        if self.job.wait(5):
            self.ended.set()


def test_a_job_that_begins_after_the_cancellation_is_cancelled_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jobs, "LOOK_SECONDS", 0.01)
    session: Any = Session()
    assert waited(session, session.act, lambda: True) is None
    assert session.ended.is_set()


def test_the_result_of_a_job_is_returned_and_nothing_is_cancelled() -> None:
    session: Any = Session()
    assert waited(session, lambda: "done", lambda: False) == "done"
    assert not session.asked.is_set()
