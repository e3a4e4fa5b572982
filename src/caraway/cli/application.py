"""Put the commands together; one module each."""

import typer

from caraway.cli.audit import audit
from caraway.cli.branch import branch
from caraway.cli.commit import commit, preview
from caraway.cli.demo import demo
from caraway.cli.down import down
from caraway.cli.erase import erase
from caraway.cli.explain_query import explanations
from caraway.cli.jars import jars
from caraway.cli.jobs import jobs
from caraway.cli.ledger import ledger
from caraway.cli.log import diff, log, rollback
from caraway.cli.roles import roles
from caraway.cli.secrets import secrets
from caraway.cli.status import status
from caraway.cli.tokens import tokens
from caraway.cli.up import up

app = typer.Typer(
    name="caraway",
    help="Caraway, an open real-time feature platform.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command()(up)
app.command()(down)
app.command()(status)
app.command()(jars)
app.command()(jobs)
app.add_typer(explanations, name="explain")
app.command()(commit)
app.command()(preview)
app.add_typer(branch, name="branch")
app.command()(log)
app.command()(diff)
app.command()(rollback)
app.command()(ledger)
app.command()(erase)
app.add_typer(secrets, name="secrets")
app.add_typer(tokens, name="tokens")
app.add_typer(roles, name="roles")
app.command()(audit)
app.command()(demo)
