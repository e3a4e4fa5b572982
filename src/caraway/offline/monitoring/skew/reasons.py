"""The reasons for which a value that is computed again differs from the one that was served.

The reasons are tried one after the other. The first one that explains a value is its reason:

1. The value is computed twice. If the two differ, an extractor isn't deterministic.
2. It is computed from what had been ingested when it was served. If that is the served value, other records came later.
3. The same with what had been ingested a little earlier. If that is the served value, the index hadn't got the newest
   records yet.
4. The text of an extractor uses a clock or draws numbers.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from caraway.compute.query.model import PythonStep
from caraway.offline.monitoring.skew.code import may_vary
from caraway.offline.monitoring.skew.recomputing import (
    CommitQueries,
    Failure,
    Question,
    Recomputed,
    json_text,
    recompute,
)
from caraway.offline.monitoring.skew.sampling import ServedRow
from caraway.offline.reader import SeriesReader
from caraway.state.findings import Finding

# The lags of an index behind the answer, in microseconds, with which values are computed again. An event is usually in
# the index within 20 ms. At the longest lag, log requests are about to be refused.
LAGS_US = (2_000, 10_000, 50_000, 200_000, 1_000_000, 5_000_000, 30_000_000, 300_000_000)
# A query as of now is answered within this many microseconds (a server gives a query up after 30 s). If a row's time is
# further from the time of its answer, the caller chose the row's time.
NOW_US = 60_000_000
# Rows whose times were chosen by callers are grouped by the distance between this time and the time of the answer. At
# most this many groups, the largest ones, are explained, since each of them is computed by itself.
MAX_SHIFTS = 8

# The number of a row, and an output.
Place = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Compared:
    """The rows of one query, with what was computed again.

    Attributes:
        question: The names of inputs and outputs.
        rows: The rows.
        recomputed: The values of each row, computed from all that is known now.
    """

    question: Question
    rows: Sequence[ServedRow]
    recomputed: Sequence[Recomputed]

    def differing(self) -> list[Place]:
        """Return the places of the values that aren't those that were served."""
        return [
            (number, name)
            for number, (row, values) in enumerate(zip(self.rows, self.recomputed, strict=True))
            if not isinstance(values, Failure)
            for name in self.question.outputs
            if values[name] != json_text(row.outputs[name])
        ]


def reasons(queries: CommitQueries, compared: Compared, reader: SeriesReader) -> dict[Place, Finding]:
    """Return the reason of each value that differs.

    Args:
        queries: The queries of the commit that served the rows.
        compared: The rows.
        reader: The reader by which they were computed again.

    Raises `UnavailableError` if the broker or the object store doesn't answer.
    """
    left = compared.differing()
    if not left:
        return {}
    found: dict[Place, Finding] = {}
    code = _extractors(queries, compared.question, {name for _, name in left}, reader)
    if any(code.values()):
        again = recompute(queries.compiled(compared.question, reader), compared.rows)
        varying = _varying(compared, again)
        found |= {place: Finding.NON_DETERMINISTIC for place in left if place[1] in varying}
    found |= _known_earlier(queries, compared, [place for place in left if place not in found])
    for place in left:
        if place not in found:
            varies = any(may_vary(text) for text in code[place[1]])
            found[place] = Finding.NON_DETERMINISTIC if varies else Finding.UNKNOWN
    return found


def knowledge_us(row: ServedRow) -> int:
    """Return the time up to which records had been ingested that a served row could see, in microseconds."""
    as_of_now = 0 <= row.served_us - row.at_us <= NOW_US
    return row.at_us if as_of_now else row.served_us


def _varying(compared: Compared, again: Sequence[Recomputed]) -> frozenset[str]:
    """Return the outputs that have different values, in some row, when they are computed twice."""
    return frozenset(
        name
        for one, other in zip(compared.recomputed, again, strict=True)
        if not isinstance(one, Failure)
        for name in compared.question.outputs
        if isinstance(other, Failure) or one[name] != other[name]
    )


def _known_earlier(queries: CommitQueries, compared: Compared, left: Sequence[Place]) -> dict[Place, Finding]:
    """Return the places whose served values are those of what had been ingested by then, or a little earlier."""
    found: dict[Place, Finding] = {}
    shifts: dict[int, list[Place]] = {}
    for number, name in left:
        row = compared.rows[number]
        shifts.setdefault(knowledge_us(row) - row.at_us, []).append((number, name))
    for shift_us in sorted(shifts, key=lambda shift_us: -len(shifts[shift_us]))[:MAX_SHIFTS]:
        for lag_us in (0, *LAGS_US):
            waiting = [place for place in shifts[shift_us] if place not in found]
            if not waiting:
                break
            same = _agreeing(queries, compared, waiting, queries.reader_then(lag_us - shift_us))
            found |= dict.fromkeys(same, Finding.NOT_INDEXED if lag_us else Finding.LATE_DATA)
    return found


def _agreeing(queries: CommitQueries, compared: Compared, places: Sequence[Place], reader: SeriesReader) -> list[Place]:
    """Return the places whose served values are computed by a reader."""
    names = tuple(dict.fromkeys(name for _, name in places))
    numbers = list(dict.fromkeys(number for number, _ in places))
    plan = queries.compiled(Question(compared.question.inputs, names), reader)
    rows = [compared.rows[number] for number in numbers]
    values = dict(zip(numbers, recompute(plan, rows), strict=True))
    return [
        (number, name)
        for number, name in places
        if not isinstance(known := values[number], Failure)
        and known[name] == json_text(compared.rows[number].outputs[name])
    ]


def _extractors(
    queries: CommitQueries, question: Question, names: Collection[str], reader: SeriesReader
) -> Mapping[str, list[str]]:
    """Return the texts of the functions by which each output is computed."""
    return {
        name: [
            _text(queries, step)
            for step in queries.compiled(Question(question.inputs, (name,)), reader).plan.steps
            if isinstance(step, PythonStep)
        ]
        for name in names
    }


def _text(queries: CommitQueries, step: PythonStep) -> str:
    extractors = queries.catalog.featuresets[step.featureset].extractors
    return next(str(getattr(e, "source_code", "")) for e in extractors if e.name == step.extractor)
