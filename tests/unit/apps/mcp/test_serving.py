"""Tests of what the MCP server says about its tools, by which agents decide whether they ask a person first."""

import asyncio

import pytest
from mcp.server.mcpserver.exceptions import ToolError

from caraway.apps.mcp.asking import Server
from caraway.apps.mcp.serving import mcp_server


def test_only_the_tool_that_runs_code_is_not_announced_as_one_that_reads() -> None:
    server = mcp_server(Server(url="http://127.0.0.1:9", branch="main", token="t"))
    tools = {tool.name: tool.annotations for tool in asyncio.run(server.list_tools())}
    reading = {name for name, said in tools.items() if said is not None and said.read_only_hint}
    assert set(tools) - reading == {"preview_commit"}
    said = tools["preview_commit"]
    assert said is not None
    assert (said.read_only_hint, said.destructive_hint, said.open_world_hint) == (False, True, True)


def test_over_http_no_tool_runs_code() -> None:
    tools = asyncio.run(mcp_server(Server(url="http://127.0.0.1:9", branch="main", token=None)).list_tools())
    assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)


@pytest.mark.parametrize("names", [[[]] * 1_000, [1] * 1_000], ids=["lists", "numbers"])
def test_of_many_wrong_elements_the_first_is_told(names: list[object]) -> None:
    server = mcp_server(Server(url="http://127.0.0.1:9", branch="main", token="t"))
    for tool, arguments in (
        ("explain_query", {"outputs": ["A.b"], "inputs": names}),
        ("query_features", {"outputs": names, "rows": []}),
        ("query_features", {"outputs": ["A.b"], "rows": names}),
        ("lookup_rows", {"dataset": "D", "keys": names}),
        ("lookup_rows", {"dataset": "D", "keys": [], "fields": names}),
    ):
        with pytest.raises(ToolError, match="1 validation error") as caught:
            asyncio.run(server.call_tool(tool, arguments))
        assert len(str(caught.value)) < 1_000
