#!/usr/bin/env python3
"""Third-party clients, through forebay, to third-party servers.

usage: run.py --binary target/debug/forebay --target target [--only NAME,..] [--summary FILE]

Everything is judged here; the scripts under clients/ only do as they are told, one JSON line at a time.
Ends with a table and `N passed, N failed`; the exit code is 0 only if nothing failed.
"""

import argparse
import json
import os
import selectors
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import install
from daemon import Daemon, Failed, until
from inspector import Inspector

BEGAN = time.monotonic()
SLOW = ("trigger-long-running-operation", {"duration": 60, "steps": 1})


def say(text):
    print(f"[interop {time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


class Scripted:
    """A client script under clients/, driven over its standard input and output."""

    def __init__(self, command, folder):
        self.errors = open(folder / "client.log", "ab")
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors
        )
        self.ready = selectors.DefaultSelector()
        self.ready.register(self.process.stdout, selectors.EVENT_READ)

    def ask(self, do, **command):
        self.process.stdin.write(json.dumps({"do": do, **command}).encode() + b"\n")
        self.process.stdin.flush()
        if not self.ready.select(90):
            raise Failed(f"the client did not answer {do} within 90 s")
        line = self.process.stdout.readline()
        if not line:
            raise Failed(f"the client ended at {do}")
        return json.loads(line)

    def end(self):
        self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


def check(truth, what, seen):
    if not truth:
        raise Failed(f"{what}; seen: {json.dumps(seen)[:600]}")


# What every client must manage. Each takes the client and the daemon.


def lists_one(client, daemon):
    """`/mcp/NAME`: the server's own tools under their plain names."""
    connect(client, daemon, "/mcp/everything")
    tools = client.ask("list")
    check("echo" in tools.get("tools", []), "echo is listed", tools)
    check(SLOW[0] in tools["tools"], f"{SLOW[0]} is listed", tools)
    client.ask("close")


def lists_all(client, daemon):
    """`/mcp`: every server's tools, with the server's name before them."""
    connect(client, daemon, "/mcp")
    tools = client.ask("list")
    for name in ("everything__echo", "remote__echo", "files__read_text_file"):
        check(name in tools.get("tools", []), f"{name} is listed", tools)
    client.ask("close")


def calls_stdio(client, daemon):
    connect(client, daemon, "/mcp/everything")
    answer = client.ask("call", name="echo", args={"message": "déjà vu 😀"})
    check(answer.get("text") == "Echo: déjà vu 😀" and not answer["isError"], "the echo comes back", answer)
    client.ask("close")


def calls_http(client, daemon):
    connect(client, daemon, "/mcp/remote")
    answer = client.ask("call", name="get-sum", args={"a": 2, "b": 40})
    check("42" in answer.get("text", "") and not answer["isError"], "the sum comes back", answer)
    client.ask("close")


def calls_prefixed(client, daemon):
    connect(client, daemon, "/mcp")
    answer = client.ask("call", name="files__read_text_file", args={"path": daemon.file})
    check(answer.get("text") == "read me through the queue\n", "the file comes back", answer)
    outside = client.ask("call", name="files__read_text_file", args={"path": "/etc/hostname"})
    check(outside.get("isError") is True, "the tool's own error is passed on as such", outside)
    client.ask("close")


