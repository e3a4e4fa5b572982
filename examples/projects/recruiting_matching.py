"""Jobs: whether an applicant has the skills of a job, and whether the employer ever answers.

The features order the jobs that somebody is shown, and remind employers who keep people waiting.
"""

from datetime import datetime
from typing import List, Optional

import pandas as pd

from caraway.connectors import Webhook, source
from caraway.datasets import Average, Count, Dataset, Distinct, Max, dataset, field, pipeline
from caraway.dtypes import Continuous, struct
from caraway.expr import col, var, when
from caraway.featuresets import extractor, featureset
from caraway.featuresets import feature as F
from caraway.lib import includes, inputs, outputs

__owner__ = "matching@jobs.example"
jobs = Webhook(name="jobs")


@struct
class Skill:
    name: str
    years: Optional[int]


@source(jobs.endpoint("openings"), disorder="1d", cdc="upsert")
@dataset(index=True)
class Openings:
    opening: int = field(key=True)
    employer: str
    needs: List[str]
    closed: bool
    changed: datetime


@source(jobs.endpoint("people"), disorder="1d", cdc="upsert")
@dataset(index=True)
class People:
    person: int = field(key=True, erase_key=True)
    skills: List[Skill]
    changed: datetime


@source(jobs.endpoint("applications"), disorder="7d", cdc="upsert")
@dataset(index=True)
class Applications:
    application: int = field(key=True)
    person: int
    opening: int
    sent: datetime
    answered: Optional[datetime]
    changed: datetime = field(timestamp=True)


@dataset
class Letters:
    """Each application and each answer, with the employer."""

    person: int
    employer: str
    needs: List[str]
    waited_h: Optional[int]
    changed: datetime

    @pipeline
    @inputs(Applications, Openings)
    def exchanged(cls, applications: Dataset, openings: Dataset):
        return (
            applications.changelog(delete="old")
            .filter(~col("old"))
            .join(openings, how="inner", on=["opening"], fields=["employer", "needs"])
            .assign(waited_h=col("answered").dt.since(col("sent"), unit="hour").astype(Optional[int]))
            .select(columns=["person", "employer", "needs", "waited_h"])
        )


@dataset(index=True)
class Employers:
    employer: str = field(key=True)
    answers: int
    waited_h: Optional[float]
    longest_h: int
    people: int
    changed: datetime

    @pipeline
    @inputs(Letters)
    def manners(cls, letters: Dataset):
        quarter = Continuous("13w")
        return letters.groupby("employer").aggregate(
            answers=Count(of="waited_h", dropnull=True, window=quarter),
            waited_h=Average(of="waited_h", default=None, window=quarter),
            longest_h=Max(of="waited_h", default=0, window=quarter),
            people=Count(of="person", unique=True, approx=True, window=quarter),
        )


@dataset(index=True)
class Wishes:
    """What somebody applied for lately, by the skills that were asked for."""

    person: int = field(key=True)
    needs: List[Optional[str]]
    changed: datetime

    @pipeline
    @inputs(Letters)
    def wanted(cls, letters: Dataset):
        each = letters.filter(col("waited_h").isnull()).explode("needs")
        return each.groupby("person").aggregate(needs=Distinct(of="needs", unordered=True, window=Continuous("4w")))


def fold(names):
    return {name.casefold() for name in names}


@featureset
class Person:
    # who looks for a job
    person: int
    skills: List[Skill] = F(People.skills, default=[])
    names: List[str] = F(col("skills").list.map("s", var("s").struct.get("name")))
    seasoned: List[Skill] = F(col("skills").list.filter("s", var("s").struct.get("years").fillnull(0) >= 3))
    wishes: List[Optional[str]] = F(Wishes.needs, default=[])
    years: int = F(col("skills").list.map("s", var("s").struct.get("years").fillnull(0)).list.sum())
    has_profile: bool = F((col("skills").list.len() > 0) & (col("wishes").list.len() > 0)).meta(
        description="is left for old clients", deprecated=True
    )


