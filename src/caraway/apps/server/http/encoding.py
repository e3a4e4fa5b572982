"""Compression of answers, for clients that ask for it."""

import gzip
from dataclasses import replace

import pyarrow as pa

from caraway.apps.server.http.messages import HttpResponse

# Answers of this many bytes and more are compressed. A smaller one fits into a single network packet anyhow, so
# compressing it would only take time.
MIN_BYTES = 1_024
# The levels are the fastest of gzip and a fast one of zstd, because a client waits for the answer.
GZIP_LEVEL = 1
ZSTD_LEVEL = 1
# The encodings that the server can apply. If a client accepts both equally, the first one is chosen.
KNOWN = ("zstd", "gzip")


def encoded(response: HttpResponse, accepted: str | None) -> HttpResponse:
    """Compress a body as `Accept-Encoding` allows."""
    if accepted is None or len(response.body) < MIN_BYTES:
        return response
    encoding = choose(accepted)
    if encoding is None:
        return response
    if encoding == "zstd":
        body = pa.Codec("zstd", ZSTD_LEVEL).compress(response.body, asbytes=True)
    else:
        body = gzip.compress(response.body, GZIP_LEVEL, mtime=0)
    headers = [*response.headers, ("content-encoding", encoding), ("vary", "accept-encoding")]
    return replace(response, headers=headers, body=body)


def choose(accepted: str) -> str | None:
    """Choose an encoding from a header; None if the server knows none that the client accepts."""
    weights: dict[str, float] = {}
    for part in accepted.lower().split(","):
        name, _, parameter = part.partition(";")
        quality = parameter.replace(" ", "")
        try:
            weights[name.strip()] = float(quality.removeprefix("q=")) if quality.startswith("q=") else 1.0
        except ValueError:
            weights[name.strip()] = 0.0
    anything = weights.get("*", 0.0)
    best = max(KNOWN, key=lambda name: weights.get(name, anything))
    return best if weights.get(best, anything) > 0 else None
