"""Processes that run users' functions and may only compute: they have no files, network, processes or secrets."""

from caraway.confinement.policy import Confinement, Report, deployment_user
from caraway.confinement.process import ConfinedProcess, UnconfinedError

__all__ = ["ConfinedProcess", "Confinement", "Report", "UnconfinedError", "deployment_user"]