def refused(name):
    def scenario(client, daemon):
        """A slow call takes the only slot; a second one reads why it was refused, then the first is cancelled."""
        connect(client, daemon, f"/mcp/{name}")
        # One call first, so that nothing of the start is still under way.
        answer = client.ask("call", name="echo", args={"message": "free"})
        check(answer.get("text") == "Echo: free", "a free slot is used though there is no queue", answer)
        cancelled = daemon.finished("cancelled")
        client.ask("start", name=SLOW[0], args=SLOW[1])
        until("the slow call runs", lambda: daemon.upstream(name)["running"] == 1)
        (row,) = daemon.calls(name)
        check(row["state"] == "running" and row["tool"] == SLOW[0], "the listing names the call", row)
        answer = client.ask("call", name="echo", args={"message": "no room"})
        text = answer.get("text", "")
        check(answer.get("isError") is True, "a refusal is a tool result that says so", answer)
        for words in ("Not executed", "limit of the gateway, not a failure of the tool", "1 of 1 running", "wait"):
            check(words in text, f"the refusal's text has '{words}'", answer)
        check("concurrency_limit" in text, "the refusal names its reason", answer)
        if answer.get("meta") is not None:
            refusal = answer["meta"].get("forebay/refusal", {})
            check(refusal.get("reason") == "concurrency_limit", "the refusal's data is in _meta", answer)
            check(refusal.get("executed") == "never" and refusal.get("active") == 1, "with its figures", answer)
        ended = client.ask("cancel")
        check(ended.get("cancelled") is True, "the client sees its call cancelled", ended)
        until("the cancelled call no longer runs", lambda: daemon.upstream(name)["running"] == 0)
        until("it is counted as cancelled", lambda: daemon.finished("cancelled") == cancelled + 1)
        gone = daemon.ask("GET", f"/v1/calls/{row['id']}")
        check(gone and gone["outcome"] == "cancelled", "the call's end is on record", gone)
        until("its slot is free again", lambda: not daemon.calls(name), 15)
        answer = client.ask("call", name="echo", args={"message": "free again"})
        check(answer.get("text") == "Echo: free again", "the slot serves the next call", answer)
        client.ask("close")

    return scenario


SCENARIOS = {
    "list": lists_one,
    "list all": lists_all,
    "call stdio": calls_stdio,
    "call http": calls_http,
    "call files": calls_prefixed,
    "refuse+cancel stdio": refused("narrow"),
    "refuse+cancel http": refused("narrow-remote"),
}


def connect(client, daemon, path):
    answer = client.ask("connect", url=daemon.mcp + path)
    check("fault" not in answer, f"the client connects to {path}", answer)
    wanted = getattr(client, "version", None)
    if wanted:
        check(answer["version"] == wanted, f"revision {wanted} is agreed on", answer)


