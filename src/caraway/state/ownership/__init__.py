"""Processes that share work: leases, members of groups, the owners of jobs and shards, and their assignment.

Engines share jobs, servers share the shards of an index, and one server emits the rows of aggregates. All three use
one mechanism. A process holds a lease in Postgres (`leases`), which it claims, renews and releases; each claim has a
greater fencing token. The owners of a group's leases are its members, and a member owns things, such as
jobs, for as long as it is a member (`members`). The assignment of things to members is a pure function of what
all members read (`assignment`), so they agree without messages.
"""
