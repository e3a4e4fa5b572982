"""Secrets at run time: `secrets.get("name")` inside of pipelines and extractors."""

from caraway.graph.runtime import secret_provider


def get(name: str) -> str:
    """Return a secret from the store of the platform.

    Args:
        name: The name under which it was stored, by `client.add_secret` or `caraway secrets set`.

    Raises:
        KeyError: There is no secret of this name.
        NotImplementedError: No pipeline or extractor is running; only these can read secrets.
    """
    provider = secret_provider.get()
    if provider is None:
        raise NotImplementedError(f"secrets.get({name!r}): secrets are known inside pipelines and extractors only")
    return provider(name)