@featureset
class Match:
    opening: int
    employer: str = F(Openings.employer, default="?")
    needs: List[str] = F(Openings.needs, default=[])
    closed: bool = F(Openings.closed, default=True)
    waited_h: Optional[float] = F(Employers.waited_h)
    people: int = F(Employers.people, default=0)
    answers: int = F(Employers.answers, default=0)
    asks_python: bool = F(col("needs").list.contains("python"))
    fit: float
    missing: List[str]
    polite: Optional[bool] = F(when(col("people") > 0).then(col("waited_h") <= 48.0).otherwise(None))
    show: bool = F(~col("closed") & (col("fit") >= 0.5) & col("polite").fillnull(True))

    @extractor
    @includes(fold)
    @inputs(Person.names, "needs")
    @outputs("fit", "missing")
    def compare(cls, ts, names, needs):
        rows = [(fold(need), fold(have)) for have, need in zip(names, needs)]
        missing = [sorted(need - have) for need, have in rows]
        fit = [len(need & have) / len(need) if need else 0.0 for need, have in rows]
        return pd.DataFrame({"fit": pd.Series(fit, dtype=float), "missing": pd.Series(missing, dtype=object)})


def _application(application: int, person: int, opening: int, sent: str, answered: str | None = None) -> dict:
    row = {"application": application, "person": person, "opening": opening, "sent": f"2026-01-{sent}:00Z"}
    return {**row, "answered": answered and f"2026-01-{answered}:00Z", "changed": f"2026-01-{answered or sent}:00Z"}


def _opening(opening: int, employer: str, needs: list[str]) -> dict:
    return {
        "opening": opening,
        "employer": employer,
        "needs": needs,
        "closed": False,
        "changed": "2026-01-01T00:00:00Z",
    }


LOGS = [
    (
        "jobs",
        "openings",
        [_opening(1, "mill", ["Python", "SQL"]), _opening(2, "mill", ["python"]), _opening(3, "shop", ["till"])],
    ),
    (
        "jobs",
        "people",
        [
            {
                "person": 7,
                "skills": [{"name": "python", "years": 5}, {"name": "Till", "years": None}],
                "changed": "2026-01-02T00:00:00Z",
            }
        ],
    ),
    (
        "jobs",
        "applications",
        [
            _application(1, 7, 1, "05T08:00"),
            _application(1, 7, 1, "05T08:00", "08T10:00"),
            _application(2, 8, 2, "05T09:00"),
            _application(2, 8, 2, "05T09:00", "06T11:00"),
            _application(3, 8, 3, "05T09:30"),
        ],
    ),
]
ASKS = [
    {
        # The mill took 74 and 26 hours to answer; the shop hasn't answered yet.
        "at": "2026-01-09T00:00:00Z",
        "inputs": {"Person.person": [7, 7, 7, 8], "Match.opening": [1, 2, 3, 9]},
        "outputs": [
            "Match.fit",
            "Match.missing",
            "Match.waited_h",
            "Match.people",
            "Match.asks_python",
            "Match.polite",
            "Match.show",
        ],
        "expected": {
            "Match.fit": [0.5, 1.0, 1.0, 0.0],
            "Match.missing": [["sql"], [], [], []],
            "Match.waited_h": [50.0, 50.0, None, None],
            "Match.people": [2, 2, 1, 0],
            "Match.asks_python": [False, True, False, False],
            "Match.polite": [False, False, None, None],
            "Match.show": [False, False, True, False],
        },
    },
    {
        "at": "2026-01-07T00:00:00Z",
        "inputs": {"Person.person": [7, 9], "Match.opening": [1, 2]},
        "outputs": [
            "Match.answers",
            "Match.polite",
            "Person.seasoned",
            "Person.years",
            "Person.wishes",
            "Person.has_profile",
        ],
        "expected": {
            "Match.answers": [1, 1],
            "Match.polite": [True, True],
            "Person.seasoned": [[{"name": "python", "years": 5}], []],
            "Person.years": [5, 0],
            "Person.wishes": [["Python", "SQL"], []],
            "Person.has_profile": [True, False],
        },
    },
    {
        "at": None,
        "inputs": {"Person.person": [7, 9], "Match.opening": [3, 9]},
        "outputs": ["Person.names", "Match.employer", "Match.closed", "Match.fit"],
        "expected": {
            "Person.names": [["python", "Till"], []],
            "Match.employer": ["shop", "?"],
            "Match.closed": [False, True],
            "Match.fit": [1.0, 0.0],
        },
    },
]
