"""The writer of Redis: each batch is one transaction, which also has the position of the sink.

The position is a hash at a key of its own beside the rows: the sink, the dataset, and the offset of each partition. A
transaction watches this key, and fails if it isn't as the writer knows it. So each batch is in Redis exactly once,
whoever writes and whenever a writer, the server or the connection dies: Redis runs a transaction as a whole, and writes
it as a whole into its log and to its replicas. If Redis loses its newest changes, is restored from a backup or emptied,
rows and position go back together, and the sink goes on from the position that is there.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from typing import Any
from uuid import uuid4

import orjson

from caraway.dataplane.addresses.names import host_and_port
from caraway.dataplane.sinks.changes import last_of_each_key
from caraway.dataplane.sinks.redis.rows import RedisRows, size_of
from caraway.dataplane.sinks.writer import EXACTLY_ONCE, Batch, Refusal, SignIn, Writing
from caraway.errors import CommitError, UnavailableError
from caraway.graph.connectors import RedisConnector
from caraway.graph.plan.model import SinkPlan
from caraway.graph.systems import RedisSystem

try:
    import redis
    from redis.backoff import NoBackoff
    from redis.retry import Retry
except ImportError as error:
    raise UnavailableError("Redis is written by redis-py, which isn't installed: pip install caraway[redis]") from error

# The most seconds to wait for a connection, and for an answer. A transaction with a full batch takes some tenths of a
# second.
CONNECT_S, ANSWER_S = 10, 30
# The number of keys that Redis examines for each SCAN, by which the writer finds the keys with its prefix.
LOOKED_AT = 10_000
# A commit searches at most this many seconds for keys with the sink's prefix that somebody else has made. A large
# database may have more keys than can be examined in this time; the writer examines all of them when it opens.
CHECK_S = 5.0
# The length of the longest text that Redis accepts, in bytes, if Redis doesn't report it (`proto-max-bulk-len`).
LONGEST = 512 * 1024 * 1024
# The commands that the sink needs, apart from those of a connection.
COMMANDS = "watch, multi, exec, hgetall, hset, set, pexpire, del, unlink and scan"

# The fields of the key with the position.
SINK, DATASET, POSITIONS, CLAIM = b"sink", b"dataset", b"positions", b"claim"

Fields = Mapping[bytes, bytes]
Client = Any
Pipeline = Any


class RedisWriter:
    """Writes the rows of a dataset with keys, each under a key of Redis."""

    guarantee = EXACTLY_ONCE
    remembers = True

    def __init__(self, writing: Writing) -> None:
        """Connect, and make the key with the position if there is none.

        Raises `UnavailableError` if Redis doesn't answer or refuses, or keys with the prefix are somebody else's.
        """
        self._writing = writing
        self._name = writing.name.encode()
        self._dataset = writing.plan.dataset.name.encode()
        self._where = _where(writing.plan, writing.sign_in)
        self._rows = RedisRows(writing.plan)
        self._ttl_ms = _ttl_ms(writing.plan)
        # The content of the key with the position, as far as this writer knows.
        self._known: Fields = {}
        self._client = _connected(writing.plan, writing.sign_in)
        try:
            with _translated(self._where):
                self._longest = _longest(self._client)
                self._known = _position(self._client, self._rows)
                self._open()
        except BaseException:
            self._client.close()
            raise

    def _open(self) -> None:
        """Make the key with the position, if there is none."""
        if not self._known:
            _refuse_foreign_keys(self._client, self._rows, self._where, self._keep)
            self._replace(self._fields({}), lambda _: None)
        elif self._known.get(DATASET) != self._dataset:
            raise UnavailableError(_foreign(self._rows, self._where, self._known))

    def positions(self) -> Mapping[int, int]:
        """Return the offsets that the last transaction has; none if the keys have rows of another sink, or none."""
        with _translated(self._where):
            self._known = _position(self._client, self._rows)
        return self._offsets()

    def write(self, batch: Batch) -> None:
        """Write changes in one transaction; see `SinkWriter.write`."""
        self._keep()
        puts: list[tuple[bytes, bytes | Mapping[bytes, bytes]]] = []
        deletes: list[bytes] = []
        refusals: list[Refusal] = []
        for change in last_of_each_key(batch.changes):
            try:
                key = self._rows.key(change.row)
                if change.after is None:
                    deletes.append(key)
                    continue
                value = self._rows.value(change.after)
            except (OverflowError, ValueError) as error:
                refusals.append(Refusal(change, f"a value can't be written: {error}"))
                continue
            if (size := max(len(key), size_of(value))) > self._longest:
                reason = f"a text has {size:,} bytes, and Redis takes {self._longest:,} (proto-max-bulk-len)"
                refusals.append(Refusal(change, reason))
            else:
                puts.append((key, value))
        with _translated(self._where):
            if not self._offsets():
                self._remove_earlier()
            # Dead letters must be durable before the position moves behind their changes. Otherwise a crash in between
            # would lose these changes.
            if refusals:
                self._writing.refuse(refusals)
            self._replace(self._fields(batch.reached), partial(self._put, puts, deletes))
        batch.sent = len(batch.changes)

    def close(self) -> None:
        """End the connection."""
        self._client.close()

    def _put(
        self, puts: Sequence[tuple[bytes, bytes | Mapping[bytes, bytes]]], deletes: Sequence[bytes], to: Pipeline
    ) -> None:
        """Add the commands that write rows to a transaction."""
        if gone := [*deletes, *(key for key, value in puts if not isinstance(value, bytes))]:
            # HSET keeps those fields of an old hash that are null now and so aren't set. For that reason the old hash
            # is removed first.
            to.unlink(*gone)
        for key, value in puts:
            if isinstance(value, bytes):
                to.set(key, value, px=self._ttl_ms)
                continue
            to.hset(key, mapping=value)
            if self._ttl_ms is not None:
                to.pexpire(key, self._ttl_ms)

    def _remove_earlier(self) -> None:
        """Remove the rows that an earlier sink has left, or one whose position is lost."""
        # The claim is a new random value, which no other writer knows. So the transactions of all other writers fail
        # from now on, also those of a writer that was paused at this very place.
        self._replace({**self._fields({}), CLAIM: uuid4().hex.encode()}, lambda _: None)
        for keys in _keys(self._client, self._rows):
            self._keep()
            if keys:
                self._replace(self._known, lambda to, keys=keys: to.unlink(*keys))  # type: ignore[misc]  # called at once

    def _replace(self, fields: Fields, add: Callable[[Pipeline], None]) -> None:
        """Replace the position in a transaction with further commands, if it is as this writer knows it."""
        key = self._rows.position
        with self._client.pipeline(transaction=True) as pipeline:
            pipeline.watch(key)
            found = pipeline.hgetall(key)
            if found != self._known:
                raise UnavailableError(
                    f"{self._where}: "
                    + (
                        f"another server has written {key} meanwhile"
                        if found
                        else f"{key} is gone; all is written again"
                    )
                )
            pipeline.multi()
            add(pipeline)
            pipeline.delete(key)
            pipeline.hset(key, mapping=fields)
            pipeline.execute()
        self._known = fields

    def _fields(self, reached: Mapping[int, int]) -> Fields:
        offsets = {str(partition): offset for partition, offset in reached.items()}
        return {SINK: self._name, DATASET: self._dataset, POSITIONS: orjson.dumps(offsets)}

    def _offsets(self) -> dict[int, int]:
        if self._known.get(SINK) != self._name:
            return {}
        found = orjson.loads(self._known.get(POSITIONS, b"{}"))
        return {int(partition): offset for partition, offset in found.items()}

    def _keep(self) -> None:
        if not self._writing.keep():
            raise UnavailableError("another server writes it now")


def check(plan: SinkPlan, sign_in: SignIn) -> None:
    """Check that a sink can be written, without changing anything.

    Raises:
        CommitError: Redis doesn't answer or refuses, the user lacks rights, or the keys are somebody else's.
        UnavailableError, UnknownEntityError: A secret can't be looked up.
    """
    where, rows = _where(plan, sign_in), RedisRows(plan)
    try:
        with closing(_connected(plan, sign_in)) as client, _translated(where):
            if _is_cluster(client):
                raise CommitError(
                    f"{where}: it is a Redis Cluster, in which rows and position aren't on one server; "
                    "name a Redis that isn't part of a cluster"
                )
            _try_commands(client, rows)
            known = _position(client, rows)
            if known and known.get(DATASET) != plan.dataset.name.encode():
                raise CommitError(_foreign(rows, where, known))
            if not known:
                end = time.monotonic() + CHECK_S
                _refuse_foreign_keys(client, rows, where, lambda: None, until=lambda: time.monotonic() > end)
    except UnavailableError as error:
        raise CommitError(str(error)) from None


def _where(plan: SinkPlan, sign_in: SignIn) -> str:
    system = _system_of(plan)
    host, port = _address(system, sign_in)
    return f"Redis {system.name} at {host}:{port}"


def _system_of(plan: SinkPlan) -> RedisSystem:
    connector = plan.sink.connector
    assert isinstance(connector, RedisConnector)  # noqa: S101 (the planner chooses the writer)
    assert isinstance(connector.system, RedisSystem)  # noqa: S101 (as above)
    return connector.system


def _ttl_ms(plan: SinkPlan) -> int | None:
    connector = plan.sink.connector
    assert isinstance(connector, RedisConnector)  # noqa: S101 (as above)
    return None if connector.ttl_us is None else connector.ttl_us // 1000


def _address(system: RedisSystem, sign_in: SignIn) -> tuple[str, int]:
    endpoint = sign_in.endpoints.get(system.name)
    return host_and_port(endpoint, "" if endpoint else sign_in.resolve(system.host), system.port)


def _connected(plan: SinkPlan, sign_in: SignIn) -> Client:
    system = _system_of(plan)
    host, port = _address(system, sign_in)
    # If Redis doesn't answer to a transaction, redis-py must not send it again, since Redis may have executed it.
    never = Retry(NoBackoff(), 0)
    given = {"username": system.username, "password": system.password}
    login: dict[str, Any] = {name: sign_in.resolve(value) for name, value in given.items() if value is not None}
    return redis.Redis(
        host=host,
        port=port,
        db=system.database,
        ssl=system.transport == "tls",
        ssl_ca_certs=sign_in.ca_file or None,
        socket_connect_timeout=CONNECT_S,
        socket_timeout=ANSWER_S,
        retry=never,
        # All servers and proxies speak this older version of the protocol.
        protocol=2,
        **login,
    )


def _position(client: Client, rows: RedisRows) -> Fields:
    found: Fields = client.hgetall(rows.position)
    return found


def _longest(client: Client) -> int:
    try:
        return int(client.config_get("proto-max-bulk-len").get("proto-max-bulk-len", LONGEST))
    except redis.ResponseError:
        # The user lacks the right to CONFIG GET, or the service doesn't have this command.
        return LONGEST


def _is_cluster(client: Client) -> bool:
    try:
        return bool(client.info("cluster").get("cluster_enabled"))
    except redis.ResponseError:
        return False


def _keys(client: Client, rows: RedisRows) -> Iterator[list[bytes]]:
    """Yield the keys of the sink's rows, some at a time, or none of so many that Redis has looked at."""
    escaped = "".join(f"\\{letter}" if letter in "*?[]^\\" else letter for letter in rows.prefix)
    cursor = None
    while cursor != 0:
        cursor, keys = client.scan(cursor or 0, match=f"{escaped}*", count=LOOKED_AT)
        yield keys


