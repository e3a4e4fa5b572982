"""The addresses that a request may name for its files.

A request is a stranger's. The server reads and writes for it with the network and the rights of its own machine, so
that an address must lead neither to other servers of that network, nor to data which only the server may read.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from caraway.dataplane.addresses.limits import is_below
from caraway.errors import InvalidInputError

S3, GOOGLE, AZURE, LOCAL = ("s3",), ("gs", "gcs"), ("abfs", "abfss"), ("file",)
SCHEMES = (*S3, *GOOGLE, *AZURE, *LOCAL)
# The parameters that an address may have. Arrow knows further parameters, which change the server or the rights with
# which it is accessed, so they are refused.
_REGION, _ENDPOINT, _PROTOCOL = "region", "endpoint_override", "scheme"
_AZURE_HOSTS = ".core.windows.net"
MAX_SHOWN = 200


@dataclass(frozen=True, slots=True)
class AllowedPlaces:
    """The addresses that requests may name.

    Attributes:
        local: True if files of this machine may be used.
        endpoints: Host and port of stores beside those of the clouds, such as one's own MinIO.
        own_rights: Addresses below which files are used with the server's own rights.
        roles: The ARNs of the roles of AWS that the server may assume for a request.
    """

    local: bool = False
    endpoints: Sequence[str] = ()
    own_rights: Sequence[str] = ()
    roles: Sequence[str] = ()

    def check(self, url: str, *, has_keys: bool, role: str | None = None) -> None:
        """Check an address.

        Args:
            url: The address of a folder or a file.
            has_keys: True if the request has access keys of its own.
            role: The ARN of the role of AWS that the request names.

        Raises `InvalidInputError` if a request may not name it.
        """
        address = _split(url)
        shown = url[:MAX_SHOWN]
        if address.password is not None or (address.username is not None and address.scheme not in AZURE):
            raise InvalidInputError(
                "bucket: an access key in an address would be stored in clear; give it as db.db.S3.creds"
            )
        if address.scheme not in SCHEMES:
            raise InvalidInputError(f"{shown}: files are at one of {', '.join(f'{s}://' for s in SCHEMES)}")
        if ".." in unquote(address.path).split("/"):
            raise InvalidInputError(f"{shown}: a path must not have the part '..'")
        if address.scheme in LOCAL:
            if not self.local:
                raise InvalidInputError(
                    f"{shown} is on the server's own machine; its files are used only if its setting "
                    "offline.local_files is true"
                )
            return
        self._check_server(address, shown)
        if role is not None:
            # The libraries of other stores would disregard the role, and use the server's own rights.
            if address.scheme not in S3:
                raise InvalidInputError(f"{shown}: role_arn is a role of AWS, for s3:// only; leave it out")
            if role not in self.roles:
                raise InvalidInputError(
                    f"{shown}: the server assumes the role {role[:MAX_SHOWN]} only if its setting offline.roles has it"
                )
            return
        if not has_keys and not self._is_own(url):
            raise InvalidInputError(
                f"{shown}: the request has neither access keys nor a role for it. The server's own rights are used "
                "only for addresses below those of its setting offline.own_rights"
            )

    def _check_server(self, address: SplitResult, shown: str) -> None:
        """Check that an address leads to a cloud's store or to a known endpoint."""
        try:
            parameters = dict(parse_qsl(address.query, strict_parsing=bool(address.query)))
        except ValueError:
            raise InvalidInputError(f"{shown}: {address.query[:MAX_SHOWN]!r} are no parameters") from None
        endpoint = parameters.get(_ENDPOINT)
        if endpoint is None and address.scheme in AZURE and not (address.hostname or "").endswith(_AZURE_HOSTS):
            # Arrow reads the host of such an address as a container of the account that the server itself uses. So this
            # host must be among the endpoints that the settings allow.
            endpoint = (address.netloc.rpartition("@")[2]).lower()
        if endpoint is not None and endpoint not in self.endpoints:
            raise InvalidInputError(
                f"{shown}: the server opens connections to {endpoint[:MAX_SHOWN]} only if its setting "
                "offline.endpoints has it"
            )
        known = {_REGION} if endpoint is None else {_REGION, _ENDPOINT, _PROTOCOL}
        if others := sorted(parameters.keys() - known):
            raise InvalidInputError(f"{shown}: the parameter {others[0][:MAX_SHOWN]!r} isn't known; {_REGION} is")

    def _is_own(self, url: str) -> bool:
        return is_below(_split(url)._replace(query="", fragment="").geturl(), self.own_rights)


def _split(url: str) -> SplitResult:
    try:
        address = urlsplit(url)
        _ = address.port
    except ValueError as error:
        raise InvalidInputError(f"bucket: {url[:MAX_SHOWN]!r} is no address ({error})") from None
    return address
