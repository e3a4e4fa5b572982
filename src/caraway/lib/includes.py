"""`@includes`, at the place from which users import it."""

from caraway.graph.capture.includes import includes
from caraway.graph.envs import EnvSelector

__all__ = ["EnvSelector", "includes"]
