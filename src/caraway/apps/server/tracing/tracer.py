"""The tracer that the settings ask for."""

from importlib import import_module

from caraway.apps.server.tracing.spans import Tracer
from caraway.process.settings.errors import ConfigurationError
from caraway.process.settings.monitoring import TracesSettings


def tracer_of(settings: TracesSettings) -> Tracer | None:
    """Return the tracer, None if no address of a collector is set.

    Raises `ConfigurationError` if OpenTelemetry isn't installed.
    """
    if settings.url is None:
        return None
    try:
        module = import_module("caraway.apps.server.tracing.otel")
    except ImportError as error:
        raise ConfigurationError(
            f"traces.url: OpenTelemetry isn't installed ({error}): pip install caraway[otel]"
        ) from error
    made: Tracer = module.OtelTracer(settings.url, settings.share, settings.service)
    return made
