"""The base of a section of settings, and the types of values that several sections have."""

from ipaddress import ip_network
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field


def absolute(path: Path) -> Path:
    """Return the absolute path of a file or folder that a setting names."""
    # Processes such as Kafka and the engine are started in working directories of their own and read these settings
    # again. A relative path would mean another folder there, so it is made absolute first.
    return path.expanduser().absolute()


def _network(text: str) -> str:
    return str(ip_network(text, strict=False))


def _spark_master(master: str) -> str:
    if not master.startswith(("local", "spark://", "yarn", "k8s://")):
        raise ValueError("must be local[N], spark://host:port, yarn or k8s://…")
    return master


FolderPath = Annotated[Path, AfterValidator(absolute)]
Network = Annotated[str, AfterValidator(_network)]
Port = Annotated[int, Field(ge=0, le=65535)]
MemorySize = Annotated[str, Field(pattern=r"^[1-9]\d*[mMgG]$")]
SparkMaster = Annotated[str, AfterValidator(_spark_master)]


class Section(BaseModel):
    """A section of the settings."""

    model_config = ConfigDict(frozen=True, extra="forbid")
