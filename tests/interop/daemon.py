"""One forebay daemon for the interop: started, waited for by its own signals, asked over its admin socket."""

import http.client
import json
import os
import socket
import subprocess
import time


class Failed(Exception):
    """Something did not come to pass."""


class _Unix(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=10)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


def until(what, found, seconds=30, ended=lambda: None):
    """Polls `found` until it gives something; says what did not come."""
    deadline = time.monotonic() + seconds
    while True:
        got = found()
        if got:
            return got
        if (why := ended()) or time.monotonic() > deadline:
            raise Failed(f"{what}: {why or f'not within {seconds} s'}")
        time.sleep(0.02)


class Daemon:
    def __init__(self, binary, folder, args, env=None, cwd=None):
        self.socket = str(folder / "admin.sock")
        self.log = folder / "forebay.log"
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                [binary, "serve", *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=cwd,
                env={**os.environ, **(env or {})},
            )

    def ready(self, upstreams, seconds=60):
        """Waits until each of these upstreams is up."""

        def all_up():
            state = self.state()
            if not state:
                return None
            up = {one["name"] for one in state["upstreams"] if one["state"] == "up"}
            return state if set(upstreams) <= up else None

        try:
            state = until("forebay and its upstreams are up", all_up, seconds, self._ended)
        except Failed as error:
            raise Failed(f"{error}\n{self.tail()}") from error
        self.mcp = f"http://{state['mcp']}" if "://" not in state["mcp"] else state["mcp"]
        return self

    def ask(self, method, path):
        """The parsed answer of the admin API, or None while it cannot be reached."""
        connection = _Unix(self.socket)
        try:
            connection.request(method, path)
            answer = connection.getresponse()
            body = answer.read()
            return json.loads(body) if answer.status < 400 else None
        except OSError:
            return None
        finally:
            connection.close()

    def state(self):
        return self.ask("GET", "/v1/state")

    def upstream(self, name):
        state = self.state()
        if state is None:
            raise Failed(f"the admin API does not answer {self._ended() or ''}\n{self.tail()}")
        return next(one for one in state["upstreams"] if one["name"] == name)

    def calls(self, name):
        page = self.ask("GET", f"/v1/calls?upstream={name}") or {"calls": []}
        return page["calls"]

    def finished(self, outcome):
        """How many calls have ended that way."""
        return sum(one["calls"] for one in self.state()["totals"]["outcomes"] if one["outcome"] == outcome)

    def stop(self):
        """TERM, and KILL if it does not end; None, or what was wrong with its end."""
        if self.process.poll() is not None:
            return f"it had ended by itself with {self.process.returncode}"
        self.process.terminate()
        try:
            code = self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
            return "it did not end within 20 s of SIGTERM"
        return None if code == 0 else f"it ended with {code}"

    def tail(self):
        lines = self.log.read_text(errors="replace").splitlines()[-25:]
        return "\n".join(f"    | {line}" for line in lines)

    def _ended(self):
        code = self.process.poll()
        return None if code is None else f"forebay ended with {code}"
