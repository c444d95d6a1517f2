"""The `mcp` package as a client. argv[1] is its mode: `auto` (2026-07-28 where served) or `legacy`.

It connects to a URL, or to a command on standard input and output, given as a JSON list.
"""

import json
import sys

from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters

from loop import block_text, run


class Session:
    def __init__(self, client):
        self.client = client

    def version(self):
        return self.client.protocol_version

    async def tools(self):
        return [tool.name for tool in (await self.client.list_tools()).tools]

    async def call(self, name, args):
        result = await self.client.call_tool(name, args)
        return {"text": block_text(result.content), "isError": bool(result.is_error), "meta": result.meta}


async def connect(url):
    if url.startswith("["):
        command, *args = json.loads(url)
        client = Client(StdioServerParameters(command=command, args=args), mode=sys.argv[1])
    else:
        client = Client(url, mode=sys.argv[1])
    await client.__aenter__()
    return Session(client), lambda: client.__aexit__(None, None, None)


run(connect)
