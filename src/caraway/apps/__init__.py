"""The programs that people start: the server, the command line, the stack, the demo, and the MCP server."""
