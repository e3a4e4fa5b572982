"""The rates that the console draws are those of the counters of the metrics, minute by minute."""

from prometheus_client import CollectorRegistry, Counter

from caraway.apps.server.rates import ERRORS, MEAN, QUERIES, ROWS, SLOWEST, Rates, extractions_of, rows_of
from caraway.dataplane.archive.served_metrics import Extractions


def test_rates_are_what_counters_grew_by() -> None:
    registry = CollectorRegistry()
    rows = Counter("caraway_source_dataset_counter", "", ["dataset_name", "metric"], registry=registry)
    errors = Counter("caraway_extract_features_error_counter", "", ["code"], registry=registry)
    queries = Extractions()
    registry.register(queries)
    rates = Rates(registry.collect)
    rows.labels("Pots", "msgs_processed").inc(7_000)
    assert rates.since_last(1_000.0) == {}
    rows.labels("Pots", "msgs_processed").inc(120)
    rows.labels("Pots", "schema_error").inc(5)
    rows.labels("Rules", "msgs_processed").inc(60)
    errors.labels("422").inc(6)
    for seconds in [0.002] * 98 + [0.04] * 2:
        queries.count(("State.mean",), "default", 3, seconds)
    assert rates.since_last(1_059.0) == {}
    found = rates.since_last(1_060.0)
    assert {name: round(found[name], 6) for name in (ROWS, QUERIES, ERRORS, MEAN, SLOWEST)} == {
        ROWS: 3.0,
        QUERIES: round(100 / 60, 6),
        ERRORS: 0.1,
        MEAN: 0.00276,
        SLOWEST: 0.05,
    }
    assert (found[rows_of("Pots")], found[rows_of("Rules")], found[extractions_of("State.mean")]) == (2.0, 1.0, 5.0)
    # Without queries there are no times of them, and their rate is zero.
    later = rates.since_last(1_130.0)
    assert (later[QUERIES], MEAN in later, SLOWEST in later) == (0.0, False, False)
    # A process that starts again counts from zero.
    assert Rates(list).since_last(1.0) == {}
    rates._collect = list
    assert rates.since_last(1_190.0)[ROWS] == 0.0
    # A clock that is set back only begins a new minute.
    assert rates.since_last(900.0) == {}
