"""The `fastmcp` package as a client, with its defaults."""

from fastmcp import Client

from loop import block_text, run


class Session:
    def __init__(self, client):
        self.client = client

    def version(self):
        return getattr(self.client.session, "protocol_version", None)

    async def tools(self):
        return [tool.name for tool in await self.client.list_tools()]

    async def call(self, name, args):
        result = await self.client.call_tool(name, args, raise_on_error=False)
        return {"text": block_text(result.content), "isError": bool(result.is_error), "meta": result.meta}


async def connect(url):
    client = Client(url)
    await client.__aenter__()
    return Session(client), lambda: client.__aexit__(None, None, None)


run(connect)
