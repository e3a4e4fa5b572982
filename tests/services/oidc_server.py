"""An identity provider that speaks OpenID Connect, made of Authlib: `python -m tests.services.oidc_server PORT`.

It is what companies run, but small: discovery, a form to sign in, codes that count once and need their PKCE verifier,
tokens, keys that can be rotated. Its person is ada@example.com with the password "lovelace" and the groups that a test
has given her. Paths below `/test/` are the test's own ways to change what it does.
"""

import re
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from types import SimpleNamespace
from typing import Any

from authlib.integrations.flask_oauth2 import AuthorizationServer
from authlib.oauth2.rfc6749 import AuthorizationCodeMixin, ClientMixin, TokenMixin, grants
from authlib.oauth2.rfc6750 import BearerTokenGenerator
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from flask import Flask, Response, redirect, request
from joserfc import jwt
from joserfc.jwk import ECKey, KeySet, OKPKey, RSAKey

PORT = int(sys.argv[1])
ISSUER = f"http://127.0.0.1:{PORT}"
CLIENT, SECRET, AUDIENCE = "caraway-console", "the-secret-of-the-client", "caraway-api"
# The command line, which has no secret, and comes back to any port of the machine.
PROGRAM = "caraway-cli"
LOOPBACK = re.compile(r"http://127\.0\.0\.1:\d+/")
SCOPE = "topics"
KINDS: Mapping[str, tuple[type[Any], Any]] = {
    "RS256": (RSAKey, 2048),
    "ES256": (ECKey, "P-256"),
    "EdDSA": (OKPKey, "Ed25519"),
}
FORM = '<form method="post"><input name="user"><input name="password" type="password"><button>Go</button></form>'

app = Flask(__name__)
app.secret_key = "a key of tests"
state = SimpleNamespace(
    keys=[],
    made=0,
    codes={},
    redirect_uri="",
    groups=["features"],
    misbehaves="",
    asked=0,
    lasts=600,
    refresh={},
    front=ISSUER,
)


def token_of(client: "Client") -> str:
    """Return a token of ada for the API, for the command line; the console uses none."""
    if client.name != PROGRAM:
        return secrets.token_hex(16)
    algorithm, key = state.keys[-1]
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "groups": state.groups, "iat": now}
    # Two tokens of one second differ.
    claims |= {"exp": now + state.lasts, "jti": secrets.token_hex(8)}
    made: str = jwt.encode({"alg": algorithm, "kid": key.kid}, claims, key, algorithms=[algorithm])
    return made


def add_key(algorithm: str) -> None:
    kind, size = KINDS[algorithm]
    state.made += 1
    name = f"key-{state.made}"
    state.keys.append((algorithm, kind.generate_key(size, {"kid": name, "use": "sig", "alg": algorithm}, private=True)))


class Client(ClientMixin):  # type: ignore[misc]
    """The console of Caraway, or its command line, as the provider knows it."""

    def __init__(self, name: str) -> None:
        self.name = name

    def get_client_id(self) -> str:
        return self.name

    def get_default_redirect_uri(self) -> str:
        return str(state.redirect_uri)

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_redirect_uri(self, redirect_uri: str) -> bool:
        if self.name == PROGRAM:
            return LOOPBACK.fullmatch(redirect_uri) is not None
        return bool(redirect_uri == state.redirect_uri)

    def check_client_secret(self, client_secret: str) -> bool:
        return client_secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return (method, endpoint) == ("none" if self.name == PROGRAM else "client_secret_basic", "token")

    def check_response_type(self, response_type: str) -> bool:
        return response_type == "code"

    def check_grant_type(self, grant_type: str) -> bool:
        return grant_type == "authorization_code" or (grant_type, self.name) == ("refresh_token", PROGRAM)


class Code(AuthorizationCodeMixin):  # type: ignore[misc]
    """A code, with what the browser has asked for."""

    def __init__(self, text: str, payload: Any) -> None:
        self.code, self.auth_time = text, int(time.time())
        self.redirect_uri, self.scope, self.nonce = payload.redirect_uri, payload.scope, payload.data.get("nonce")
        self.code_challenge = payload.data.get("code_challenge")
        self.code_challenge_method = payload.data.get("code_challenge_method")

    def get_redirect_uri(self) -> str:
        return str(self.redirect_uri)

    def get_scope(self) -> str:
        return str(self.scope)

    def get_nonce(self) -> str | None:
        return "of another sign-in" if state.misbehaves == "nonce" else self.nonce

    def get_auth_time(self) -> int:
        return self.auth_time

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class CodeGrant(grants.AuthorizationCodeGrant):  # type: ignore[misc]
    """Codes that count once."""

    TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic", "none")

    def save_authorization_code(self, code: str, request: Any) -> None:
        state.codes[code] = Code(code, request.payload)

    def query_authorization_code(self, code: str, client: Client) -> Code | None:
        del client
        found: Code | None = state.codes.get(code)
        return found

    def delete_authorization_code(self, authorization_code: Code) -> None:
        del state.codes[authorization_code.code]

    def authenticate_user(self, authorization_code: Code) -> str:
        del authorization_code
        return "ada"


class Refresh(TokenMixin):  # type: ignore[misc]
    """A refresh token of the command line."""

    def __init__(self, text: str, scope: str) -> None:
        self.text, self.scope = text, scope

    def check_client(self, client: Client) -> bool:
        return client.name == PROGRAM

    def get_scope(self) -> str:
        return self.scope


