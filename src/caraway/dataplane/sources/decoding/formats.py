"""The choice of the decoder for a format, and the decoder of JSON."""

from collections.abc import Sequence
from importlib import import_module

from typing_extensions import override

from caraway.dataplane.sources.decoding.decoder import Decoder
from caraway.dataplane.sources.decoding.json_objects import decode_json
from caraway.dataplane.sources.decoding.registry import Registry, Resolve
from caraway.errors import DefinitionError, UnavailableError
from caraway.graph.systems import RegistryFormat, SchemaRegistry

# The module and class that decode each format of a registry, and the library that they need. The module is imported
# only if a source has the format, since the library is an extra.
_REGISTRY_DECODERS = {
    RegistryFormat.AVRO: ("avro", "AvroDecoder", "fastavro"),
    RegistryFormat.PROTOBUF: ("protobuf", "ProtobufDecoder", "grpc_tools"),
}


class JsonDecoder(Decoder):
    """Decodes JSON objects."""

    @override
    def decode(self, values: Sequence[bytes]) -> tuple[list[object], dict[int, str]]:
        """Return rows and faults; see `Decoder.decode`."""
        return decode_json(values)

    @override
    def close(self) -> None:
        """Do nothing, since there is no connection."""


def decoder_of(format: str | SchemaRegistry | None, resolve: Resolve, *, ca_file: str = "") -> Decoder:  # noqa: A002
    """Return the decoder of a connector's format.

    Args:
        format: "json" or None for JSON, or Avro or Protobuf with the registry of their schemas.
        resolve: Returns the values of secrets.
        ca_file: A file in PEM with the certificate authorities by which the registry is verified; empty for those of
            the system.

    Raises:
        UnavailableError: The library that the format needs isn't installed.
    """
    if format is None or format == "json":
        return JsonDecoder()
    if isinstance(format, str):
        raise DefinitionError(f'the format is "json", Avro(...) or Protobuf(...), not {format!r}')
    module, name, library = _REGISTRY_DECODERS[format.format]
    try:
        made = getattr(import_module(f"caraway.dataplane.sources.decoding.{module}"), name)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != library:
            raise
        raise UnavailableError(
            f"records in {module} need the library {library}, which isn't installed; pip install caraway[{module}]"
        ) from error
    decoder: Decoder = made(Registry(format, resolve, ca_file=ca_file))
    return decoder
