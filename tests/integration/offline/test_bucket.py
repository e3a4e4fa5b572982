"""An offline query from a bucket of S3 to another, with the access keys of its request."""

import secrets
from collections.abc import Iterator
from datetime import timedelta
from io import BytesIO
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import boto3
import orjson
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import sqlalchemy as sa
from pyspark.sql import SparkSession

from caraway.process.settings.offline import OfflineSettings
from caraway.state.database import connect
from caraway.state.tables import offline_queries as table
from tests.integration.jobs import running_jobs
from tests.integration.offline.desk import Shop
from tests.integration.offline.shop import BEGIN, logged
from tests.integration.server.server_process import ServerProcess, running_server
from tests.services.moto import running_moto

REGION = "eu-central-1"
KEY, SECRET = "AKIAOFFLINE", "a/SECRET+with=signs"


@pytest.fixture
def endpoint() -> Iterator[str]:
    with running_moto() as address:
        yield address.removeprefix("http://")


@pytest.fixture
def server(kafka: str, postgres: str, spark: SparkSession, tmp_path: Path, endpoint: str) -> Iterator[ServerProcess]:
    """Yield a server that opens connections to the endpoint."""
    offline = OfflineSettings(endpoints=(endpoint,))
    with (
        running_server(tmp_path / "server", kafka=kafka, postgres=postgres, offline=offline) as process,
        running_jobs(process.settings, spark),
    ):
        yield process


def place(bucket: str, prefix: str, endpoint: str) -> dict[str, Any]:
    options = urlencode({"endpoint_override": endpoint, "scheme": "http", "region": REGION})
    creds = {"access_key": KEY, "secret_key": SECRET}
    db = {"name": "extract_historical_s3_input", "db": {"S3": {"creds": creds, "role_arn": None}}}
    return {
        "bucket": bucket,
        "path_prefix": f"{prefix}?{options}",
        "pre_sorted": False,
        "format": "parquet",
        "db": db,
    }


def test_rows_of_a_bucket_become_features_in_a_bucket(shop: Shop, postgres: str, endpoint: str) -> None:
    s3 = boto3.client(
        "s3",
        endpoint_url=f"http://{endpoint}",
        region_name=REGION,
        aws_access_key_id=KEY,
        aws_secret_access_key=SECRET,
    )
    bucket = f"bucket-{secrets.token_hex(6)}"
    s3.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": REGION})
    at = [BEGIN + timedelta(days=30 + n) for n in range(6)]
    rows = pa.table({"who": list(range(6)), "at": at, "label": list("abcdef")})
    for number, first in enumerate((0, 4)):
        sink = BytesIO()
        pq.write_table(rows.slice(first, 4), sink)
        s3.put_object(Bucket=bucket, Key=f"in/{number}.parquet", Body=sink.getvalue())
    body = {
        "input_features": ["Buyer.user"],
        "output_features": ["Buyer.n", "Buyer.city"],
        "timestamp_column": "at",
        "input": {
            "S3": {
                "s3_table": place(bucket, "in", endpoint),
                "compression": "None",
                "feature_to_column_map": {"Buyer.user": "who"},
            }
        },
        "s3_output": place(bucket, "out/here", endpoint),
    }
    query = shop.ask(body)
    found = shop.finished(query)
    assert (found["status"], found["rows_done"], found["error"]) == ("succeeded", 6, None)
    assert (found["output_bucket"], found["output_prefix"]) == (bucket, "out/here")
    content = s3.get_object(Bucket=bucket, Key="out/here/part-00000.parquet")["Body"].read()
    result = pq.read_table(BytesIO(content))
    assert result.column_names == ["Buyer.n", "Buyer.city", "at", "label", "_history", "_error"]
    assert result["label"].to_pylist() == list("abcdef")
    assert result["at"].to_pylist() == at
    counts = logged()["purchases"].query("price > 1").groupby("user")["price"].count()
    assert result["Buyer.n"].to_pylist() == [int(counts.get(user, 0)) for user in range(6)]
    manifest = orjson.loads(s3.get_object(Bucket=bucket, Key="out/here/manifest.json")["Body"].read())
    assert manifest["files"] == [
        {
            "name": "part-00000.parquet",
            "rows": 6,
            "rows_failed": 0,
            "rows_short": found["rows_short"],
            "bytes": len(content),
        }
    ]
    refused = shop.http.get("/query_offline/result", params={"request_id": query})
    assert (refused.status_code, bucket in refused.text) == (400, True)
    database = connect(postgres)
    with database.connect() as connection:
        row = str(connection.execute(sa.select(table)).one())
    database.dispose()
    for text in (row, refused.text, str(found), shop.server.said()):
        assert "SECRET" not in text
        assert KEY not in text
