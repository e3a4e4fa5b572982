"""The base of a section of settings, and paths in settings."""

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict


def absolute(path: Path) -> Path:
    """Return the absolute path of a file or folder that a setting names."""
    # Processes such as Kafka and the engine are started in working directories of their own and read these settings
    # again. A relative path would mean another folder there, so it is made absolute first.
    return path.expanduser().absolute()


FolderPath = Annotated[Path, AfterValidator(absolute)]


class Section(BaseModel):
    """A section of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
