"""The certificate authorities of HTTP clients."""

import ssl
from functools import cache

import httpx


@cache
def authorities() -> ssl.SSLContext:
    """Return the authorities that HTTP clients trust, read once in a process: those of `SSL_CERT_FILE`, or certifi's.

    A client of httpx that is given none reads them anew, even for plain HTTP, which takes 46 ms of a processor.
    """
    return httpx.create_ssl_context()
