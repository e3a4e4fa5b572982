"""The refusals of a Postgres, or of its certificate, that last until `postgres.url` is changed."""

# Parts of libpq's error texts, each with the change to the settings that mends the error.
_REMEDIES = {
    "root certificate file": "sslrootcert of postgres.url names the file of the server's authority, or is `system`",
    "SSL error": "the file in sslrootcert of postgres.url must have the authority that signed the server's certificate",
    "does not match host name": "postgres.url must name the host as the server's certificate does",
    "does not support SSL": "the server has no TLS, which sslmode of postgres.url asks for",
    "no encryption": "the server may want TLS: set sslmode=verify-full in postgres.url",
    "password authentication failed": "correct the user and the password of postgres.url",
    "invalid sslmode": "correct postgres.url",
    "invalid URI query parameter": "correct postgres.url",
}


def remedy_of(text: str) -> str:
    """Return what to change after a failed connection, by libpq's text; empty if Postgres may only be away."""
    return next((f"; {remedy}" for part, remedy in _REMEDIES.items() if part in text), "")
