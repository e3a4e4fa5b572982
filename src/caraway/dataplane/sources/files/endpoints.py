"""The addresses of stores of files: those of the clouds, or those that the setting `sources.endpoints` has."""

import os
from collections.abc import Mapping
from urllib.parse import urlsplit

# The variable by which programs of Google find an emulator, if nothing else says where it is.
GOOGLE_EMULATOR = "STORAGE_EMULATOR_HOST"


def split_address(endpoint: str) -> tuple[str, str]:
    """Return the scheme and the host of an address, which may be "host:port" alone."""
    parts = urlsplit(endpoint if "://" in endpoint else f"https://{endpoint}")
    return parts.scheme, parts.netloc


def google_address(endpoint: str | None, environment: Mapping[str, str] = os.environ) -> str | None:
    """Return the URL of a store that stands for Google's; None if it is Google itself.

    Args:
        endpoint: The address in the settings; None if they have none.
        environment: The variables of the process. Only `STORAGE_EMULATOR_HOST` counts, which may be "host:port".
    """
    if endpoint is not None:
        return "://".join(split_address(endpoint))
    emulator = environment.get(GOOGLE_EMULATOR)
    if not emulator:
        return None
    return "://".join(split_address(emulator if "://" in emulator else f"http://{emulator}"))


def azure_address(account: str, endpoint: str | None) -> str:
    """Return the URL of a storage account of Azure.

    An address whose host begins with the account, as in `https://hives.blob.core.usgovcloudapi.net`, is that of the
    account. Any other one is that of a server in whose paths the account comes first, as Azurite and Azure Stack have
    it.

    Args:
        account: The name of the account.
        endpoint: The address in the settings; None for Azure's own.
    """
    if endpoint is None:
        return f"https://{account}.blob.core.windows.net"
    scheme, host = split_address(endpoint)
    return f"{scheme}://{host}" if host.startswith(f"{account}.") else f"{scheme}://{host}/{account}"
