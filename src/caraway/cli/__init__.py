"""The command `caraway`."""

try:
    from caraway.cli.application import app
except ModuleNotFoundError as error:
    if error.name is None or error.name.split(".")[0] == "caraway":
        raise
    # The script is there after `pip install caraway` too, which brings authoring and client alone.
    raise SystemExit(f"caraway needs {error.name}, which comes with: pip install 'caraway[server,demo]'") from None

__all__ = ["app"]
