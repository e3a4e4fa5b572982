"""The owners of things in Postgres, compared with the same rules in a few lines of Python."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
import sqlalchemy as sa
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from caraway.errors import UnavailableError
from caraway.state.database import connect
from caraway.state.ownership.members import ENGINES, Member
from caraway.state.ownership.shards import shard_member
from caraway.state.tables import leases
from tests.effort import examples
from tests.unit.state.ownership.members import MemoryMember, Table

LONG, OVER = timedelta(hours=1), timedelta(seconds=-1)
JOBS = ("a", "b", "c")


def member(engine: sa.Engine, name: str) -> Member:
    one = Member(engine=engine, group=ENGINES, node=name)
    token = one.lease.claim(LONG, succeeds=True)
    assert token is not None
    return one.with_token(token)


names = st.sampled_from(["one", "two"])
jobs = st.sets(st.sampled_from(JOBS), min_size=1)
actions = st.one_of(
    st.tuples(st.sampled_from(["join", "miss", "return"]), names),
    st.tuples(st.just("take"), names, jobs, st.booleans(), st.booleans()),
    st.tuples(st.just("take over"), names, st.sampled_from(JOBS), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("give up"), names, jobs, st.booleans()),
    st.tuples(st.just("forget"), names, jobs),
)


@given(steps=st.lists(actions, max_size=25))
@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
def test_it_does_what_a_table_in_memory_does(engine: sa.Engine, steps: list[tuple[object, ...]]) -> None:
    with engine.begin() as connection:
        connection.execute(sa.delete(leases))
    table = Table()
    # For each name the running process, and those that it has replaced.
    pairs: dict[str, list[tuple[Member, MemoryMember]]] = {}
    for step in (("join", "one"), ("join", "two"), *steps):
        match step:
            case ("join", str(name)):
                pairs.setdefault(name, []).insert(0, (member(engine, name), table.join(name)))
            case ("miss", str(name)):
                real, _ = pairs[name][0]
                assert real.lease.renew(real.token, OVER)
                table.alive.pop(name, None)
            case ("return", str(name)):
                real, model = pairs[name][0]
                assert real.lease.renew(real.token, LONG)
                assert not real.lease.renew(real.token - 1, LONG)
                table.alive[name] = model.token
            case ("take", str(name), set(wanted), bool(successor), bool(old)):
                real, model = pairs[name][-1 if old else 0]
                assert real.take_free(wanted, successor=successor) == model.take_free(wanted, successor=successor)
            case ("take over", str(name), str(thing), int(behind), bool(old)):
                real, model = pairs[name][-1 if old else 0]
                token = max(0, table.owned(thing).token - behind)
                assert real.take_over(thing, token) == model.take_over(thing, token)
            case ("give up", str(name), set(given_up), bool(old)):
                real, model = pairs[name][-1 if old else 0]
                real.give_up(given_up)
                model.give_up(given_up)
            case ("forget", str(name), set(gone)):
                real, model = pairs[name][0]
                real.forget(gone)
                model.forget(gone)
        real, model = pairs["one"][0]
        assert real.name == model.name
        seen, expected = real.look(), model.look()
        assert seen == expected


def test_a_member_waits_for_the_tables(empty_postgres: str) -> None:
    engine = connect(empty_postgres)
    with pytest.raises(UnavailableError, match="not set up the tables"):
        Member(engine=engine, group=ENGINES, node="early").look()
    with pytest.raises(UnavailableError, match="not set up the tables yet"):
        shard_member(engine, "early", 4).look_at_shards()
    engine.dispose()


def test_of_many_that_take_at_once_one_has_each(engine: sa.Engine) -> None:
    members = [member(engine, str(number)) for number in range(8)]
    wanted = [f"job{n}" for n in range(10)]
    with ThreadPoolExecutor(8) as pool:
        won = list(pool.map(lambda one: one.take_free(wanted, successor=False), members))
    assert sorted(job for taken in won for job in taken) == wanted
    assert {token for taken in won for token in taken.values()} == {1}
    owners = {job: owned.member for job, owned in members[0].look().owned.items()}
    assert owners == {job: one.name for one, taken in zip(members, won, strict=True) for job in taken}
