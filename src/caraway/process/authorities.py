"""The certificate authorities of HTTP clients."""

import ssl
from functools import cache

import httpx2


@cache
def authorities(*, trust_env: bool = True) -> ssl.SSLContext:
    """Return the authorities that HTTP clients trust, read once in a process.

    A client of httpx2 that is given none reads them anew, even for plain HTTP, which takes 46 ms of a processor.

    Args:
        trust_env: True: those of the variables `SSL_CERT_FILE` and `SSL_CERT_DIR`, if there are any; else certifi's.
    """
    return httpx2.create_ssl_context(trust_env=trust_env)
