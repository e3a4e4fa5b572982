"""People and programs whom an identity provider knows, by OpenID Connect and JWTs (RFC 7519, RFC 9068, RFC 7636).

Nothing of a token is believed before its signature was checked with a key of the provider, by one of a few algorithms.
The provider is asked for its keys and about codes only: its answers are bounded in size and time, and requests with
tokens that are known already never wait for it.
"""

import asyncio
import base64
import hashlib
import ssl
import time
import warnings
from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote_plus, urlencode

import httpx2
import orjson
import structlog
from joserfc import jws, jwt
from joserfc.errors import JoseError, SecurityWarning
from joserfc.jwk import ECKey, OKPKey, RSAKey, import_key

from caraway.errors import BusyError, CarawayError, UnauthenticatedError, UnavailableError, shortened
from caraway.process.settings.oidc import OidcSettings, is_safe
from caraway.state.access import NAME, digest_of

LOG = structlog.get_logger(__name__)

Key = RSAKey | ECKey | OKPKey
# The accepted algorithms, with the type and the curve of the keys that they need. `none` and algorithms with a shared
# secret are left out: otherwise somebody could sign a token with the provider's public key as the secret.
ALGORITHMS: Mapping[str, tuple[type[Key], str | None]] = {
    "RS256": (RSAKey, None),
    "ES256": (ECKey, "P-256"),
    "EdDSA": (OKPKey, "Ed25519"),
    "Ed25519": (OKPKey, "Ed25519"),
}
# Smaller RSA keys are too weak (NIST SP 800-131A), and larger ones take too long.
RSA_BITS = range(2048, 8193)
MAX_KEYS = 100
# The most bytes of a token and of an answer of the provider. Anybody can send a token, and the head of a request may
# have 64 KiB, so tokens have a smaller limit of their own.
MAX_TOKEN, MAX_ANSWER = 16 * 1024, 512 * 1024
# The most seconds for an answer of the provider, from the connection to its last byte.
ANSWER_S = 5.0
# The keys are read again after `FRESH_S` seconds. If that fails, the known keys are used until `KEPT_S` seconds after
# their last read.
FRESH_S, KEPT_S = 3600.0, 24 * 3600.0
# The least seconds between two reads of the keys because a token names an unknown key. Anybody can send such tokens.
AGAIN_S = 30.0
# The most seconds by which the clocks of the provider and of the server may differ.
LEEWAY_S = 30
# The most verified tokens that are remembered. Beyond that, the one that was verified first is forgotten.
MAX_KNOWN = 10_000
# The most sign-in codes that are exchanged at the provider at the same time, in all and from one address. Anybody can
# send codes, and each one costs a request to the provider.
MAX_CODES, MAX_CODES_OF_ADDRESS = 8, 2
# The prefix of the provider's accounts. No account in Postgres has a colon in its name, so none is called like one of
# the provider.
PREFIX = "oidc:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Person:
    """Somebody whom the provider knows, or a program.

    Attributes:
        account: The account's name, after `oidc:`.
        groups: Those of the groups that have roles here, sorted.
        expires_at: The end of the token, in seconds since 1970.
    """

    account: str
    groups: tuple[str, ...]
    expires_at: float


class RefusedAnswerError(CarawayError):
    """The provider refused a request, with an error of OAuth 2.0."""

    code = "unauthenticated"


