"""The table of all commands: the page of help is made from it, and each command is found in it."""

from caraway.cli.lazy import Listed, Section

SECTIONS = (
    Section(
        "The stack",
        (
            Listed("up", "caraway.cli.up:up", "Start the stack and keep it running.", "server"),
            Listed("down", "caraway.cli.down:down", "Stop the stack; the data stays.", "server"),
            Listed("status", "caraway.cli.status:status", "Show each part of the stack.", "server"),
            Listed("jobs", "caraway.cli.jobs:jobs", "Show the streaming jobs.", "server"),
            Listed("jars", "caraway.cli.jars:jars", "Fetch the Java libraries ahead of time.", "server"),
            Listed("demo", "caraway.demo.command:demo", "Replay real flights and check every value.", "server,demo"),
        ),
    ),
    Section(
        "Definitions",
        (
            Listed("init", "caraway.cli.init:init", "Make a project with definitions, a test and CI."),
            Listed("commit", "caraway.cli.commit:commit", "Commit the definitions of a module to a branch."),
            Listed("preview", "caraway.cli.commit:preview", "Show what a commit would do."),
            Listed(
                "explain", "caraway.cli.explain_query:explanations", "Show what runs, or what a query does.", "server"
            ),
            Listed("capacity", "caraway.cli.capacity:capacity", "Estimate what definitions need.", "server"),
            Listed("branch", "caraway.cli.branch:branch", "List, create, clone and delete branches."),
            Listed("history", "caraway.cli.history:history", "Show the commits of a branch."),
            Listed("diff", "caraway.cli.history:diff", "Show what differs between two branches or commits."),
            Listed("promote", "caraway.cli.history:promote", "Commit the definitions of a branch to main."),
            Listed("rollback", "caraway.cli.history:rollback", "Commit again what an earlier commit held."),
            Listed("ledger", "caraway.cli.ledger:ledger", "Show what commits still have to make or remove."),
        ),
    ),
    Section(
        "Data",
        (
            Listed("datasets", "caraway.cli.describe:datasets", "List the datasets of a branch."),
            Listed("describe", "caraway.cli.describe:describe", "Show a definition and who uses it."),
            Listed("inspect", "caraway.cli.inspect:inspect", "Show the newest rows of a dataset."),
            Listed("lineage", "caraway.cli.inspect:lineage", "Show what is computed from what."),
            Listed("xray", "caraway.cli.inspect:xray", "Show properties of datasets and featuresets."),
            Listed("log", "caraway.cli.log:log", "Send rows to an endpoint of a webhook."),
            Listed("wait", "caraway.cli.wait:wait", "Wait until all accepted rows are served."),
            Listed("query", "caraway.cli.query:query", "Compute features for rows of inputs."),
            Listed("lookup", "caraway.cli.query:lookup", "Look up rows of a dataset by key."),
            Listed("why", "caraway.cli.why:why", "Explain a value: the events behind it."),
            Listed("source", "caraway.cli.source:source", "List sources, and try one before its commit."),
            Listed(
                "dead-letters", "caraway.cli.dead_letters:dead_letters", "List, show, repair and replay refused rows."
            ),
            Listed("archive", "caraway.cli.archive:archive", "Show the tables of the archive."),
            Listed("offline", "caraway.cli.offline:offline", "List, follow and cancel offline queries."),
            Listed("freshness", "caraway.cli.freshness:freshness", "Show how old what queries read is."),
            Listed("skew", "caraway.cli.skew:skew", "Show where served features differ from recomputed ones."),
            Listed("drift", "caraway.cli.drift:drift", "Show which served features have drifted."),
            Listed("expectations", "caraway.cli.expectations:expectations", "Show how many rows are as expected."),
            Listed("mcp", "caraway.cli.mcp:mcp", "Serve the catalog and features to AI agents.", "mcp"),
            Listed("erase", "caraway.cli.erase:erase", "Erase all rows of some keys, and those to come."),
        ),
    ),
    Section(
        "Access",
        (
            Listed("tokens", "caraway.cli.tokens:tokens", "Create, list and revoke tokens.", "server"),
            Listed("roles", "caraway.cli.roles:roles", "Define roles and give them to accounts.", "server"),
            Listed("secrets", "caraway.cli.secrets:secrets", "Set, list, delete and rotate secrets."),
            Listed("audit", "caraway.cli.audit:audit", "Show who changed what, and who was refused.", "server"),
        ),
    ),
)
