"""The digests by which captured rows without a place in the log are told apart."""

from binascii import b2a_base64
from collections.abc import Sequence

from xxhash import xxh3_128_hexdigest

from caraway.ingest.sources.row_digests import blake

_blake = blake(16)
# The characters of a digest: the first 22 of the base64 of its bytes, as the others are padding.
_TEXT = 22
# With two more bytes, base64 has no padding, so that the texts of many digests can be made at once. The texts of the
# digests themselves stay the same, because these bytes are zero, as the bits are by which base64 fills up.
_FILLED, _FILLED_TEXT = b"\0\0", 24
_OF_URLS = bytes.maketrans(b"+/", b"-_")


def digest(content: bytes) -> str:
    """Return 128 bits of a hash as text that a mark may have."""
    return digests([content])[0]


def seeded_digests(contents: Sequence[bytes], seed: int) -> list[str]:
    """Return 128 bits of XXH3 of each content, in hexadecimal.

    Without the seed, nobody can write rows of one chunk whose digests are the same.
    """
    return [xxh3_128_hexdigest(content, seed) for content in contents]


def digests(contents: Sequence[bytes]) -> list[str]:
    """Return the digest of each content."""
    text = (
        b2a_base64(b"".join([each + _FILLED for each in _blake(contents)]), newline=False).translate(_OF_URLS).decode()
    )
    return [text[at : at + _TEXT] for at in range(0, len(text), _FILLED_TEXT)]
