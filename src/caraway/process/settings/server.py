"""The settings of the HTTP server."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from caraway.process.settings.section import FolderPath, Network, Port, Section


class ServerSettings(Section):
    """The HTTP server.

    Attributes:
        host: Address to listen on; the default is reachable from this machine only.
        port: Port to listen on; None or 0 chooses a free one and remembers it.
        workers: Processes that answer queries on the port. With more than one, a further one writes the index and does
            all that changes something.
        tokens: True: requests need a token (`caraway tokens create`). False: everybody who reaches the server may do
            everything, which includes running code on it.
        admin_token_file: A file with a token whose bearer may do everything, for as long as the file holds it. The
            stack fills this in for the server that it starts.
        allowed_hosts: Further names by which clients reach the server, `*.example.com` for all below one, `*` for any.
            This machine's name, `localhost`, `host` and addresses need not be listed.
        allowed_origins: Sites whose pages may send requests, such as `https://console.example.com`.
        certificate_file: A file in PEM with the server's certificate, and those of the authorities between it and the
            root; with it the server speaks TLS only (1.2 and later).
        key_file: A file in PEM with the key of that certificate, without a passphrase.
        trusted_proxies: Addresses and networks of proxies, such as `10.0.0.5` or `10.1.0.0/16`, whose headers
            `Forwarded` and `X-Forwarded-…` are believed: on the scheme, the name of the server and the client.
        allow_network_without_tokens: True: a server without tokens may listen on an address that other machines reach.
        extractor_processes: The Python extractors that run at a time, each in a process of its own commit.
        extractor_seconds: The most seconds for one call of an extractor; after it the process is ended and the request
            fails.
        extractor_memory_mb: Memory that an extractor may take, in MiB, beyond what its process has with all modules
            loaded.
        snapshot_seconds: Seconds between two copies of the index into the object store, from which a new server starts;
            0: the index is never copied.
        poll_seconds: Seconds between two looks of the server in Postgres for commits of other processes. Postgres also
            notifies it of each commit at once, but a connection pooler in between may lose the notification.
        request_seconds: The most seconds for a request, from its first byte to its answer; after it the request fails
            (504, or 408 if its body isn't complete).
        requests_memory_mb: Memory that the bodies of all requests under way, and the values made of them, may take
            together, in MiB; beyond it a request is refused (429).
        concurrency_per_token: Requests that one token may have under way at a time; 0: no limit. Without tokens, the
            limit is for all callers together.
        requests_per_second_per_token: Requests that one token may make in a second, and also in a burst; 0: no limit.
        max_lag_records: Rows are refused (429), and sources aren't read, while an index or job that depends on them is
            behind by more records than this and by more than `max_lag_seconds`; 0: they are never refused.
        max_lag_seconds: The bound in seconds, as above; 0: rows are never refused.
        connections: Connections that are open at a time, as far as the system's limit of open files allows.
        heartbeat_seconds: Seconds between two heartbeats, which measure the freshness of datasets and close windows by
            the clock; 0: none are sent.
    """

    host: Annotated[str, Field(min_length=1)] = "127.0.0.1"
    port: Port | None = None
    workers: Annotated[int, Field(ge=1, le=256)] = 1
    tokens: bool = True
    admin_token_file: FolderPath | None = None
    allow_network_without_tokens: bool = False
    allowed_hosts: tuple[Annotated[str, Field(pattern=r"^(\*|(\*\.)?[A-Za-z0-9_.-]+)$")], ...] = ()
    allowed_origins: tuple[Annotated[str, Field(pattern=r"^https?://[^/\s*]+/?$")], ...] = ()
    certificate_file: FolderPath | None = None
    key_file: FolderPath | None = Field(default=None, validate_default=True)
    trusted_proxies: tuple[Network, ...] = ()
    extractor_processes: Annotated[int, Field(ge=1, le=256)] = 2
    extractor_seconds: Annotated[float, Field(gt=0)] = 10.0
    extractor_memory_mb: Annotated[int, Field(ge=16)] = 1024
    request_seconds: Annotated[float, Field(gt=0)] = 60.0
    requests_memory_mb: Annotated[int, Field(ge=64)] = 256
    concurrency_per_token: Annotated[int, Field(ge=0)] = 1_000
    requests_per_second_per_token: Annotated[float, Field(ge=0)] = 0.0
    # Both bounds are exceeded by a lag that grows for good, but not by a burst: five million records are several
    # minutes of work of one index, and more than a run of the demo's benchmark with 1.2 million events writes to one
    # topic.
    max_lag_records: Annotated[int, Field(ge=0)] = 5_000_000
    max_lag_seconds: Annotated[float, Field(ge=0)] = 300.0
    connections: Annotated[int, Field(ge=100, le=1_000_000)] = 16_384
    poll_seconds: Annotated[float, Field(gt=0)] = 1.0
    snapshot_seconds: Annotated[float, Field(ge=0)] = 300.0
    heartbeat_seconds: Annotated[float, Field(ge=0)] = 5.0

    @property
    def url(self) -> str | None:
        """The URL by which a client on this machine finds the server, once the port is known."""
        if not self.port:
            return None
        host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(self.host, self.host)  # noqa: S104 (reads it, binds nothing)
        return f"{'http' if self.certificate_file is None else 'https'}://{host}:{self.port}"

    @field_validator("key_file")
    @classmethod
    def _belongs_to_a_certificate(cls, value: Path | None, info: ValidationInfo) -> Path | None:
        if (value is None) != (info.data.get("certificate_file") is None):
            raise ValueError("it and server.certificate_file are set together, or neither is")
        return value
