"""The line protocol between the driver and a Python client.

One JSON command a line on stdin, one JSON answer a line on stdout; stderr is for people. A client gives
`run` four coroutines' worth of verbs; `start` and `cancel` are handled here, as a task and its end.
"""

import asyncio
import json
import sys


async def _lines():
    reader = asyncio.StreamReader(limit=1 << 24)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    while line := await reader.readline():
        yield json.loads(line)


async def _serve(connect):
    session, close, background = None, None, None
    async for command in _lines():
        do = command["do"]
        try:
            if do == "connect":
                session, close = await connect(command["url"])
                answer = {"version": session.version()}
            elif do == "list":
                answer = {"tools": await session.tools()}
            elif do == "call":
                answer = await session.call(command["name"], command["args"])
            elif do == "start":
                background = asyncio.create_task(session.call(command["name"], command["args"]))
                answer = {"started": True}
            elif do == "cancel":
                background.cancel()
                ended = await asyncio.wait_for(asyncio.gather(background, return_exceptions=True), 20)
                answer = {"cancelled": isinstance(ended[0], asyncio.CancelledError), "ended": repr(ended[0])}
            elif do == "wait":
                answer = await asyncio.wait_for(background, 60)
            elif do == "close":
                await close()
                answer = {"closed": True}
            else:
                answer = {"fault": f"unknown command {do}"}
        except Exception as error:  # the driver judges it
            answer = {"fault": f"{type(error).__name__}: {error}"}
        print(json.dumps(answer), flush=True)


def run(connect):
    asyncio.run(_serve(connect))


def block_text(content):
    """The text blocks of a result, joined."""
    return "\n".join(block.text for block in content if getattr(block, "type", "") == "text")