def clients(kit, folder):
    """Name, how it is made, the revision it must agree on."""
    python, node = str(kit.python), kit.node
    where = kit.npm / "clients"

    def scripted(version, *command):
        def make():
            client = Scripted(list(command), folder)
            client.version = version
            return client

        return make

    return {
        "python mcp": scripted("2026-07-28", python, str(where / "python_mcp.py"), "auto"),
        "python mcp, legacy": scripted("2025-11-25", python, str(where / "python_mcp.py"), "legacy"),
        "fastmcp": scripted("2026-07-28", python, str(where / "fastmcp_client.py")),
        "ts sdk v1": scripted("2025-11-25", node, str(where / "ts_v1.mjs")),
        "ts sdk v2, legacy": scripted("2025-11-25", node, str(where / "ts_v2.mjs"), "legacy"),
        "ts sdk v2, modern": scripted("2026-07-28", node, str(where / "ts_v2.mjs"), "modern"),
        "inspector --cli": lambda: Inspector(kit.inspector(), folder / "inspector", "modern"),
    }


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def start_remote(kit, folder):
    """server-everything over Streamable HTTP; waits until it takes connections."""
    port = free_port()
    log = open(folder / "remote.log", "ab")
    process = subprocess.Popen(
        [kit.node, kit.server("server-everything"), "streamableHttp"],
        env={**os.environ, "PORT": str(port)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )

    def taken():
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
            return True
        except OSError:
            return False

    until("server-everything listens", taken, 30, lambda: process.poll())
    return process, port


def config(kit, folder, port):
    node, everything = json.dumps(kit.node), json.dumps(kit.server("server-everything"))
    files = json.dumps(kit.server("server-filesystem"))
    return f"""
[listen]
mcp = "127.0.0.1:0"
admin = {json.dumps(f"unix:{folder}/admin.sock")}

[defaults]
cancel_grace = "1s"

[upstreams.everything]
command = {node}
args = [{everything}, "stdio"]

[upstreams.remote]
url = "http://127.0.0.1:{port}/mcp"

[upstreams.files]
command = {node}
args = [{files}, {json.dumps(str(folder / "files"))}]

[upstreams.narrow]
command = {node}
args = [{everything}, "stdio"]
max_concurrent = 1
queue_size = 0

[upstreams.narrow-remote]
url = "http://127.0.0.1:{port}/mcp"
max_concurrent = 1
queue_size = 0
"""


class Results:
    def __init__(self):
        self.rows = []

    def run(self, who, what, scenario):
        began = time.monotonic()
        try:
            scenario()
            fault = None
        except (Failed, OSError, ValueError, KeyError, TypeError, subprocess.SubprocessError) as error:
            fault = f"{type(error).__name__}: {error}" if not isinstance(error, Failed) else str(error)
        took = time.monotonic() - began
        self.rows.append((who, what, fault))
        say(f"{who:20} {what:20} {'ok' if fault is None else 'FAILED'} ({took:.1f} s)")
        if fault:
            print(f"    {fault}", flush=True)
        return fault is None

    def table(self):
        what = list(dict.fromkeys(row[1] for row in self.rows))
        width = max(len(row[0]) for row in self.rows)
        print("\n" + " " * width + "  " + "  ".join(what))
        for who in dict.fromkeys(row[0] for row in self.rows):
            cells = {row[1]: "ok" if row[2] is None else "FAILED" for row in self.rows if row[0] == who}
            print(f"{who:{width}}  " + "  ".join(f"{cells.get(one, '-'):{len(one)}}" for one in what))
        print()

    def failed(self):
        return sum(row[2] is not None for row in self.rows)


def with_config(kit, folder, binary, only, results):
    (folder / "files").mkdir()
    (folder / "files" / "note.txt").write_text("read me through the queue\n")
    remote, port = start_remote(kit, folder)
    daemon = None
    try:
        (folder / "forebay.toml").write_text(config(kit, folder, port))
        daemon = Daemon(binary, folder, ["--config", str(folder / "forebay.toml")])
        daemon.file = str(folder / "files" / "note.txt")
        daemon.ready(["everything", "remote", "files", "narrow", "narrow-remote"])
        say("forebay is up with server-everything (stdio and HTTP) and server-filesystem behind it")
        for who, make in clients(kit, folder).items():
            if only and who not in only:
                continue
            client = None
            try:
                for what, scenario in SCENARIOS.items():
                    client = client or make()
                    if not results.run(who, what, lambda: scenario(client, daemon)):
                        # Whatever state it is in, the next scenario gets a new one.
                        client.end()
                        client = None
            finally:
                if client:
                    client.end()
        everything = [kit.node, kit.server("server-everything"), "stdio"]
        fronts = {
            "run, stdio": [binary, "run", "--cancel-grace", "1s", "--", *everything],
            "bridge, stdio": [binary, "bridge", "everything", "--admin", f"unix:{daemon.socket}"],
        }
        for who, make in clients(kit, folder).items():
            if not who.startswith("python mcp") or only and who not in only:
                continue
            for what, command in fronts.items():
                client = make()
                try:
                    results.run(who, what, lambda: over_stdio(command)(client, daemon))
                finally:
                    client.end()
        results.run("forebay", "books and end", lambda: books_and_end(daemon))
    finally:
        if daemon:
            daemon.stop()
            shutil.copy(daemon.log, folder.parent / "interop-last.log")
        remote.terminate()
        remote.wait(10)


def over_stdio(command):
    """A client on standard input and output: the tools, a call, and a queue that holds what waits."""

    def scenario(client, daemon):
        answer = client.ask("connect", url=json.dumps(command))
        check("fault" not in answer, "the client connects", answer)
        wanted = getattr(client, "version", None)
        check(answer["version"] == wanted, f"revision {wanted} is agreed on", answer)
        tools = client.ask("list").get("tools", [])
        check("echo" in tools and SLOW[0] in tools, "the server's own tools are listed", tools)
        answer = client.ask("call", name="echo", args={"message": "déjà vu 😀"})
        check(answer.get("text") == "Echo: déjà vu 😀" and not answer["isError"], "the echo comes back", answer)
        client.ask("start", name=SLOW[0], args=SLOW[1])
        ended = client.ask("cancel")
        check(ended.get("cancelled") is True, "the client sees its call cancelled", ended)
        answer = client.ask("call", name="echo", args={"message": "after"})
        check(answer.get("text") == "Echo: after", "the slot of the cancelled call serves the next", answer)
        closed = client.ask("close")
        check(closed.get("closed") is True, "the client closes", closed)

    return scenario


def books_and_end(daemon):
    """Every call is accounted for, and TERM ends the daemon and its children."""
    until("nothing runs or lingers", lambda: all(not daemon.calls(one["name"]) for one in daemon.state()["upstreams"]), 15)
    state = daemon.state()
    totals = state["totals"]
    check(totals["unaccounted"] == 0, "the ledger adds up", totals)
    check(totals["offered"] == totals["finished"], "every call has ended", totals)
    pids = [pid for one in state["upstreams"] for pid in one["pids"]]
    fault = daemon.stop()
    check(fault is None, "SIGTERM ends it well", {"fault": fault, "log": daemon.tail()})
    left = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    check(not left, "no child is left behind", left)


def with_mcp_json(kit, folder, binary, only, results):
    """`forebay serve --mcp-config FILE` with a file as clients have it, and two stock clients."""
    (folder / "files").mkdir()
    (folder / "files" / "note.txt").write_text("read me through the queue\n")
    servers = {
        "filesystem": {
            "command": "npx",
            "args": ["-y", "@modelcontextprotocol/server-filesystem", str(folder / "files")],
        },
        "everything": {"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]},
    }
    (folder / ".mcp.json").write_text(json.dumps({"mcpServers": servers}, indent=2))
    env = {"FOREBAY_LISTEN_MCP": "127.0.0.1:0", "FOREBAY_LISTEN_ADMIN": f"unix:{folder}/admin.sock"}
    # Run where the packages are, so that npx takes the pinned ones.
    daemon = Daemon(binary, folder, ["--mcp-config", str(folder / ".mcp.json")], env, kit.npm)
    try:
        daemon.ready(["filesystem", "everything"])
        for who, make in clients(kit, folder).items():
            if who not in ("python mcp", "ts sdk v1") or only and who not in only:
                continue
            client = make()

            def scenario():
                connect(client, daemon, "/mcp")
                tools = client.ask("list").get("tools", [])
                check({"filesystem__read_text_file", "everything__echo"} <= set(tools), "both servers are listed", tools)
                answer = client.ask("call", name="everything__echo", args={"message": "hello"})
                check(answer.get("text") == "Echo: hello", "the echo comes back", answer)
                path = str(folder / "files" / "note.txt")
                answer = client.ask("call", name="filesystem__read_text_file", args={"path": path})
                check(answer.get("text") == "read me through the queue\n", "the file comes back", answer)
                client.ask("close")

            try:
                results.run(who, ".mcp.json", scenario)
            finally:
                client.end()
        results.run("forebay", "ends, .mcp.json", lambda: books_and_end(daemon))
    finally:
        daemon.stop()


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", required=True)
    options.add_argument("--target", required=True)
    options.add_argument("--only", help="names of clients, separated by semicolons")
    options.add_argument("--summary", help="a file for `PASSED FAILED`")
    asked = options.parse_args()
    only = asked.only.split(";") if asked.only else None
    binary = str(Path(asked.binary).resolve())
    results = Results()
    try:
        kit = install.install(Path(asked.target).resolve(), say)
    except install.Failed as error:
        print(f"interop: cannot install the packages: {error}")
        results.rows.append(("packages", "install", str(error)))
        kit = None
    if kit:
        for name, part in (("config", with_config), (".mcp.json", with_mcp_json)):
            with tempfile.TemporaryDirectory(prefix="forebay-interop-") as folder:
                inner = Path(folder).resolve() / "run"
                inner.mkdir()
                try:
                    part(kit, inner, binary, only, results)
                except Failed as error:
                    print(f"interop: {error}", flush=True)
                    results.rows.append(("forebay", f"start, {name}", str(error)))
        results.table()
    failed = results.failed()
    passed = len(results.rows) - failed
    if asked.summary:
        Path(asked.summary).write_text(f"{passed} {failed}\n")
    print(f"interop: {passed} passed, {failed} failed")
    return 1 if failed or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
