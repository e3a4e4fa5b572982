"""Windows of comparisons, the thresholds of features, and the distances as metrics."""

from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from caraway.compute.profiles.kinds import Kind
from caraway.dtypes.types import FloatType, OptionalType, StringType
from caraway.graph.drift import Drift
from caraway.graph.specs import FeaturesetSpec, FeatureSpec, Graph, Metadata
from caraway.offline.monitoring.drift.reports import Against, features_of, window_of_last_hours
from caraway.offline.monitoring.figures import FEATURE_DRIFT, DriftFigures, of_features
from caraway.state.profiles import Found

moments = st.datetimes(datetime(2020, 1, 1), datetime(2030, 1, 1), timezones=st.just(UTC))  # noqa: DTZ001


@given(moments, st.integers(1, 24 * 366), st.sampled_from([Against.PREVIOUS, Against.DAY, Against.WEEK]))
def test_a_window_and_the_one_it_is_compared_with_are_alike_and_apart(
    now: datetime, hours: int, against: Against
) -> None:
    window = window_of_last_hours(now, hours)
    assert window.since <= now < window.until
    assert window.until - window.since == timedelta(hours=hours)
    before = window.before(against)
    assert before.until - before.since == window.until - window.since
    assert before.until <= window.since
    step = {Against.PREVIOUS: hours, Against.DAY: 24, Against.WEEK: 168}[against]
    apart = window.since - before.since
    # It is a whole number of days or weeks earlier, and the latest that has no hour in common.
    assert apart % timedelta(hours=step) == timedelta()
    assert apart - timedelta(hours=step) < window.until - window.since


def test_thresholds_of_a_feature_go_before_those_of_its_featureset_and_the_defaults() -> None:
    graph = Graph(
        datasets=(),
        featuresets=(
            FeaturesetSpec(
                name="A",
                features=(
                    FeatureSpec(name="x", dtype=FloatType(), metadata=Metadata(drift=Drift(psi=1.0))),
                    FeatureSpec(name="y", dtype=OptionalType(of=StringType())),
                ),
                extractors=(),
                metadata=Metadata(drift=Drift(psi=2.0, ks=0.4)),
            ),
        ),
    )
    expected = {
        "A.x": (Kind.NUMBER, Drift(psi=1.0, ks=0.4, mean=0.5, missing=0.05, categories=0.02)),
        "A.y": (Kind.CATEGORY, Drift(psi=2.0, ks=0.4, mean=0.5, missing=0.05, categories=0.02)),
    }
    assert features_of(graph) == features_of(graph, "A") == expected
    assert features_of(graph, "A.y") == {"A.y": expected["A.y"]}
    for unknown in ("A.z", "A.", "B", ""):
        assert features_of(graph, unknown) == {}


def test_metrics_show_each_distance_and_whether_a_feature_has_drifted() -> None:
    figures = DriftFigures(FEATURE_DRIFT)
    figures.set(
        of_features(
            [
                Found(scope="main", column="A.x", distance="psi", value=0.3, drifted=True),
                Found(scope="main", column="A.x", distance="ks", value=0.1, drifted=False),
                Found(scope="main", column="A.y", distance="psi", value=0.0, drifted=False),
            ]
        )
    )
    samples = [(sample.name, sample.labels, sample.value) for family in figures.collect() for sample in family.samples]
    x, y = ({"branch": "main", "featureset": "A", "feature": name} for name in "xy")
    assert samples == [
        ("caraway_drift_distance", {**x, "distance": "psi"}, 0.3),
        ("caraway_drift_distance", {**x, "distance": "ks"}, 0.1),
        ("caraway_drift_distance", {**y, "distance": "psi"}, 0.0),
        ("caraway_drift_drifted", x, 1.0),
        ("caraway_drift_drifted", y, 0.0),
    ]
