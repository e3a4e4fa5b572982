"""The checks that the branches need."""

from collections.abc import Mapping

from caraway.graph.plan.model import CheckPlan
from caraway.state.plans import Needed


def checks_of(needed: Needed) -> dict[str, CheckPlan]:
    """Return the checks of all branches by name; one that several branches share is there once."""
    found = {check.check_id: check for planned in needed.commits.values() for check in planned.plan.checks}
    # Several commits may have the same check, but name different owners of its dataset. The checks of served commits
    # replace the others, so that their owners get the alerts.
    served = {branch.serving for branch in needed.heads.branches if branch.serving is not None}
    return found | {check.check_id: check for name in served for check in needed.commits[name].plan.checks}


def branches_of(needed: Needed) -> Mapping[str, list[str]]:
    """Return the branches that serve each check, by its name."""
    found: dict[str, list[str]] = {}
    for branch in needed.heads.branches:
        for check in needed.commits[branch.serving].plan.checks if branch.serving is not None else ():
            found.setdefault(check.check_id, []).append(branch.name)
    return found
