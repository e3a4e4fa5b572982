"""Caraway for AI agents: a server of the Model Context Protocol (MCP) that reads, and changes nothing."""
