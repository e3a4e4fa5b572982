"""Tests of Iceberg catalogs: what they and their tables say has an effect only if it is known to be harmless."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import boto3
import httpx2
import pyiceberg.catalog
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import RESTError
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.utils.config import Config

from caraway.dataplane.objects.iceberg import GuardedFiles, open_catalog
from caraway.errors import UnavailableError
from caraway.graph.systems import IcebergSystem
from tests.services.hostile import Heard, http_service, table_answer
from tests.services.moto import running_moto

KEYS = {"s3.access-key-id": "vended", "s3.secret-access-key": "vended-secret", "s3.session-token": "vended-token"}
PLACE = "s3://lake/tables/bees"


def opened(catalog: Heard, **fields: Any) -> Table:
    system = IcebergSystem(name="lake", uri=catalog.address, **fields)
    return open_catalog(system, str, local_folders=["/nowhere"]).load_table(("ns", "bees"))


def answered(
    *, defaults: Mapping[str, Any] = {}, overrides: Mapping[str, Any] = {}, table: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    found = table_answer(f"{PLACE}/list.avro", {}) if table is None else table
    return {"/v1/config": {"defaults": defaults, "overrides": overrides}, "/tables/bees": found}


@pytest.fixture
def store() -> Iterator[str]:
    """Yield the address of a server that speaks S3's protocol."""
    with running_moto() as address:
        httpx2.post(f"{address}/moto-api/reset").raise_for_status()
        yield address


