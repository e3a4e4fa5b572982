from dataclasses import replace

import pytest

from caraway.dtypes.types import FLOAT
from caraway.errors import CommitError
from caraway.graph.merging import merge
from caraway.graph.specs import DatasetSpec, FieldSpec, Graph, Metadata
from tests.unit.apps.server.control.graphs import HOUR_US, clicks, shopper, spend, users
from tests.unit.graph.building import check_told

EMPTY = Graph()
BRANCH = Graph(datasets=(clicks(), spend()), featuresets=(shopper("user", "spent", "big"),))


def test_a_full_commit_replaces_the_branch() -> None:
    given = Graph(datasets=(users(),))
    assert merge(BRANCH, given, incremental=False) == given


def test_an_incremental_commit_keeps_what_is_not_mentioned() -> None:
    merged = merge(BRANCH, Graph(datasets=(users(),)), incremental=True)
    assert [d.name for d in merged.datasets] == ["Clicks", "Spend", "Users"]
    assert merged.featuresets == BRANCH.featuresets


@pytest.mark.parametrize("incremental", [True, False])
def test_committing_the_same_again_changes_nothing(*, incremental: bool) -> None:
    assert merge(BRANCH, BRANCH, incremental=incremental) == BRANCH


@pytest.mark.parametrize("incremental", [True, False])
@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (clicks(history_us=2 * HOUR_US), "Clicks ... history ... was 1h, is now 2h"),
        (
            clicks(disorder_us=2 * HOUR_US),
            "Clicks ... disorder of source [Webhook: hook](endpoint=clicks): was 1h, is now 2h",
        ),
        (spend(above=2.0), "Spend ... pipeline 'sum_up' ... col('price') > 1.0 ... col('price') > 2.0"),
        (spend(window_us=2 * HOUR_US), "Spend ... pipeline 'sum_up' ... same text"),
        (
            replace(clicks(), fields=(*clicks().fields, FieldSpec(name="tax", dtype=FLOAT))),
            "Clicks ... field 'tax' ... was not there, is now float",
        ),
        (replace(clicks(), fields=clicks().fields[1:]), "Clicks ... field 'user' ... was str, is now not there"),
        (
            replace(clicks(), fields=(clicks().fields[1], clicks().fields[0], clicks().fields[2])),
            "Clicks ... order of the fields ... [user, price, at] ... [price, user, at]",
        ),
    ],
)
def test_a_changed_definition_needs_a_greater_version(changed: DatasetSpec, said: str, *, incremental: bool) -> None:
    given = replace(BRANCH, datasets=tuple(changed if d.name == changed.name else d for d in BRANCH.datasets))
    with pytest.raises(CommitError) as caught:
        merge(BRANCH, given, incremental=incremental)
    check_told(caught.value, f"{said} ... version is still 1 ... @dataset(version=2)")
    raised = replace(given, datasets=tuple(replace(d, version=2) for d in given.datasets))
    assert merge(BRANCH, raised, incremental=incremental) == raised


def test_all_faults_are_told_at_once() -> None:
    given = Graph(datasets=(clicks(history_us=1), spend(above=3.0)))
    with pytest.raises(CommitError) as caught:
        merge(BRANCH, given, incremental=True)
    check_told(caught.value, "'Clicks' ... 'Spend'")


@pytest.mark.spec("featuresets:5.1b:4")
def test_a_featureset_must_keep_its_features_in_an_incremental_commit() -> None:
    given = Graph(featuresets=(shopper("user", "big"),))
    with pytest.raises(CommitError, match=r"'Shopper'.*missing: spent"):
        merge(BRANCH, given, incremental=True)
    assert merge(BRANCH, given, incremental=False) == given


def test_a_featureset_may_grow() -> None:
    given = Graph(featuresets=(shopper("user", "spent", "big", "more"),))
    assert merge(BRANCH, given, incremental=True).featuresets == given.featuresets


def test_what_is_marked_deleted_goes() -> None:
    gone = replace(shopper("user"), metadata=Metadata(deleted=True))
    merged = merge(BRANCH, Graph(featuresets=(gone,)), incremental=True)
    assert merged.featuresets == ()
    assert merged.datasets == BRANCH.datasets


def test_a_new_branch_takes_any_version() -> None:
    given = Graph(datasets=(users(version=7),))
    assert merge(EMPTY, given, incremental=True) == given