def _refuse_foreign_keys(
    client: Client, rows: RedisRows, where: str, keep: Callable[[], None], *, until: Callable[[], bool] = lambda: False
) -> None:
    """Raise `UnavailableError` if there are keys with the prefix, though no sink has a position for them."""
    for keys in _keys(client, rows):
        keep()
        if keys:
            raise UnavailableError(_foreign(rows, where, {}))
        if until():
            return


def _foreign(rows: RedisRows, where: str, known: Fields) -> str:
    writer = f"the dataset {known[DATASET].decode(errors='replace')}" if known.get(DATASET) else "somebody else"
    return (
        f"{where}: there are keys {rows.prefix}* already, which {writer} has written; "
        "remove them and their position "
        f"{rows.position}, or choose another prefix"
    )


def _try_commands(client: Client, rows: RedisRows) -> None:
    """Check by Redis that the user may run the commands that the sink needs, and run none of them."""
    row, position = rows.prefix + "x", rows.position
    connection = client.connection_pool.get_connection()
    try:
        for command in (
            ("WATCH", position),
            ("HGETALL", position),
            ("SCAN", "0", "COUNT", "1"),
            ("MULTI",),
            ("HSET", position, "x", "x"),
            ("DEL", position),
            ("UNLINK", row),
            ("HSET", row, "x", "x"),
            ("SET", row, "x"),
            ("PEXPIRE", row, "1"),
            ("DISCARD",),
        ):
            connection.send_command(*command)
            connection.read_response()
    finally:
        connection.disconnect()
        client.connection_pool.release(connection)


@contextmanager
def _translated(where: str) -> Iterator[None]:
    try:
        yield
    except (redis.RedisError, OSError) as error:
        raise UnavailableError(f"{where}: {_spelled(error)}{_remedy(error)}") from None


def _spelled(error: Exception) -> str:
    if isinstance(error, redis.WatchError):
        return "another server has written it meanwhile"
    # For a transaction, the error text of redis-py begins with the command, which contains values of rows. That part
    # isn't shown.
    text = str(error).rpartition(" of pipeline caused error: ")[2]
    return " ".join(text.split()) or type(error).__name__


def _remedy(error: Exception) -> str:
    match error:
        case redis.exceptions.NoPermissionError():
            return f"; the user needs {COMMANDS} for the keys with the prefix, and for the position"
        case redis.AuthenticationError():
            return "; correct the user's name or password"
        case redis.exceptions.ReadOnlyError():
            return "; it is a replica: name the address of the primary"
        case redis.OutOfMemoryError():
            return "; raise maxmemory, or remove other keys"
        case redis.exceptions.MovedError() | redis.exceptions.ClusterError():
            return "; name a Redis that isn't part of a cluster"
        case _:
            return ""
