"""The parts of a server that most others are made of: its settings, its database, its keys and its definitions."""

import socket
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import sqlalchemy as sa

from caraway.apps.server.erasure.eraser import Eraser
from caraway.compute.extractors.pool import FunctionPool
from caraway.dataplane.objects.folder import ObjectFolder
from caraway.dataplane.sources.functions.calls import FunctionCalls
from caraway.dataplane.topics.credentials import sign_in
from caraway.dataplane.topics.erased_keys import ErasedKeys
from caraway.errors import UnavailableError
from caraway.graph.plan.model import GraphPlan
from caraway.graph.secrets.resolver import resolver
from caraway.graph.systems import Secretish
from caraway.process.confinement.configured import confinement_of, write_note
from caraway.process.program import database_url
from caraway.process.secrets.keyring import Keyring, open_keyring
from caraway.process.settings.settings import Settings
from caraway.state.database import connect, require_tables
from caraway.state.migrate import migrate
from caraway.state.plans import Needed, Plans
from caraway.state.reader import StateReader
from caraway.state.secrets import SecretStore
from caraway.state.tables import metadata


def addresses(settings: Settings) -> tuple[str, str]:
    """Return the URL of Postgres and the address of the broker, at which this process signs in from now on.

    Raises `ConfigurationError` if Postgres or Kafka isn't named.
    """
    return database_url(settings, "the server"), sign_in(settings.kafka)


def function_pool(settings: Settings, secrets: SecretStore, processes: int) -> FunctionPool:
    """Return the processes for users' functions; they aren't started yet."""
    return FunctionPool(
        processes,
        settings.server.extractor_seconds,
        settings.server.extractor_memory_mb,
        secrets=secrets.get,
        confinement=confinement_of(settings),
        started=partial(write_note, settings.data_dir),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Foundation:
    """The parts that most others are made of.

    Attributes:
        settings: The settings of the server.
        url: The URL of Postgres.
        servers: The broker, "host:port".
        engine: The connections to Postgres.
        keyring: The keys of the deployment.
        erased: The erased keys.
        objects: The object store.
        plans: Reads the definitions that the branches need.
        secrets: The secrets of definitions.
        state: Reads what is in Postgres.
    """

    settings: Settings
    url: str
    servers: str
    engine: sa.Engine
    keyring: Keyring
    erased: ErasedKeys
    objects: ObjectFolder
    plans: Plans
    secrets: SecretStore
    state: StateReader

    @property
    def member(self) -> str:
        """The name of this server among those of the deployment."""
        return f"{socket.gethostname()}:{self.settings.data_dir}"

    @property
    def functions(self) -> Callable[[], FunctionCalls]:
        """A function that makes the process for the functions of a source."""
        return partial(
            FunctionCalls,
            self.settings.server.extractor_seconds,
            self.settings.server.extractor_memory_mb,
            confinement=confinement_of(self.settings),
            secrets=self.secrets.get,
        )

    def needed(self) -> Needed | None:
        """Return what the branches need; None before it was read once."""
        return self.plans.needed

    def served_plans(self) -> list[GraphPlan]:
        """Return the plans of the commits that branches serve; none before they were read once."""
        return [] if self.plans.needed is None else served_plans(self.plans.needed)

    def resolve(self) -> Callable[[Secretish], str]:
        """Return the look-up of secrets that definitions refer to: those of the store, and what the settings list."""

        def newest_secret(name: str) -> str:
            self.secrets.refresh()
            return self.secrets.get(name)

        settings = self.settings
        # The data folder, the key file and the file of the admin token must not be readable as secrets, even if the
        # settings list them.
        own = settings.data_dir, settings.key_file, settings.server.admin_token_file or settings.data_dir
        return resolver(newest_secret, settings.secrets, own).resolve


def foundation_of(settings: Settings) -> Foundation:
    """Return the parts that most others are made of; the server connects to nothing yet.

    Raises:
        ConfigurationError: Postgres or Kafka isn't named.
        UnavailableError: The address of the object store means nothing.
    """
    url, servers = addresses(settings)
    objects, keyring, engine = ObjectFolder(settings.objects_url), open_keyring(settings.key_file), connect(url)
    require_tables(engine, metadata.tables)
    state = StateReader(engine)
    return Foundation(
        settings=settings,
        url=url,
        servers=servers,
        engine=engine,
        keyring=keyring,
        # `ErasedKeys` calls this after new erasures, and at each check of a key while the secret of some erasure's hash
        # is missing. The key file is read anew each time, because an operator may add the missing secret at any time.
        erased=ErasedKeys(lambda: open_keyring(settings.key_file).mac_keys()),
        objects=objects,
        plans=Plans(state),
        secrets=SecretStore(engine, keyring),
        state=state,
    )


class Definitions:
    """The reads of all that the branches need, in tables that the first read creates or brings up to date."""

    def __init__(self, postgres_url: str, plans: Plans, secrets: SecretStore, eraser: Eraser) -> None:
        """Read `plans`, and before them the secrets and erased keys."""
        self._postgres_url = postgres_url
        self._plans = plans
        self._secrets = secrets
        self._eraser = eraser
        self._migrated = False

    def read(self) -> Needed:
        """Return what the branches need now. Raises `UnavailableError` if Postgres doesn't answer."""
        if not self._migrated:
            migrate(self._postgres_url)
            self._migrated = True
        # The erased keys are read before the commits. So when queries begin to use a new commit, they already hide the
        # rows of all keys that were erased before this read.
        self._eraser.refresh()
        self._secrets.refresh()
        return self._plans.refresh()

    def require_tables(self) -> None:
        """Raise UnavailableError as long as the tables don't exist."""
        if not self._migrated:
            raise UnavailableError("the server has not set up the tables yet")


def served_plans(needed: Needed) -> list[GraphPlan]:
    """Return the plans of the commits that branches serve."""
    return [needed.commits[branch.serving].plan for branch in needed.heads.branches if branch.serving is not None]
