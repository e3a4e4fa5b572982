"""Access to Redshift by a role of AWS: a user of the database and a password, which are valid for some minutes."""

from caraway.errors import UnavailableError
from caraway.graph.systems import RedshiftSystem

try:
    import boto3
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError
except ImportError as error:
    raise UnavailableError(
        "A role signs in to Redshift by boto3, which isn't installed: pip install caraway[redshift]"
    ) from error

# The name that AWS's logs show for what is done as a role.
SESSION = "caraway"
# With these limits, requests that AWS doesn't answer fail before a trial of a source is given up.
_AWS = Config(connect_timeout=3, read_timeout=5, retries={"total_max_attempts": 2})


def access_of_role(system: RedshiftSystem, role: str, where: str) -> tuple[str, str]:
    """Return the name of a user and a password that a role gets for a cluster or a workgroup.

    Args:
        system: The database, whose cluster is known.
        role: The ARN of the role, which is assumed.
        where: The system and the table, for messages.

    Raises:
        UnavailableError: AWS refuses, or doesn't answer.
    """
    assert system.cluster is not None  # noqa: S101 (the planner refuses others)
    cluster, region, is_serverless = system.cluster
    try:
        own = boto3.Session(region_name=region)
        assumed = own.client("sts", config=_AWS).assume_role(RoleArn=role, RoleSessionName=SESSION)["Credentials"]
        session = boto3.Session(
            aws_access_key_id=assumed["AccessKeyId"],
            aws_secret_access_key=assumed["SecretAccessKey"],
            aws_session_token=assumed["SessionToken"],
            region_name=region,
        )
        if is_serverless:
            made = session.client("redshift-serverless", config=_AWS).get_credentials(
                workgroupName=cluster, dbName=system.database
            )
            return made["dbUser"], made["dbPassword"]
        made = session.client("redshift", config=_AWS).get_cluster_credentials_with_iam(
            ClusterIdentifier=cluster, DbName=system.database
        )
        return made["DbUser"], made["DbPassword"]
    except ClientError as error:
        right = "redshift-serverless:GetCredentials" if is_serverless else "redshift:GetClusterCredentialsWithIAM"
        code = error.response.get("Error", {}).get("Code", "")
        raise UnavailableError(
            f"{where}: AWS refuses {error.operation_name} ({code}); the role {role} must trust the server's identity, "
            f"which needs the right sts:AssumeRole, and the role needs the right {right} for {cluster}"
        ) from None
    except BotoCoreError as error:
        raise UnavailableError(f"{where}: AWS can't be asked for the access of a role: {error}") from None
