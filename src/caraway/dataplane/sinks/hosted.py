"""The part of a sink that runs in a process of its own: its writer, and the check of what it writes."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pkgutil import resolve_name
from typing import cast

from caraway.dataplane.confined.host import Platform
from caraway.dataplane.sinks.changes import Change
from caraway.dataplane.sinks.writer import Batch, Check, OpenWriter, Refusal, RetryLaterError, SignIn, Writing
from caraway.graph.plan.model import SinkPlan


class HostedWriter:
    """A writer in the process of its sink; `caraway.dataplane.sinks.remote` is the server's side of each method."""

    def __init__(self, platform: Platform, writer: str, writing: Writing) -> None:
        """Open a writer, given its name as "module:class", and what it needs to know, without functions."""

        def refuse(refusals: Sequence[Refusal]) -> None:
            told = [(each.change.partition, each.change.offset, each.reason) for each in refusals]
            platform.ask("refuse", told)

        completed = replace(
            writing,
            sign_in=replace(writing.sign_in, resolve=platform.resolve),
            refuse=refuse,
            keep=lambda: bool(platform.ask("keep")),
            pause=lambda seconds: platform.ask("pause", seconds),
        )
        self._writer = cast("OpenWriter", resolve_name(writer))(completed)

    def traits(self) -> tuple[str, bool]:
        """Return the guarantee of the writer, and whether its system remembers the position."""
        return self._writer.guarantee, self._writer.remembers

    def positions(self) -> list[tuple[int, int]]:
        """Return the partitions with the offsets behind the last written records."""
        return list(self._writer.positions().items())

    def write(self, changes: Sequence[Change], reached: Mapping[int, int], sent: int) -> tuple[int, str | None]:
        """Write changes; return how many are done, and why the system doesn't take the others now, if so."""
        batch = Batch(changes=changes, reached=reached, sent=sent)
        try:
            self._writer.write(batch)
        except RetryLaterError as error:
            return batch.sent, str(error)
        return batch.sent, None

    def close(self) -> None:
        """End the connection."""
        self._writer.close()


class HostedCheck:
    """The check that a sink can be written."""

    def __init__(self, platform: Platform, check: str, plan: SinkPlan, sign_in: SignIn) -> None:
        """Prepare, given the name of the function as "module:function"."""
        self._check = cast("Check", resolve_name(check))
        self._plan, self._sign_in = plan, replace(sign_in, resolve=platform.resolve)

    def check(self) -> None:
        """Check it; see `caraway.dataplane.sinks.writer.Check`."""
        self._check(self._plan, self._sign_in)

    def close(self) -> None:
        """Do nothing: the check has ended its connection."""
