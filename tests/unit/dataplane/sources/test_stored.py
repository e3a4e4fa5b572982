"""Stores of objects: files that are read by ranges, and the addresses of stores."""

import io
import logging
from contextlib import nullcontext

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from caraway.dataplane.sources.files import stored
from caraway.dataplane.sources.files.endpoints import GOOGLE_EMULATOR, azure_address, google_address
from caraway.dataplane.sources.files.stored import opened_object
from caraway.graph import connectors
from caraway.graph.connectors import FilesConnector
from caraway.graph.systems import AzureSystem, GCSSystem
from tests.effort import examples

# How many bytes are read, or the place to go to, as `seek` takes it.
STEPS = st.one_of(
    st.none() | st.integers(-1, 70),
    st.tuples(st.integers(0, 60), st.just(0)) | st.tuples(st.integers(-5, 0), st.just(2)),
)


@given(content=st.binary(max_size=50), steps=st.lists(STEPS, max_size=12), chunk=st.integers(1, 16))
@settings(max_examples=examples(300))
def test_an_object_reads_like_a_file(content: bytes, steps: list[int | tuple[int, int] | None], chunk: int) -> None:
    asked: list[tuple[int, int]] = []

    def fetch(at: int, length: int) -> bytes:
        asked.append((at, length))
        return content[at : at + length]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stored, "CHUNK", chunk)
        opened = opened_object(len(content), fetch, nullcontext)
    oracle = io.BytesIO(content)
    for step in steps:
        if not isinstance(step, tuple):
            assert opened.read(step) == oracle.read(step)
        elif step[1] == 0 or len(content) + step[0] >= 0:
            assert opened.seek(*step) == oracle.seek(*step)
        assert opened.tell() == oracle.tell()
    # No request is for bytes that aren't there.
    assert all(length > 0 and at + length <= len(content) for at, length in asked)


def test_a_short_answer_is_an_error() -> None:
    opened = opened_object(10, lambda at, length: b"123", nullcontext)
    with pytest.raises(OSError, match="the answer has 3 bytes instead of 10"):
        opened.read()


@pytest.mark.parametrize("format_name", ["json", "delta", "iceberg"])
def test_a_server_without_the_library_of_a_store_names_the_extra(
    monkeypatch: pytest.MonkeyPatch, format_name: str
) -> None:
    azure = AzureSystem(name="lake", account_name="hives")
    systems: dict[str, GCSSystem | AzureSystem] = {"gcs": GCSSystem(name="lake"), "azure": azure}
    for extra, system in systems.items():
        connector = FilesConnector(system=system, container="raw", prefix="raw", format=format_name)
        assert connector.unreadable() == ""
        with monkeypatch.context() as patch:
            patch.setattr(connectors, "is_installed", lambda module: module == "pyiceberg")
            assert connector.unreadable().endswith(f"install it there with: pip install 'caraway[{extra}]'")


def test_requests_to_azure_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    pytest.importorskip("caraway.dataplane.sources.files.azure_store")
    with caplog.at_level(logging.INFO):
        logging.getLogger("azure.core.pipeline.policies.http_logging_policy").info("Request headers: ...")
    assert not caplog.records


def test_addresses_are_those_that_emulators_and_other_clouds_have() -> None:
    assert azure_address("hives", None) == "https://hives.blob.core.windows.net"
    assert azure_address("hives", "https://hives.blob.core.usgovcloudapi.net") == (
        "https://hives.blob.core.usgovcloudapi.net"
    )
    assert azure_address("hives", "http://azurite:10000") == "http://azurite:10000/hives"
    assert azure_address("hives", "http://azurite:10000/hives") == "http://azurite:10000/hives"
    assert google_address(None, {}) is None
    assert google_address("http://gcs:4443/", {GOOGLE_EMULATOR: "other:1"}) == "http://gcs:4443"
    assert google_address(None, {GOOGLE_EMULATOR: "gcs:4443"}) == "http://gcs:4443"
    assert google_address(None, {GOOGLE_EMULATOR: "https://gcs"}) == "https://gcs"
