"""The command `caraway`."""

try:
    from caraway.apps.cli.application import app
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] == "caraway":
        raise
    # `pip install caraway` brings the script as well, but neither typer nor rich.
    raise SystemExit(f"caraway needs {error.name}, which comes with: pip install 'caraway[cli]'") from None

__all__ = ["app"]