@pytest.mark.parametrize("way", ["config of the table", "storage credentials", "config of the catalog"])
def test_files_are_read_with_the_credentials_that_an_honest_catalog_hands_out(
    store: str, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name, raising=False)
    client = boto3.client(
        "s3", endpoint_url=store, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    client.create_bucket(Bucket="lake", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    client.put_object(Bucket="lake", Key="tables/bees/x", Body=b"honey")
    given = {**KEYS, "s3.endpoint": store, "client.region": "eu-west-1", "s3.force-virtual-addressing": "false"}
    table = table_answer(f"{PLACE}/list.avro", {}, config=given if way == "config of the table" else {})
    if way == "storage credentials":
        other = {"prefix": "s3://lake", "config": {**given, "s3.access-key-id": "of-another-prefix"}}
        table["storage-credentials"] = [other, {"prefix": PLACE, "config": given}]
    answers = answered(overrides=given if way == "config of the catalog" else {}, table=table)
    with http_service(answers) as catalog:
        found = opened(catalog)
    assert isinstance(found.io, GuardedFiles)
    assert {name: found.io.properties[name] for name in KEYS} == KEYS
    assert found.io.new_input(f"{PLACE}/x").open().read() == b"honey"


def test_the_address_and_the_token_of_a_catalog_are_its_own_affair() -> None:
    with http_service(answered()) as second, http_service({}) as first:
        overrides = {"uri": second.address, "prefix": "hives", "token": "later"}
        with http_service(answered(overrides=overrides)) as catalog:
            opened(catalog, token="first", warehouse="bees")
        assert b"Bearer first" in catalog.sent
        assert second.paths == ["/v1/hives/namespaces/ns/tables/bees"]
        assert b"Bearer later" in second.sent
        assert not first.paths


def test_the_identity_of_the_server_is_not_shown_to_another_address() -> None:
    elsewhere = {"s3.endpoint": "http://evil.example", "s3.proxy-uri": "http://evil.example"}
    table = table_answer(f"{PLACE}/list.avro", elsewhere, config={**elsewhere, "s3.access-key-id": ""})
    with http_service(answered(defaults=elsewhere, overrides=elsewhere, table=table)) as catalog:
        assert "evil.example" not in str(opened(catalog).io.properties)
        system = IcebergSystem(name="lake", uri=catalog.address)
        own = open_catalog(system, str, endpoint="minio:9000").load_table(("ns", "bees"))
    assert own.io.properties["s3.endpoint"] == "https://minio:9000"


@pytest.mark.parametrize(
    "said",
    [
        {"s3.role-arn": "arn:aws:iam::1:role/made-up", "client.role-arn": "x", "client.profile-name": "x"},
        {"hdfs.host": "evil", "hdfs.kerberos_ticket": "/tmp/krb"},
        {"py-io-impl": "subprocess.Popen", "s3.retry-strategy-impl": "subprocess.Popen"},
        {"caraway.local-folders": '["/"]', "header.x": "y", "credential": "id:secret", "DEFAULT_SCHEME": "s3"},
        {"gcs.service.host": "http://evil.example", "adls.dfs-storage-authority": ".evil.example"},
        {"adls.account-name": "evil.example/"},
        {"s3.region": {"nested": "x"}},
    ],
)
def test_nothing_else_of_an_answer_reaches_the_files(said: dict[str, Any]) -> None:
    texts = {name: value for name, value in said.items() if isinstance(value, str)}
    table = table_answer(f"{PLACE}/list.avro", texts, config=texts)
    with http_service(answered(table=table)) as catalog:
        plain = opened(catalog).io.properties
    with http_service(answered(defaults=said, overrides=said, table=table)) as catalog:
        found = opened(catalog).io.properties
    assert {**found, "uri": ""} == {**plain, "uri": ""}
    assert not said.items() & found.items() if texts else "nested" not in str(found)


def test_what_the_server_s_own_files_have_for_a_catalog_is_not_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYICEBERG_CATALOG__LAKE__TOKEN", "of-the-operator")
    monkeypatch.setattr(pyiceberg.catalog, "_ENV_CONFIG", Config())
    with http_service(answered()) as catalog:
        opened(catalog)
    assert b"of-the-operator" not in catalog.sent


def test_a_table_that_names_code_is_refused(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path}/catalog.db"
    made = SqlCatalog("lake", uri=uri, warehouse=f"file://{tmp_path}")
    made.create_namespace("ns")
    metadata = Path(made.create_table("ns.bees", Schema()).metadata_location.removeprefix("file://"))
    catalog = open_catalog(IcebergSystem(name="lake", uri=uri), str, local_folders=[str(tmp_path)])
    assert isinstance(catalog.load_table("ns.bees").io, GuardedFiles)
    evil = {"write.py-location-provider.impl": "subprocess.Popen"}
    metadata.write_text(json.dumps({**json.loads(metadata.read_text()), "properties": evil}))
    with http_service(answered(table=table_answer(f"{PLACE}/list.avro", evil, config={}))) as rest:
        for load in (lambda: catalog.load_table("ns.bees"), lambda: opened(rest)):
            with pytest.raises(UnavailableError, match=r"write\.py-location-provider\.impl, which names code"):
                load()  # type: ignore[no-untyped-call]


@pytest.mark.parametrize("location", ["hdfs://evil/x", "viewfs://evil/x", "hf://x/y", "http://evil/x", "memory://x"])
def test_files_have_known_kinds_of_addresses(location: str) -> None:
    files = GuardedFiles({"DEFAULT_SCHEME": "file"})
    for use in (files.new_input, files.new_output, files.delete):
        with pytest.raises(UnavailableError, match="isn't read"):
            use(location)


@pytest.mark.parametrize(
    ("uri", "reason"),
    [
        ("postgresql+psycopg://u:p@h/d?service=x&passfile=/etc/passwd", "the options service, passfile of uri"),
        ("mysql+pymysql://u:p@h/d?local_infile=1", "the options local_infile of uri"),
        ("mysql://u:p@h/d?read_default_file=/etc/my.cnf", "the options read_default_file of uri"),
        ("sqlite:///file:/etc/x?uri=true", "the options uri of uri"),
        ("postgresql://h/d", "needs a user and a password"),
        ("postgresql://u:@h/d", "needs a user and a password"),
        ("mysql://u@h/d", "needs a user and a password"),
        ("postgresql://u:p@/d", "neither a name nor an IP address"),
        ("postgresql://u:p@@abstract/d", "neither a name nor an IP address|can't"),
        ("duckdb:///x", "not in duckdb"),
        ("sqlite:///:memory:", r"sources\.local_folders"),
        ("sqlite://", r"sources\.local_folders"),
        ("file:///etc/passwd", "not in file|uri is"),
    ],
)
def test_a_database_is_its_kind_place_and_user(uri: str, reason: str) -> None:
    with pytest.raises(UnavailableError, match=reason):
        open_catalog(IcebergSystem(name="lake", uri=uri), str)


@pytest.mark.parametrize("kind", ["postgresql", "postgresql+psycopg2", "mysql+mysqldb", "mariadb"])
def test_a_database_is_opened_by_the_library_that_comes_with_the_server(kind: str) -> None:
    catalog = open_catalog(IcebergSystem(name="lake", uri=f"{kind}://u:p%40@127.0.0.1:1/d"), str)
    assert isinstance(catalog, SqlCatalog)
    driver = f"{kind.partition('+')[0]}+{'psycopg' if 'postgres' in kind else 'pymysql'}"
    assert catalog.engine.url.render_as_string(hide_password=False) == f"{driver}://u:p%40@127.0.0.1:1/d"


def test_a_catalog_that_gives_no_address_is_refused() -> None:
    with http_service(answered(overrides={"uri": "file:///etc/passwd"})) as catalog:
        with pytest.raises(UnavailableError, match=r"isn't http\(s\)"):
            opened(catalog)
        assert catalog.paths == ["/v1/config"]
    with http_service({}) as catalog, pytest.raises((UnavailableError, RESTError)):
        opened(catalog)
