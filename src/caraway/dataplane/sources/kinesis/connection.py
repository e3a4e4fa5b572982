"""Connections to Kinesis, as a role of AWS, with errors that say what to do."""

import re
import threading
import time
from email.utils import parsedate_to_datetime
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from caraway.dataplane.sources.reader import SourceContext
from caraway.errors import UnavailableError
from caraway.graph.connectors import KinesisConnector
from caraway.graph.systems import KinesisSystem

SESSION = "caraway"
# The seconds for which a connection and an answer are awaited. The worker then tries again, with a new connection.
CONNECT_S, ANSWER_S = 5.0, 10.0
# The seconds before the end of the credentials at which the role is assumed again. Credentials last an hour.
RENEWAL_S = 300.0
# The codes with which AWS refuses a request because there were too many in the same second. A shard allows five
# requests a second, by all of its readers together.
THROTTLED = frozenset({"ProvisionedThroughputExceededException", "KMSThrottlingException", "LimitExceededException"})
RIGHTS = "kinesis:ListShards, kinesis:GetShardIterator and kinesis:GetRecords"
REGION = re.compile(r"arn:[^:]+:kinesis:([^:]*):")


class StreamConnection:
    """Requests to one stream. Its client may be used by several threads."""

    def __init__(self, connector: KinesisConnector, context: SourceContext) -> None:
        """Prepare; nothing is sent before the first use."""
        system = connector.system
        assert isinstance(system, KinesisSystem)  # noqa: S101 (the planner refuses others)
        self._arn = connector.stream_arn
        self._role = system.role_arn
        self._endpoint = context.endpoints.get(system.name)
        self._where = f"Kinesis {system.name}: stream {connector.stream_arn}"
        self._lock = threading.Lock()
        self._client: Any = None
        self._until = float("-inf")

    @property
    def where(self) -> str:
        """The system and the stream, for people."""
        return self._where

    def client(self) -> Any:
        """Return boto3's client, with credentials that are valid for some more minutes.

        Raises:
            UnavailableError: AWS refuses the role, or there are no credentials with which it could be assumed.
        """
        with self._lock:
            if time.monotonic() > self._until:
                # Other threads may still use the old client, so it isn't closed.
                self._client = self._connected()
            return self._client

    def shards(self) -> tuple[list[dict[str, Any]], float]:
        """Return the shards of the stream as AWS describes them, and the time on the clock of AWS.

        The time is in seconds since the epoch. Raises `UnavailableError` if AWS doesn't answer.
        """
        shards: list[dict[str, Any]] = []
        request: dict[str, Any] = {"StreamARN": self._arn}
        try:
            while True:
                answer = self.client().list_shards(**request)
                shards += self._whole(answer, "Shards")["Shards"]
                if not answer.get("NextToken"):
                    return shards, clock_of(answer)
                request = {"NextToken": answer["NextToken"], "StreamARN": self._arn}
        except (ClientError, BotoCoreError) as error:
            raise self.error(error) from error

    def iterator(self, shard: str, **start: object) -> str:
        """Return an iterator; raises the errors of boto3."""
        answer = self.client().get_shard_iterator(StreamARN=self._arn, ShardId=shard, **start)
        return str(self._whole(answer, "ShardIterator")["ShardIterator"])

    def records(self, iterator: str, limit: int) -> dict[str, Any]:
        """Return an answer with records; raises the errors of boto3, and `UnavailableError`."""
        answer: dict[str, Any] = self.client().get_records(StreamARN=self._arn, ShardIterator=iterator, Limit=limit)
        return self._whole(answer, "Records")

    def _whole(self, answer: dict[str, Any], part: str) -> dict[str, Any]:
        """Return an answer, if it has this part.

        boto3 returns an empty object if a connection is cut in the middle of an answer. Without this check, that would
        look like the end of a shard.
        """
        if part not in answer:
            raise UnavailableError(f"{self._where}: an answer of AWS was cut off")
        return answer

    def error(self, error: ClientError | BotoCoreError) -> UnavailableError:
        """Return the error for people."""
        if not isinstance(error, ClientError):
            return UnavailableError(f"{self._where}: AWS can't be asked: {error}")
        code = code_of(error)
        text = error.response.get("Error", {}).get("Message", "")
        remedy = ""
        if code == "ResourceNotFoundException":
            remedy = "; is the stream there, in this account and region, and ACTIVE?"
        elif "AccessDenied" in code:
            remedy = f"; the role {self._role} needs the rights {RIGHTS}"
        elif "Token" in code or "Client" in code or "Signature" in code:
            remedy = "; are the server's credentials of AWS those of an identity that is valid now?"
        return UnavailableError(f"{self._where}: AWS refuses {error.operation_name} ({code}: {text}){remedy}")

    def close(self) -> None:
        """End the connections."""
        client, self._client, self._until = self._client, None, float("-inf")
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        found = REGION.match(self._arn)
        region = found[1] if found else None
        # boto3 doesn't repeat requests. The reader does that by its own rules, and reads other shards in the meantime.
        config = Config(connect_timeout=CONNECT_S, read_timeout=ANSWER_S, retries={"total_max_attempts": 1})
        try:
            session = boto3.Session(region_name=region)
            self._until = float("inf")
            if self._endpoint is not None:
                # An endpoint of the deployment isn't AWS, so there is no role to assume.
                return session.client("kinesis", endpoint_url=self._endpoint, config=config)
            sts = session.client("sts", config=config)
            assumed = sts.assume_role(RoleArn=self._role, RoleSessionName=SESSION)["Credentials"]
            lasting = assumed["Expiration"].timestamp() - time.time()
            # However wrong this machine's clock is, the role is assumed again within an hour.
            self._until = time.monotonic() + min(max(lasting, RENEWAL_S * 2), 3600.0) - RENEWAL_S
            return session.client(
                "kinesis",
                aws_access_key_id=assumed["AccessKeyId"],
                aws_secret_access_key=assumed["SecretAccessKey"],
                aws_session_token=assumed["SessionToken"],
                config=config,
            )
        except ClientError as error:
            remedy = (
                "the server's identity needs the right sts:AssumeRole for it, and the role must trust that identity"
            )
            raise UnavailableError(
                f"{self._where}: AWS doesn't let the server be the role {self._role} ({code_of(error)}); {remedy}"
            ) from error
        except (BotoCoreError, ValueError) as error:
            raise UnavailableError(
                f"{self._where}: {error}; the server needs credentials of AWS, such as AWS_ACCESS_KEY_ID and "
                "AWS_SECRET_ACCESS_KEY in its environment, or a role of its machine"
            ) from error


def code_of(error: ClientError) -> str:
    """Return the code of an error of AWS."""
    return str(error.response.get("Error", {}).get("Code", ""))


def clock_of(answer: Any) -> float:
    """Return the time of an answer on the clock of AWS, in seconds since the epoch.

    It has no fractions. Without it, the clock of this machine counts.
    """
    date = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return float(int(time.time()))
