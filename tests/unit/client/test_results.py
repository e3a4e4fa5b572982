# Checkers see classes where decorators make datasets and featuresets.
# mypy: disable-error-code="arg-type, list-item, type-arg"
import re
from typing import Any

import pandas as pd
import pytest

from caraway.client import CommitResult, LogResult
from caraway.errors import InvalidInputError, RemoteError
from caraway.graph.changes import Changes
from tests.unit.client.test_client import Pots, Server

FRAME = pd.DataFrame({"pot": [1, 2, 3, 4, 5, 6]})


def error(row: int, message: str = "expected int") -> dict[str, Any]:
    return {"row": row, "field": "pot", "message": message, "dataset": "Pots"}


CHUNKS = (
    {"accepted": 1, "rejected": 1, "errors": [error(1)], "warnings": ["fields ignored: colour"]},
    (422, {"accepted": 0, "rejected": 2, "errors": [error(0), error(1)], "err_msg": "none", "code": "invalid_input"}),
    {"accepted": 2, "rejected": 0, "errors": [], "warnings": ["fields ignored: colour"]},
)


def test_the_result_of_log_counts_the_rows_of_all_chunks() -> None:
    server = Server(*CHUNKS)
    result = server.client().log("web", "pots", FRAME, batch_size=2, strict=False)
    assert isinstance(result, LogResult)
    assert (result.accepted, result.rejected, result.chunks) == (3, 3, 3)
    # Row numbers are those of the frame, not of the chunk.
    assert [(row.row, row.field, row.dataset) for row in result.refused] == [
        (1, "pot", "Pots"),
        (2, "pot", "Pots"),
        (3, "pot", "Pots"),
    ]
    assert result.warnings == ("fields ignored: colour",)
    assert repr(result).startswith("LogResult(web/pots: 3 accepted, 3 rejected; row 1, pot: expected int")


def test_chunks_after_a_wholly_refused_one_are_sent() -> None:
    server = Server(*CHUNKS)
    with pytest.raises(InvalidInputError, match=r"took 3 of 6 rows.*\n.*row 1, pot") as raised:
        server.client().log("web", "pots", FRAME, batch_size=2)
    assert len(server.requests) == 3
    assert raised.value.result.rejected == 3  # type: ignore[attr-defined]


def test_an_error_in_between_says_what_was_logged_before() -> None:
    server = Server({"accepted": 2, "rejected": 0}, (404, {"err_msg": "no endpoint", "code": "unknown_entity"}))
    with pytest.raises(RemoteError, match="no endpoint") as raised:
        server.client().log("web", "pots", FRAME, batch_size=2)
    assert raised.value.__notes__ == [
        "Rows 2 to 5 of the frame weren't logged; before: LogResult(web/pots: 2 accepted, 0 rejected)"
    ]


def test_results_are_responses_of_both_styles() -> None:
    result = Server({"accepted": 6, "rejected": 0}).client().log("web", "pots", FRAME)
    assert result is not None
    assert (result.status_code, result["status_code"]) == (200, 200)
    assert result.json()["accepted"] == 6
    assert set(result) == {"status_code", "headers", "body"}


ANSWER = {
    "summary": ["committed: the branch holds 1 datasets\n"],
    "commit_id": "c1",
    "preview": False,
    "changes": {
        "datasets": {"created": ["Pots"], "changed": [], "removed": ["Cups"], "unchanged": []},
        "featuresets": {"created": [], "changed": ["Pot"], "removed": [], "unchanged": []},
        "features": {"created": [], "changed": [], "removed": [], "unchanged": ["Pot.wet"]},
        "indexes": {"created": ["Pots.12"], "unchanged": []},
        "systems": {"changed": ["Postgres bank"], "details": {"Postgres bank": ["port 1 → 2", "password changed"]}},
    },
    "jobs": [
        {
            "job_id": "Pots.p-1",
            "dataset": "Pots",
            "pipeline": "p",
            "mode": "micro-batch",
            "reason": "step transform needs Python",
            "deed": "start",
            "backfill_records": 5_000,
            "backfill_seconds": 0.05,
        }
    ],
}


def test_the_result_of_commit_has_the_changes(capsys: pytest.CaptureFixture[str]) -> None:
    result = Server(ANSWER).client().commit("m", [Pots])
    assert isinstance(result, CommitResult)
    assert (result.commit_id, result.preview) == ("c1", False)
    assert result.datasets == Changes(created=("Pots",), removed=("Cups",))
    assert result.featuresets.changed == ("Pot",)
    assert result.indexes.created == ("Pots.12",)
    assert result.systems == Changes(
        changed=("Postgres bank",), details={"Postgres bank": ("port 1 → 2", "password changed")}
    )
    assert "Postgres bank (port 1 → 2; password changed)" in result._repr_html_()
    assert [(job.action, job.mode, job.reason) for job in result.backfills] == [
        ("start", "micro-batch", "step transform needs Python")
    ]
    assert repr(result) == (
        "CommitResult(c1; datasets created: Pots; datasets removed: Cups; featuresets changed: Pot; "
        "systems changed: Postgres bank; jobs start: 1)"
    )
    assert result.json()["summary"] == list(result.summary)
    assert capsys.readouterr().out == "committed: the branch holds 1 datasets\n"


def test_fields_that_an_answer_lacks_are_empty() -> None:
    result = Server({"summary": ["ok\n"]}).client().commit("m", [Pots])
    assert (result.commit_id, result.jobs, bool(result.datasets)) == ("", (), False)


HOSTILE = "<script>alert('x')</script>&\""


def test_what_a_notebook_shows_is_escaped() -> None:
    refused = {"accepted": 0, "rejected": 1, "errors": [error(0, HOSTILE)], "warnings": [HOSTILE]}
    log = Server(refused).client().log(HOSTILE, HOSTILE, FRAME, strict=False)
    commit = Server(
        {
            **ANSWER,
            "commit_id": HOSTILE,
            "changes": {"datasets": {"created": [HOSTILE]}},
            "jobs": [ANSWER["jobs"][0] | {"dataset": HOSTILE, "pipeline": HOSTILE, "reason": HOSTILE}],  # type: ignore[index]
        }
    ).client()
    for shown in (log._repr_html_(), commit.commit("m", [Pots])._repr_html_()):  # type: ignore[union-attr]
        assert "<script" not in shown
        assert "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt;&amp;&quot;" in shown
        # The only attributes in the HTML are Caraway's own.
        assert set(re.findall(r"<[a-z]+ ([a-z]+)=", shown)) == {"style"}