class RefreshGrant(grants.RefreshTokenGrant):  # type: ignore[misc]
    """Refresh tokens that count once."""

    TOKEN_ENDPOINT_AUTH_METHODS = ("none",)
    INCLUDE_NEW_REFRESH_TOKEN = True

    def authenticate_refresh_token(self, refresh_token: str) -> Refresh | None:
        found: Refresh | None = state.refresh.get(refresh_token)
        return found

    def authenticate_user(self, refresh_token: Refresh) -> str:
        del refresh_token
        return "ada"

    def revoke_old_credential(self, refresh_token: Refresh) -> None:
        del state.refresh[refresh_token.text]


class IdTokens(OpenIDCode):  # type: ignore[misc]
    """The ID tokens of ada."""

    def exists_nonce(self, nonce: str, request: Any) -> bool:
        del nonce, request
        return False

    def get_jwt_config(self, grant: Any, client: Any = None) -> dict[str, Any]:
        del grant, client
        algorithm, key = state.keys[-1]
        return {"key": key.as_dict(private=True), "alg": algorithm, "iss": ISSUER, "exp": 600, "kid": key.kid}

    def generate_user_info(self, user: str, scope: str) -> UserInfo:
        del user, scope
        return UserInfo(sub="ada", email="ada@example.com", email_verified=True, groups=state.groups)


def keep(token: Mapping[str, Any], request: Any) -> None:
    """Keep the refresh token of an answer."""
    del request
    if (text := token.get("refresh_token")) is not None:
        state.refresh[text] = Refresh(text, token.get("scope", ""))


server = AuthorizationServer(
    app, query_client=lambda name: Client(name) if name in {CLIENT, PROGRAM} else None, save_token=keep
)
server.register_token_generator(
    "default",
    BearerTokenGenerator(
        lambda client, **_: token_of(client), lambda **_: secrets.token_hex(16), lambda client, grant_type: state.lasts
    ),
)
server.register_grant(RefreshGrant)
server.register_grant(CodeGrant, [CodeChallenge(required=True), IdTokens(require_nonce=True)])


@app.get("/.well-known/openid-configuration")
def document() -> Any:
    state.asked += 1
    if state.misbehaves == "slow":
        return Response(drip(), content_type="application/json")
    if state.misbehaves == "huge":
        return Response(b" " * (64 * 1024 * 1024), content_type="application/json")
    return {
        "issuer": "http://127.0.0.1:1" if state.misbehaves == "issuer" else ISSUER,
        "authorization_endpoint": f"{state.front}/authorize",
        "token_endpoint": f"{ISSUER}/token",
        "jwks_uri": f"{ISSUER}/keys",
        "revocation_endpoint": f"{ISSUER}/revoke",
    }


def drip() -> Iterator[bytes]:
    """Send a byte every half second, so that no single read takes long."""
    while True:
        time.sleep(0.5)
        yield b" "


@app.get("/keys")
def keys() -> Any:
    return KeySet([key for _, key in state.keys]).as_dict(private=False)


@app.route("/authorize", methods=["GET", "POST"])
def authorize() -> Any:
    grant = server.get_consent_grant(end_user="ada")
    if request.method == "GET":
        return FORM
    if request.form.get("password") != "lovelace":
        return redirect(f"{grant.request.payload.redirect_uri}?error=access_denied&state={grant.request.payload.state}")
    return server.create_authorization_response(grant_user="ada", grant=grant)


@app.post("/token")
def token() -> Any:
    return server.create_token_response()


@app.post("/revoke")
def revoke() -> Any:
    """End a refresh token (RFC 7009)."""
    state.refresh.pop(request.form["token"], None)
    return {}


@app.post("/machines")
def machines() -> Any:
    """Return a token for the grant `client_credentials`."""
    shown, form = request.authorization, request.form
    if shown is None or (shown.username, shown.password) != (CLIENT, SECRET):
        return {"error": "invalid_client"}, 401
    if form.get("grant_type") != "client_credentials" or form.get("scope") != SCOPE:
        return {"error": "invalid_scope"}, 400
    algorithm, key = state.keys[-1]
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": CLIENT, "scope": SCOPE, "iat": now, "exp": now + 600}
    given = jwt.encode({"alg": algorithm, "kid": key.kid}, claims, key, algorithms=[algorithm])
    return {"access_token": given, "token_type": "Bearer", "expires_in": 600, "scope": SCOPE}


@app.post("/test/set")
def change() -> Any:
    """Set what the provider knows or does."""
    vars(state).update(request.get_json())
    return {"asked": state.asked, "refresh": len(state.refresh)}


@app.post("/test/rotate/<algorithm>")
def rotate(algorithm: str) -> Any:
    """Replace the key."""
    state.keys.clear()
    add_key(algorithm)
    return {}


@app.post("/test/token")
def make() -> Any:
    """Sign a token for the API as it is told to, over what is right."""
    asked = request.get_json()
    algorithm, key = state.keys[-1]
    now = int(time.time())
    claims = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "groups": state.groups, "iat": now, "exp": now + 600}
    header = {"alg": algorithm, "kid": key.kid, **asked.get("header", {})}
    return {"token": jwt.encode(header, {**claims, **asked.get("claims", {})}, key, algorithms=[algorithm])}


if __name__ == "__main__":
    add_key("RS256")
    app.run("127.0.0.1", PORT, threaded=True)
