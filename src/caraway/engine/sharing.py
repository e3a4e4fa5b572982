"""The assignment of jobs to engines: a pure function of the state that all of them read, so that they needn't talk."""

from collections import Counter
from collections.abc import Collection, Mapping


def assigned(jobs: Collection[str], members: Collection[str], owners: Mapping[str, str]) -> Mapping[str, str]:
    """Return the engine of each job: the numbers of jobs differ by one at most, and as few jobs as possible move.

    A job stays with its engine up to that engine's number; if the jobs don't divide evenly, the engines that own most
    get one more.

    Args:
        jobs: All jobs that must run.
        members: The engines that are alive.
        owners: The current owner of each job that has one; it may be dead.
    """
    if not members:
        return {}
    had = Counter(owners[job] for job in jobs if owners.get(job) in members)
    least, more = divmod(len(jobs), len(members))
    ranked = sorted(members, key=lambda member: (-had[member], member))
    left = {member: least + (place < more) for place, member in enumerate(ranked)}
    found: dict[str, str] = {}
    for job in sorted(jobs):
        owner = owners.get(job)
        if owner is not None and left.get(owner, 0) > 0:
            found[job] = owner
            left[owner] -= 1
    places = (member for member in ranked for _ in range(left[member]))
    return found | dict(zip((job for job in sorted(jobs) if job not in found), places, strict=True))
