"""Tests of the metrics of several processes on one page."""

from pathlib import Path

from prometheus_client import Counter
from prometheus_client.parser import text_string_to_metric_families

from caraway.apps.server.figures import page, write_figures

COUNTED = Counter("caraway_test_figures", "Counted by a test.", ["what"])


def test_the_page_has_each_family_once_with_the_figures_of_all(tmp_path: Path) -> None:
    COUNTED.labels("a").inc(2)
    write_figures(tmp_path, 1)
    COUNTED.labels("a").inc(3)
    write_figures(tmp_path, 2)
    COUNTED.labels("a").inc(4)
    text = page(tmp_path).decode()
    families = list(text_string_to_metric_families(text))
    names = [family.name for family in families]
    assert len(names) == len(set(names))
    (found,) = [family for family in families if family.name == "caraway_test_figures"]
    assert {
        sample.labels["worker"]: sample.value for sample in found.samples if sample.name == "caraway_test_figures_total"
    } == {"1": 2, "2": 5, "writer": 9}


def test_a_process_that_counts_nothing_yet_is_not_on_it(tmp_path: Path) -> None:
    assert b'worker="writer"' in page(tmp_path)
    assert b'worker="1"' not in page(tmp_path)
