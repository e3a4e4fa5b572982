"""Addresses of files lead neither to other servers nor to data that only the server may read."""

import pytest

from caraway.errors import InvalidInputError
from caraway.offline.queries.addresses import AllowedPlaces

NONE = AllowedPlaces()
SOME = AllowedPlaces(local=True, endpoints=("minio:9000",), own_rights=("s3://ours/training/", "gs://lake"))


@pytest.mark.parametrize(
    ("url", "has_keys", "told"),
    [
        ("s3://bucket/p", False, r"offline\.own_rights"),
        ("s3://bucket/p?endpoint_override=10.0.0.1:80", True, r"offline\.endpoints"),
        ("s3://bucket/p?endpoint%5Foverride=10.0.0.1:80", True, r"offline\.endpoints"),
        ("s3://bucket/p?allow_bucket_creation=true", True, "allow_bucket_creation"),
        ("s3://bucket/p?scheme=http", True, "scheme"),
        ("s3://bucket/p?x", True, "are no parameters"),
        ("abfss://c@elsewhere.example/p", True, r"offline\.endpoints"),
        ("abfss://127.0.0.1:10000/c/p", True, r"offline\.endpoints"),
        ("abfss://c@account.blob.core.windows.net/p?blob_storage_authority=x.example", True, "blob_storage_authority"),
        ("gs://bucket/p?endpoint_override=metadata", True, r"offline\.endpoints"),
        ("file:///etc/passwd", True, r"offline\.local_files"),
        ("FILE:///etc/passwd", True, r"offline\.local_files"),
        ("hdfs://namenode/p", True, "files are at one of"),
        ("http://169.254.169.254/latest", True, "files are at one of"),
        ("/etc/passwd", True, "files are at one of"),
        ("s3://key:secret@bucket/p", True, "creds"),
        ("s3://bucket/a/../b", True, "'..'"),
        ("s3://bucket/a/%2e%2e/b", True, "'..'"),
        ("s3://b[/p", True, "no address"),
    ],
)
def test_an_address_is_refused(url: str, has_keys: bool, told: str) -> None:
    with pytest.raises(InvalidInputError, match=told) as caught:
        NONE.check(url, has_keys=has_keys)
    assert "secret@" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "has_keys"),
    [
        ("s3://bucket/p?region=eu-central-1", True),
        ("s3://bucket/p?endpoint_override=minio:9000&scheme=http&region=r", True),
        ("abfss://c@account.dfs.core.windows.net/p", True),
        ("gs://lake/p", False),
        ("gs://lake", False),
        ("s3://ours/training/p?region=r", False),
        ("file:///data/p", False),
    ],
)
def test_an_address_is_allowed(url: str, has_keys: bool) -> None:
    SOME.check(url, has_keys=has_keys)


@pytest.mark.parametrize("url", ["s3://ours/training2/p", "s3://ours", "gs://lakes/p", "s3://lake/p"])
def test_own_rights_end_at_their_folder(url: str) -> None:
    with pytest.raises(InvalidInputError, match=r"offline\.own_rights"):
        SOME.check(url, has_keys=False)


ROLE = "arn:aws:iam::123456789012:role/reader"


@pytest.mark.parametrize("url", ["gs://private/p", "abfss://c@account.dfs.core.windows.net/p"])
def test_a_role_of_aws_opens_no_other_store_with_the_server_s_own_rights(url: str) -> None:
    with pytest.raises(InvalidInputError, match="role_arn is a role of AWS"):
        AllowedPlaces(roles=(ROLE,)).check(url, has_keys=False, role=ROLE)


def test_only_listed_roles_are_assumed() -> None:
    with pytest.raises(InvalidInputError, match=r"offline\.roles"):
        SOME.check("s3://ours/training/p", has_keys=False, role=ROLE)
    AllowedPlaces(roles=(ROLE,)).check("s3://private/p", has_keys=False, role=ROLE)
