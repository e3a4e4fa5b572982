"""The settings of OpenID Connect, by which people and programs of an identity provider are known."""

from typing import Annotated
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, ValidationInfo, field_validator

from caraway.process.settings.section import FolderPath, Section

# The page to which the provider sends browsers back.
RETURN_PATH = "/console/signed-in"
_LOOPBACK = frozenset({"127.0.0.1", "::1", "localhost"})


def is_safe(url: str) -> bool:
    """Return whether nobody on the network can read or change what is sent to a URL: by TLS, or on this machine."""
    parts = urlsplit(url)
    return parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOOPBACK)


def _issuer(url: str) -> str:
    if not is_safe(url) or urlsplit(url).query or urlsplit(url).fragment:
        raise ValueError("must be https://…, as the provider names itself; http:// only on this machine")
    return url


def _return_address(url: str) -> str:
    if not is_safe(url) or urlsplit(url).path != RETURN_PATH or urlsplit(url).query or urlsplit(url).fragment:
        raise ValueError(f"must be https://NAME{RETURN_PATH}, the name of the console; http:// only on this machine")
    return url


Scope = Annotated[str, Field(pattern=r"^[^\s\"\\]+$")]


class OidcSettings(Section):
    """An identity provider that speaks OpenID Connect. The groups that it names decide about roles.

    Attributes:
        issuer: The provider as it names itself, such as `https://login.example.com/realms/main`; None: there is none,
            and only tokens of Caraway are known.
        client_id: The name of the console at the provider; people sign in to it if it and `redirect_url` are set.
        client_secret_file: A file with the secret of this client; None: the client is a public one, as PKCE allows.
        redirect_url: The address to which the provider sends browsers back, `https://NAME/console/signed-in`. It has to
            be registered at the provider, letter for letter.
        audience: The audience that a JWT needs for the API; None: the API takes no JWTs.
        cli_client_id: The name of the command line at the provider, a public client (`caraway login`); None: nobody
            signs in there for commands.
        cli_scopes: The scopes that the command line asks for besides `openid`.
        roles: The roles of each group; who is in none of these groups may do nothing.
        account_claim: The claim with the name of the account, in which `oidc:` stands before it here.
        groups_claim: The claim with the names of groups.
        scopes: The scopes that the console asks for besides `openid`.
        ca_file: A file in PEM with the certificate authorities by which the provider is verified; None: those of the
            system.
    """

    issuer: Annotated[str, AfterValidator(_issuer)] | None = None
    client_id: Annotated[str, Field(min_length=1)] | None = None
    client_secret_file: FolderPath | None = None
    redirect_url: Annotated[str, AfterValidator(_return_address)] | None = Field(default=None, validate_default=True)
    audience: Annotated[str, Field(min_length=1)] | None = None
    cli_client_id: Annotated[str, Field(min_length=1)] | None = None
    cli_scopes: tuple[Scope, ...] = ("offline_access",)
    roles: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    account_claim: Annotated[str, Field(min_length=1)] = "sub"
    groups_claim: Annotated[str, Field(min_length=1)] = "groups"
    scopes: tuple[Scope, ...] = ("profile", "email")
    ca_file: FolderPath | None = None

    @field_validator("client_id", "redirect_url", "audience", "cli_client_id")
    @classmethod
    def _needs_a_provider(cls, value: str | None, info: ValidationInfo) -> str | None:
        if value is not None and info.data.get("issuer", "") is None:
            raise ValueError("oidc.issuer must name the provider")
        if info.field_name == "redirect_url" and (value is None) != (info.data.get("client_id") is None):
            raise ValueError("it and oidc.client_id are set together, or neither is")
        if info.field_name == "cli_client_id" and value is not None and info.data.get("audience") is None:
            raise ValueError("oidc.audience must be set, by which the API takes the tokens of the provider")
        return value
