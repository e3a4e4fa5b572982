"""The table of all commands: the page of help is made from it, and each command is found in it."""

from caraway.apps.cli.lazy import Listed, Section

SECTIONS = (
    Section(
        "The stack",
        (
            Listed("up", "caraway.apps.cli.up:up", "Start the stack and keep it running.", "server"),
            Listed("down", "caraway.apps.cli.down:down", "Stop the stack; the data stays.", "server"),
            Listed("status", "caraway.apps.cli.status:status", "Show each part of the stack.", "server"),
            Listed("jobs", "caraway.apps.cli.jobs:jobs", "Show the streaming jobs.", "server"),
            Listed("logs", "caraway.apps.cli.logs:logs", "Show the last lines of the logs of the stack.", "server"),
            Listed("jars", "caraway.apps.cli.jars:jars", "Fetch the Java libraries ahead of time.", "server"),
            Listed(
                "demo", "caraway.apps.demo.command:demo", "Replay real flights and check every value.", "server,demo"
            ),
        ),
    ),
    Section(
        "Definitions",
        (
            Listed("init", "caraway.apps.cli.init:init", "Make a project with definitions, a test and CI."),
            Listed("commit", "caraway.apps.cli.commit:commit", "Commit the definitions of a module to a branch."),
            Listed("preview", "caraway.apps.cli.commit:preview", "Show what a commit would do."),
            Listed(
                "explain",
                "caraway.apps.cli.explain_query:explanations",
                "Show what runs, or what a query does.",
                "server",
            ),
            Listed("capacity", "caraway.apps.cli.capacity:capacity", "Estimate what definitions need.", "server"),
            Listed("branch", "caraway.apps.cli.branch:branch", "List, create, clone and delete branches."),
            Listed("history", "caraway.apps.cli.history:history", "Show the commits of a branch."),
            Listed("diff", "caraway.apps.cli.history:diff", "Show what differs between two branches or commits."),
            Listed("promote", "caraway.apps.cli.history:promote", "Commit the definitions of a branch to main."),
            Listed("rollback", "caraway.apps.cli.history:rollback", "Commit again what an earlier commit held."),
            Listed("ledger", "caraway.apps.cli.ledger:ledger", "Show what commits still have to make or remove."),
        ),
    ),
    Section(
        "Data",
        (
            Listed("datasets", "caraway.apps.cli.describe:datasets", "List the datasets of a branch."),
            Listed("features", "caraway.apps.cli.describe:features", "List the features of a branch."),
            Listed("describe", "caraway.apps.cli.describe:describe", "Show a definition and who uses it."),
            Listed("inspect", "caraway.apps.cli.inspect:inspect", "Show the newest rows of a dataset."),
            Listed("lineage", "caraway.apps.cli.inspect:lineage", "Show what is computed from what."),
            Listed("xray", "caraway.apps.cli.inspect:xray", "Show properties of datasets and featuresets."),
            Listed("log", "caraway.apps.cli.log:log", "Send rows to an endpoint of a webhook."),
            Listed("wait", "caraway.apps.cli.wait:wait", "Wait until all accepted rows are served."),
            Listed("query", "caraway.apps.cli.query:query", "Compute features for rows of inputs."),
            Listed("lookup", "caraway.apps.cli.query:lookup", "Look up rows of a dataset by key."),
            Listed("why", "caraway.apps.cli.why:why", "Explain a value: the events behind it."),
            Listed("source", "caraway.apps.cli.source:source", "List sources, and try one before its commit."),
            Listed(
                "dead-letters",
                "caraway.apps.cli.dead_letters:dead_letters",
                "List, show, repair and replay refused rows.",
            ),
            Listed("archive", "caraway.apps.cli.archive:archive", "Show the tables of the archive."),
            Listed("offline", "caraway.apps.cli.offline:offline", "List, follow and cancel offline queries."),
            Listed("freshness", "caraway.apps.cli.freshness:freshness", "Show how old what queries read is."),
            Listed("skew", "caraway.apps.cli.skew:skew", "Show where served features differ from recomputed ones."),
            Listed("drift", "caraway.apps.cli.drift:drift", "Show which served features have drifted."),
            Listed("expectations", "caraway.apps.cli.expectations:expectations", "Show how many rows are as expected."),
            Listed("mcp", "caraway.apps.cli.mcp:mcp", "Serve the catalog and features to AI agents.", "mcp"),
            Listed("erase", "caraway.apps.cli.erase:erase", "Erase all rows of some keys, and those to come."),
        ),
    ),
    Section(
        "Access",
        (
            Listed("login", "caraway.apps.cli.login:login", "Sign in at the identity provider of a server."),
            Listed("logout", "caraway.apps.cli.login:logout", "Forget the sign-in for a server, and end it."),
            Listed("tokens", "caraway.apps.cli.tokens:tokens", "Create, list and revoke tokens.", "server"),
            Listed("roles", "caraway.apps.cli.roles:roles", "Define roles and give them to accounts.", "server"),
            Listed("secrets", "caraway.apps.cli.secrets:secrets", "Set, list, delete and rotate secrets."),
            Listed("audit", "caraway.apps.cli.audit:audit", "Show who changed what, and who was refused.", "server"),
        ),
    ),
)
