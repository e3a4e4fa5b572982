"""The board and the alert rules: each metric and label that they name exists, and Prometheus accepts the rules."""

import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
import yaml
from prometheus_client import REGISTRY

from caraway.apps.server import surface
from caraway.offline.monitoring.figures import DATASET_DRIFT_FIGURES, SkewFigures
from caraway.offline.monitoring.quality.metrics import QualityFigures
from tests.markdown import DOCS

DEPLOY = DOCS.parent / "deploy"
RULES = DEPLOY / "prometheus" / "rules.yml"
BOARD = DEPLOY / "grafana" / "dashboards" / "caraway.json"
SUFFIXES = {"counter": ("_total",), "histogram": ("_bucket", "_count", "_sum"), "gauge": ("",)}
# The labels that Prometheus adds, that of a histogram's buckets, and that of the processes of a server. Prometheus
# calls the label `job` of a metric `exported_job`.
ADDED = {"job", "exported_job", "instance", "le", "worker"}
# A selector with its labels, such as `name{label="value"}`.
SELECTOR = re.compile(r"\b(caraway_[a-z_0-9]+)(?:\{([^}]*)\})?")
GROUPED = re.compile(r"\bby \(([^)]*)\)")


def labels_of_metrics() -> dict[str, set[str]]:
    """Return the labels of each series that a server has, by the name of the series."""
    assert surface.ENDPOINTS, "importing the surface registers all metrics of the server"
    found: dict[str, set[str]] = {}
    for collector in {*REGISTRY._collector_to_names, SkewFigures(), QualityFigures(), DATASET_DRIFT_FIGURES}:
        for family in getattr(collector, "describe", collector.collect)():
            declared = set(getattr(collector, "_labelnames", ())) | set(getattr(family, "_labelnames", ()))
            for suffix in SUFFIXES.get(family.type, ("",)):
                found[family.name + suffix] = declared | ADDED
    return found


KNOWN = labels_of_metrics()


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(RULES.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> Iterator[tuple[str, str]]:
    """Yield the expressions of rules and board, each with a name."""
    for rule in rules():
        yield rule.get("alert") or rule["record"], rule["expr"]
    board = orjson.loads(BOARD.read_bytes())
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            yield panel["title"], target["expr"]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["label"], variable["query"]


EXPRESSIONS = list(expressions())


def unknown(expression: str) -> set[str]:
    """Return the metrics and labels in an expression that no server has."""
    names = SELECTOR.findall(expression)
    missing = {name for name, _ in names if name not in KNOWN}
    labels = {label for name, _ in names for label in KNOWN.get(name, ())}
    for name, selector in names:
        missing |= {
            f"{name}.{label}" for label in re.findall(r"(\w+)\s*[=!]", selector) if label not in KNOWN.get(name, ())
        }
    if names:
        grouped = {label.strip() for group in GROUPED.findall(expression) for label in group.split(",")}
        missing |= grouped - labels
    return missing


@pytest.mark.parametrize(("name", "expression"), EXPRESSIONS)
def test_metrics_and_labels_exist(name: str, expression: str) -> None:
    assert unknown(expression) == set()


def test_the_check_finds_what_does_not_exist() -> None:
    assert unknown('rate(caraway_request_counter{code="200"}[5m])') == {
        "caraway_request_counter",
        "caraway_request_counter.code",
    }
    assert unknown('sum by (target, reason) (caraway_request_counter_total{status="200"})') == {
        "caraway_request_counter_total.status",
        "reason",
    }
    assert len(EXPRESSIONS) > 40


def test_each_alert_says_what_happens_and_the_page_what_to_do() -> None:
    page = (DOCS / "operate" / "observability.md").read_text()
    for rule in rules():
        if alert := rule.get("alert"):
            assert rule["labels"]["severity"] in {"page", "ticket"}
            assert rule["annotations"]["summary"].endswith(".") or "`" in rule["annotations"]["summary"]
            assert f"`{alert}`" in page


def test_files_that_name_each_other_exist() -> None:
    compose = yaml.safe_load((DEPLOY / "compose.yaml").read_text())
    mounted = [volume.split(":")[0] for service in compose["services"].values() for volume in service["volumes"]]
    assert all((DEPLOY / path).exists() for path in mounted if path.startswith("./"))
    prometheus = yaml.safe_load((RULES.parent / "prometheus.yml").read_text())
    assert [RULES.parent / name for name in prometheus["rule_files"]] == [RULES]
    source = yaml.safe_load((DEPLOY / "grafana/provisioning/datasources/prometheus.yaml").read_text())
    assert source["datasources"][0]["url"] == "http://prometheus:9090"


def test_no_container_runs_as_root_or_with_a_password_that_everybody_knows() -> None:
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    for name, service in services.items():
        # Grafana's image has a user of its own.
        assert not str(service.get("user", "grafana")).startswith(("root", "0")), name
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
    # Without these variables the containers don't start.
    assert services["prometheus"]["user"].startswith("${CARAWAY_TOKEN_USER:?")
    assert services["grafana"]["environment"]["GF_SECURITY_ADMIN_PASSWORD"].startswith("${GRAFANA_PASSWORD:?")


def promtool(*arguments: str) -> None:
    tool = shutil.which("promtool")
    assert tool is not None, "promtool isn't installed (Debian: apt-get install prometheus)"
    done = subprocess.run([tool, *arguments], cwd=RULES.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.full(reason="promtool, of Debian's package prometheus")
def test_prometheus_accepts_rules_and_board(tmp_path: Path) -> None:
    promtool("check", "rules", RULES.name)
    promtool("check", "config", "--syntax-only", "prometheus.yml")
    promtool("test", "rules", "rules_test.yml")
    of_board = [
        {"record": f"board:expression{number}", "expr": expression.replace("$__rate_interval", "5m")}
        for number, (_, expression) in enumerate(EXPRESSIONS)
        if not expression.startswith("label_values")
    ]
    file = tmp_path / "board.yml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "board", "rules": of_board}]}))
    promtool("check", "rules", str(file))
