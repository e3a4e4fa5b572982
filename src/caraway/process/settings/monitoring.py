"""The settings of the watches, of alerts, and of what is reported to other systems."""

from typing import Annotated

from pydantic import Field

from caraway.process.settings.section import Section


class SkewSettings(Section):
    """The skew watch, which computes a sample of served features again from the archive.

    Attributes:
        enabled: False: nothing is computed again.
        rows_per_minute: The most rows of queries that are computed again in a minute; of more, some are drawn.
        seconds: The shortest pause between two passes. A pass takes all rows that have come.
        delay_seconds: Seconds after which a served row is computed again, so that records that came late are known.
        memory_mb: Features of a dataset whose records need more memory, in MiB, aren't computed again.
        kept_days: Days for which counts and samples of mismatches are kept.
    """

    enabled: bool = True
    rows_per_minute: Annotated[float, Field(gt=0)] = 600.0
    seconds: Annotated[float, Field(gt=0)] = 30.0
    delay_seconds: Annotated[float, Field(ge=0)] = 120.0
    memory_mb: Annotated[int, Field(ge=1)] = 512
    kept_days: Annotated[float, Field(gt=0)] = 30.0


class DriftSettings(Section):
    """The drift watch, which profiles served features by the hour and compares them with a reference.

    Attributes:
        enabled: False: nothing is profiled.
        seconds: The shortest pause between two passes. A pass takes all rows that have come, or 100,000 of them.
        hours: The hours that are compared for the metrics, up to now.
        false_alarms: The greatest probability that a comparison has any alarm though nothing has changed.
        kept_days: Days for which profiles are kept: eight are enough to compare a day with the one a week before.
    """

    enabled: bool = True
    seconds: Annotated[float, Field(gt=0)] = 60.0
    hours: Annotated[int, Field(ge=1, le=24 * 366)] = 24
    false_alarms: Annotated[float, Field(gt=0, lt=1)] = 0.001
    kept_days: Annotated[float, Field(gt=0)] = 8.0


class QualitySettings(Section):
    """The quality watch, which checks the rows of datasets against their expectations.

    Attributes:
        enabled: False: nothing is checked.
        seconds: Seconds after which a row is counted, if it came alone.
        kept_days: Days for which counts by time are kept, back from the newest row of a dataset.
    """

    enabled: bool = True
    seconds: Annotated[float, Field(gt=0)] = 10.0
    kept_days: Annotated[float, Field(gt=0)] = 30.0


class AlertSettings(Section):
    """Alerts, which are lines of the log and requests to a webhook.

    Attributes:
        webhook: The address to which alerts are sent in the form of Alertmanager's API, version 2, such as
            http://alertmanager:9093/api/v2/alerts; None: they are only logged.
    """

    webhook: str | None = None


class TracesSettings(Section):
    """Traces of requests by OpenTelemetry.

    Attributes:
        url: The address of a collector that takes OTLP over HTTP, such as http://localhost:4318/v1/traces; without it
            nothing is traced.
        share: The share of the requests that are traced, from 0 to 1. Callers may ask for more by `traceparent`.
        service: The name of this deployment in traces.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^/]+/.*$")] | None = None
    share: Annotated[float, Field(ge=0, le=1)] = 0.01
    service: Annotated[str, Field(min_length=1)] = "caraway"


class OpenLineageSettings(Section):
    """Events of OpenLineage, which tell a catalogue of data what is computed from what.

    Attributes:
        url: The address that takes events by `POST`, such as http://marquez:5000/api/v1/lineage; without it none are
            sent.
        api_key: The bearer token of the requests, if the receiver needs one.
        namespace: The name of this deployment in events.
    """

    url: Annotated[str, Field(pattern=r"^https?://[^/]+/.*$")] | None = Field(default=None, repr=False)
    api_key: Annotated[str, Field(pattern=r"^[\x21-\x7e]+$")] | None = Field(default=None, repr=False)
    namespace: Annotated[str, Field(min_length=1)] = "caraway"