class Provider:
    """The identity provider of a deployment, for one event loop."""

    def __init__(self, issuer: str, settings: OidcSettings, *, clock: Callable[[], float] = time.time) -> None:
        """Know the people of an issuer as the settings say; it isn't asked yet."""
        self._issuer, self._settings, self._clock = issuer, settings, clock
        self._tls = ssl.create_default_context(cafile=settings.ca_file)
        self._document: Mapping[str, Any] = {}
        self._keys: Mapping[str | None, Key] = {}
        self._read_at = self._tried_at = float("-inf")
        self._reading = asyncio.Lock()
        self._codes = Counter[str]()
        self._known: OrderedDict[bytes, Person] = OrderedDict()

    @property
    def signs_in(self) -> bool:
        """True if people may sign in to the console by the provider."""
        return self._settings.redirect_url is not None

    @property
    def for_commands(self) -> tuple[str, str, tuple[str, ...]] | None:
        """The provider, the name of the command line there, and the scopes that it asks for; None if it has no name."""
        name = self._settings.cli_client_id
        return None if name is None else (self._issuer, name, ("openid", *self._settings.cli_scopes))

    @property
    def is_over_tls(self) -> bool:
        """True if browsers come back over TLS."""
        return (self._settings.redirect_url or "").startswith("https:")

    def roles_of(self, groups: tuple[str, ...]) -> frozenset[str]:
        """Return the roles of groups."""
        return frozenset(role for group in groups for role in self._settings.roles.get(group, ()))

    def known(self, digest: bytes) -> Person | None:
        """Return the person of a token that was verified before, by its hash, while the token is valid."""
        person = self._known.get(digest)
        if person is not None and person.expires_at <= self._clock():
            self._known.pop(digest, None)
            return None
        return person

    async def verify(self, token: str) -> Person:
        """Return the person of a JWT of the API, which is remembered until its end.

        Raises:
            UnauthenticatedError: The token isn't valid; the message says why.
            UnavailableError: The provider's keys aren't known, and it doesn't answer.
        """
        if self._settings.audience is None:
            raise UnauthenticatedError("this server takes no JWTs of the identity provider (oidc.audience)")
        person = self._person(await self._claims(token, self._settings.audience))
        self._known[digest_of(token)] = person
        if len(self._known) > MAX_KNOWN:
            self._known.popitem(last=False)
        return person

    async def sign_in_address(self, *, state: str, nonce: str, verifier: str) -> str:
        """Return the address at the provider where a person signs in. Raises `UnavailableError` without an answer."""
        await self._refresh()
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": self._settings.client_id,
            "redirect_uri": self._settings.redirect_url,
            "scope": " ".join(("openid", *self._settings.scopes)),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        address = self._endpoint("authorization_endpoint")
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}"

    async def person_of_code(self, code: str, *, nonce: str, verifier: str, address: str) -> Person:
        """Return the person who has signed in at the provider, by the code with which the browser came back.

        Args:
            code: The code.
            nonce: The nonce that the ID token must have.
            verifier: The verifier of the challenge with which the person went to the provider.
            address: The address of the browser; empty if it isn't known.

        Raises:
            UnauthenticatedError: The provider refuses the code, or its token isn't valid.
            UnavailableError: The provider doesn't answer.
            BusyError: Too many people sign in at this moment, or from this address.
        """
        if self._codes.total() >= MAX_CODES or (address and self._codes[address] >= MAX_CODES_OF_ADDRESS):
            raise BusyError("too many people sign in at this moment; try again")
        self._codes[address] += 1
        try:
            answer = await self._exchanged(code, verifier)
        except RefusedAnswerError as error:
            raise UnauthenticatedError(f"the identity provider refused the sign-in ({error}); sign in again") from error
        finally:
            self._codes -= Counter((address,))
        token = answer.get("id_token")
        if not isinstance(token, str):
            raise UnauthenticatedError("the identity provider sent no ID token; it must allow the scope openid")
        client = self._settings.client_id or ""
        claims = await self._claims(token, client)
        if claims.get("nonce") != nonce:
            raise UnauthenticatedError("the ID token is of another sign-in (nonce); sign in again")
        several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
        if claims.get("azp", None if several else client) != client:
            raise UnauthenticatedError("the ID token was issued to another client (azp)")
        return self._person(claims)

    async def _exchanged(self, code: str, verifier: str) -> Mapping[str, Any]:
        await self._refresh()
        client, file = self._settings.client_id or "", self._settings.client_secret_file
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._settings.redirect_url,
            "client_id": client,
            "code_verifier": verifier,
        }
        if file is None:
            return await self._ask("POST", self._endpoint("token_endpoint"), data=form)
        try:
            secret = (await asyncio.to_thread(file.read_text)).strip()
        except (OSError, ValueError) as error:
            raise UnavailableError(f"oidc.client_secret_file: {file} can't be read ({error})") from error
        auth = httpx2.BasicAuth(quote_plus(client), quote_plus(secret))
        return await self._ask("POST", self._endpoint("token_endpoint"), data=form, auth=auth)

    async def _claims(self, token: str, audience: str) -> dict[str, Any]:
        """Return the claims of a token of this issuer and for this audience, after all checks."""
        if len(token) > MAX_TOKEN:
            raise UnauthenticatedError(f"the token has more than {MAX_TOKEN:,} characters")
        try:
            header = jws.extract_compact(token.encode("utf-8", "surrogateescape")).headers()
        except (JoseError, ValueError, TypeError) as error:
            raise UnauthenticatedError("the token isn't valid: it is neither one of Caraway nor a JWT") from error
        algorithm = header.get("alg")
        if not isinstance(algorithm, str) or algorithm not in ALGORITHMS:
            raise UnauthenticatedError(
                f"the token is signed by {shortened(str(algorithm))!r}; one of these is needed: {', '.join(ALGORITHMS)}"
            )
        key = await self._key(header.get("kid"), algorithm)
        rules = jwt.JWTClaimsRegistry(
            now=int(self._clock()),
            leeway=LEEWAY_S,
            iss={"essential": True, "value": self._issuer},
            aud={"essential": True, "value": audience},
            exp={"essential": True},
            sub={"essential": True},
        )
        try:
            with warnings.catch_warnings():
                # RFC 9864 renames EdDSA to Ed25519, so the library warns, but providers still send the old name.
                warnings.simplefilter("ignore", SecurityWarning)
                claims = jwt.decode(token, key, algorithms=[algorithm]).claims
            rules.validate(claims)
        except (JoseError, ValueError) as error:
            raise UnauthenticatedError(f"the token isn't valid: {shortened(str(error))}") from error
        return claims

    def _person(self, claims: Mapping[str, Any]) -> Person:
        claim = self._settings.account_claim
        name, groups = claims.get(claim), claims.get(self._settings.groups_claim)
        if not isinstance(name, str) or NAME.fullmatch(name) is None:
            raise UnauthenticatedError(
                f"the token has no name for an account in the claim {claim!r} (oidc.account_claim): letters, digits, "
                "_ . @ + - and / are possible"
            )
        if claim == "email" and claims.get("email_verified") is False:
            raise UnauthenticatedError("the identity provider hasn't verified the address of this account")
        named = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
        counting = tuple(sorted({group for group in named if isinstance(group, str) and group in self._settings.roles}))
        return Person(account=PREFIX + name, groups=counting, expires_at=float(claims["exp"]) + LEEWAY_S)

    async def _key(self, name: object, algorithm: str) -> Key:
        if name is not None and not isinstance(name, str):
            raise UnauthenticatedError("the token isn't valid: the name of its key (kid) is no text")
        await self._refresh()
        if name not in self._keys:
            await self._refresh(after=AGAIN_S)
        key = self._keys.get(name)
        if key is None and name is None and len(self._keys) == 1:
            (key,) = self._keys.values()
        kind, curve = ALGORITHMS[algorithm]
        if key is None or not isinstance(key, kind) or (curve is not None and key.as_dict().get("crv") != curve):
            raise UnauthenticatedError("the token isn't valid: the identity provider has no such key for it")
        return key

    async def _refresh(self, after: float = FRESH_S) -> None:
        """Read the provider's document and keys if those that are known were read more than `after` seconds ago."""
        if self._clock() - self._read_at < after:
            return
        async with self._reading:
            now = self._clock()
            if now - self._read_at < after:
                return
            # After a failed read, the provider isn't asked for a while, so that requests don't have to wait for it.
            if now - self._tried_at >= (AGAIN_S if self._keys else ANSWER_S):
                try:
                    await self._read()
                except (UnavailableError, RefusedAnswerError) as error:
                    LOG.warning("the identity provider's keys can't be read", reason=str(error))
                else:
                    self._read_at = now
                    return
                finally:
                    self._tried_at = self._clock()
            if now - self._read_at > KEPT_S:
                raise UnavailableError(f"the identity provider {self._issuer} doesn't answer; try again in a moment")

    async def _read(self) -> None:
        where = f"{self._issuer.rstrip('/')}/.well-known/openid-configuration"
        document = await self._ask("GET", where)
        if document.get("issuer") != self._issuer:
            raise UnavailableError(f"{where} is of another issuer than oidc.issuer: {shortened(str(document))}")
        before, self._document = self._document, document
        try:
            listed = (await self._ask("GET", self._endpoint("jwks_uri"))).get("keys")
        except CarawayError:
            self._document = before
            raise
        self._keys = _usable(listed if isinstance(listed, list) else [])

    def _endpoint(self, name: str) -> str:
        address = self._document.get(name)
        if not isinstance(address, str) or not is_safe(address):
            raise UnavailableError(f"the identity provider names no {name} with TLS")
        return address

    async def _ask(self, method: str, address: str, **given: Any) -> Mapping[str, Any]:
        """Return the JSON object that the provider answers.

        Raises:
            RefusedAnswerError: It refuses the request.
            UnavailableError: It doesn't answer in time, or not with a JSON object of a bounded size.
        """
        headers, body = {"accept": "application/json", "accept-encoding": "identity"}, bytearray()
        try:
            # The timeout of httpx2 applies to each single read, and a provider could send one byte at a time. The outer
            # timeout bounds the whole answer.
            async with (
                asyncio.timeout(ANSWER_S),
                httpx2.AsyncClient(verify=self._tls, timeout=ANSWER_S) as client,
                client.stream(method, address, headers=headers, **given) as answer,
            ):
                async for piece in answer.aiter_raw():
                    body += piece
                    if len(body) > MAX_ANSWER:
                        raise UnavailableError(f"{address} answered more than {MAX_ANSWER:,} bytes")
            found = orjson.loads(body)
        except (httpx2.HTTPError, TimeoutError, OSError, ValueError) as error:
            reason = str(error) or type(error).__name__
            raise UnavailableError(f"{address} doesn't answer as it should: {reason}") from error
        if not isinstance(found, dict) or answer.status_code >= httpx2.codes.INTERNAL_SERVER_ERROR:
            raise UnavailableError(f"{address} answered with status {answer.status_code}")
        if not answer.is_success:
            raise RefusedAnswerError(shortened(str(found.get("error", answer.status_code))))
        return found


def _usable(listed: list[Any]) -> Mapping[str | None, Key]:
    """Return the keys that can verify signatures by their names; those for other purposes are left out."""
    keys: dict[str | None, Key] = {}
    for entry in listed[:MAX_KEYS]:
        if not isinstance(entry, dict) or entry.get("use", "sig") != "sig" or not isinstance(entry.get("kid", ""), str):
            continue
        try:
            key = import_key(entry)
        except (JoseError, ValueError, TypeError, KeyError):
            continue
        if isinstance(key, ECKey | OKPKey) or (isinstance(key, RSAKey) and key.public_key.key_size in RSA_BITS):
            keys[entry.get("kid")] = key
    return keys


def provider_of(settings: OidcSettings) -> Provider | None:
    """Return the provider in the settings, None if they name none."""
    return None if settings.issuer is None else Provider(settings.issuer, settings)
