"""Courses: who hands in on time, who falls silent, and who still watches the lectures.

The features tell tutors whom to write to before the exam.
"""

from datetime import datetime
from typing import List, Optional

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, FirstK, LastK, Sum, dataset, field, pipeline
from caraway.dtypes import Continuous, Session, Window
from caraway.expr import col, now, when
from caraway.featuresets import feature as F
from caraway.featuresets import featureset
from caraway.lib import inputs

__owner__ = "tutors@college.example"
college = Webhook(name="college")
FOREVER = Continuous("forever")


@source(college.endpoint("assignments"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Assignments:
    assignment: str = field(key=True)
    course: str
    due: datetime
    published: datetime = field(timestamp=True)


@source(college.endpoint("submissions"), disorder="7d", cdc="append")
@dataset
class Submissions:
    student: int
    assignment: str
    points: Optional[int]
    at: datetime


@source(college.endpoint("videos"), disorder="7d", cdc="append")
@dataset
class Videos:
    student: int
    lecture: int
    at: datetime


@dataset(index=True)
class FirstTries:
    """The first submission of each assignment; what is handed in again doesn't count."""

    student: int = field(key=True)
    assignment: str = field(key=True)
    points: Optional[int]
    at: datetime

    @pipeline
    @inputs(Submissions)
    def first(cls, submissions: Dataset):
        return submissions.groupby("student", "assignment").first()


@dataset
class OnTime:
    student: int
    course: str
    points: Optional[int]
    late: bool
    at: datetime

    @pipeline
    @inputs(FirstTries, Assignments)
    def compare(cls, tries: Dataset, assignments: Dataset):
        return (
            tries.changelog(insert="handed_in")
            .filter(col("handed_in"))
            .join(assignments, how="inner", on=["assignment"], fields=["course", "due"])
            .assign(late=(col("at").dt.since(col("due"), unit="minute") > 0).astype(bool))
            .drop("handed_in", "assignment", "due")
        )


@dataset(index=True)
class Progress:
    student: int = field(key=True)
    course: str = field(key=True)
    handed_in: int
    points: int
    last_late: List[bool]
    first_points: List[int]
    at: datetime

    @pipeline
    @inputs(OnTime)
    def in_course(cls, tries: Dataset):
        return tries.groupby("student", "course").aggregate(
            [
                Count(window=FOREVER, into_field="handed_in"),
                Sum(of="points", window=FOREVER, into_field="points"),
                LastK(of="late", limit=3, dedup=False, window=FOREVER, into_field="last_late"),
                FirstK(of="points", limit=2, dedup=False, dropnull=True, window=FOREVER, into_field="first_points"),
            ]
        )


@dataset(index=True)
class Evenings:
    student: int = field(key=True)
    window: Window = field(key=True)
    lectures: int
    at: datetime

    @pipeline
    @inputs(Videos)
    def watch(cls, videos: Dataset):
        return videos.groupby("student", window=Session("1h 30m")).aggregate(
            lectures=Count(of="lecture", unique=True, approx=True)
        )


@dataset(index=True)
class Watching:
    student: int = field(key=True)
    evenings: int
    lectures_each: float
    at: datetime

    @pipeline
    @inputs(Evenings)
    def recent(cls, evenings: Dataset):
        events = evenings.changelog(delete="merged").filter(~col("merged"))
        return events.groupby("student").aggregate(
            evenings=Count(window=Continuous("14d")), lectures_each=Average(of="lectures", window=Continuous("14d"))
        )


@featureset
class Enrolment:
    student: int
    course: str
    handed_in: int = F(Progress.handed_in, default=0)
    points: int = F(Progress.points, default=0)
    last_late: List[bool] = F(Progress.last_late, default=[])
    first_points: List[int] = F(Progress.first_points, default=[])
    last_sign: Optional[datetime] = F(Progress.at)
    evenings: int = F(Watching.evenings, default=0)
    lectures_each: float = F(Watching.lectures_each, default=0.0)
    ever_late: bool = F(col("last_late").list.any())
    gain: int = F((col("first_points").list.at(1) - col("first_points").list.at(0)).fillnull(0))
    weeks_silent: int = F(now().dt.since(col("last_sign"), "week").fillnull(99))
    write_to: bool = F(
        when(col("handed_in") == 0)
        .then(col("evenings") == 0)
        .otherwise((col("weeks_silent") >= 2) | col("last_late").list.all())
    )


def _hand_in(student: int, assignment: str, points: int | None, time: str) -> dict:
    return {"student": student, "assignment": assignment, "points": points, "at": f"2026-02-{time}:00Z"}


def _video(student: int, lecture: int, time: str) -> dict:
    return {"student": student, "lecture": lecture, "at": f"2026-02-{time}:00Z"}


LOGS = [
    (
        "college",
        "assignments",
        [
            {
                "assignment": f"sheet{n}",
                "course": "algebra",
                "due": f"2026-02-{7 * n:02}T20:00:00Z",
                "published": "2026-02-01T00:00:00Z",
            }
            for n in (1, 2, 3)
        ],
    ),
    (
        "college",
        "submissions",
        [
            _hand_in(1, "sheet1", 6, "07T19:00"),
            _hand_in(1, "sheet1", 10, "08T19:00"),  # better, but again
            _hand_in(1, "sheet2", None, "14T21:00"),  # late, not marked
            _hand_in(1, "sheet3", 9, "21T10:00"),
            _hand_in(2, "sheet1", 3, "07T20:30"),  # late
        ],
    ),
    (
        "college",
        "videos",
        [
            _video(1, 1, "20T18:00"),
            _video(1, 2, "20T19:00"),
            _video(1, 2, "20T20:20"),
            _video(1, 3, "22T18:00"),
            _video(3, 1, "03T18:00"),
        ],
    ),
]
ASKS = [
    {
        # Student 1: three sheets with 6 and 9 points, one of them late. Two evenings of two lectures and of one.
        "at": "2026-02-23T00:00:00Z",
        "inputs": {"Enrolment.student": [1, 2, 3], "Enrolment.course": ["algebra"] * 3},
        "outputs": [
            "Enrolment.handed_in",
            "Enrolment.points",
            "Enrolment.last_late",
            "Enrolment.gain",
            "Enrolment.evenings",
            "Enrolment.lectures_each",
            "Enrolment.weeks_silent",
            "Enrolment.write_to",
        ],
        "expected": {
            "Enrolment.handed_in": [3, 1, 0],
            "Enrolment.points": [15, 3, 0],
            "Enrolment.last_late": [[False, True, False], [True], []],
            "Enrolment.gain": [3, 0, 0],
            "Enrolment.evenings": [2, 0, 0],
            "Enrolment.lectures_each": [1.5, 0.0, 0.0],
            "Enrolment.weeks_silent": [0, 2, 99],
            "Enrolment.write_to": [False, True, True],
        },
    },
    {
        # Two weeks on, the evening of the 20th is too long ago, for student 1 as well.
        "at": "2026-03-07T12:00:00Z",
        "inputs": {"Enrolment.student": [1], "Enrolment.course": ["algebra"]},
        "outputs": ["Enrolment.evenings", "Enrolment.ever_late", "Enrolment.write_to"],
        "expected": {"Enrolment.evenings": [1], "Enrolment.ever_late": [True], "Enrolment.write_to": [True]},
    },
    {
        "at": None,
        "inputs": {"Enrolment.student": [1, 2], "Enrolment.course": ["algebra", "algebra"]},
        "outputs": ["Enrolment.first_points", "Enrolment.last_late", "Enrolment.gain"],
        "expected": {
            "Enrolment.first_points": [[6, 9], [3]],
            "Enrolment.last_late": [[False, True, False], [True]],
            "Enrolment.gain": [3, 0],
        },
    },
]
