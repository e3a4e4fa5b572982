"""Look-ups of secrets of AWS Secrets Manager, by ARN; they need boto3 (`pip install caraway[aws]`)."""

import boto3
from botocore.exceptions import BotoCoreError, ClientError

from caraway.errors import UnavailableError, UnknownEntityError

SESSION = "caraway"
MISSING = "ResourceNotFoundException"


def of_aws(reference: str, role_arn: str | None) -> str:
    """Return a secret by its ARN, as the identity of this process or as a role that it assumes.

    Raises:
        UnknownEntityError: The secret doesn't exist, or isn't text.
        UnavailableError: AWS refuses, or doesn't answer.
    """
    parts = reference.split(":")
    if len(parts) < 7 or parts[2] != "secretsmanager":
        raise UnknownEntityError(f"secret {reference}: it is no ARN of a secret of AWS Secrets Manager")
    region = parts[3] or None
    try:
        session = boto3.Session(region_name=region)
        if role_arn is not None:
            assumed = session.client("sts").assume_role(RoleArn=role_arn, RoleSessionName=SESSION)["Credentials"]
            session = boto3.Session(
                aws_access_key_id=assumed["AccessKeyId"],
                aws_secret_access_key=assumed["SecretAccessKey"],
                aws_session_token=assumed["SessionToken"],
                region_name=region,
            )
        found = session.client("secretsmanager").get_secret_value(SecretId=reference)
    except ClientError as error:
        code = error.response.get("Error", {}).get("Code", "")
        if code == MISSING:
            raise UnknownEntityError(f"secret {reference}: AWS has no such secret") from error
        raise UnavailableError(f"secret {reference}: AWS refuses it ({code})") from error
    except BotoCoreError as error:
        raise UnavailableError(f"secret {reference}: AWS can't be asked ({error})") from error
    text = found.get("SecretString")
    if text is None:
        raise UnknownEntityError(f"secret {reference}: it is binary; a text or JSON is expected")
    value: str = text
    return value
