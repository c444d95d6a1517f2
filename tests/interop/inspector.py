"""`inspector --cli` as a client: a process a request, so `start` and `cancel` are a process and its end."""

import json
import os
import signal
import subprocess


class Inspector:
    def __init__(self, command, folder, era):
        self.command, self.folder, self.era = command, folder, era
        self.background = None
        folder.mkdir(parents=True, exist_ok=True)
        # Nothing of the user's own configuration is read or written.
        self.env = {**os.environ, "HOME": str(folder), "MCP_INSPECTOR_SECRET_STORE": "memory"}

    def ask(self, do, **command):
        return getattr(self, f"_{do}")(**command)

    def end(self):
        if self.background and self.background.poll() is None:
            self.background.kill()
            self.background.wait()

    def _connect(self, url):
        entry = {"type": "streamable-http", "url": url, "protocolEra": self.era}
        self.config = self.folder / "servers.json"
        self.config.write_text(json.dumps({"mcpServers": {"forebay": entry}}))
        return {"version": self.era}

    def _line(self, method, *more):
        server = ["--config", str(self.config), "--server", "forebay"]
        return [*self.command, *server, "--format", "json", "--method", method, *more]

    def _tool(self, name, args):
        pairs = [f"{key}={value if isinstance(value, str) else json.dumps(value)}" for key, value in args.items()]
        return self._line("tools/call", "--tool-name", name, *(part for pair in pairs for part in ("--tool-arg", pair)))

    def _result(self, line):
        done = subprocess.run(line, env=self.env, capture_output=True, text=True, timeout=60)
        try:
            return json.loads(done.stdout)["result"]
        except (ValueError, KeyError):
            return {"fault": f"exit code {done.returncode}: {(done.stdout + done.stderr)[-600:]}"}

    def _list(self):
        result = self._result(self._line("tools/list"))
        return result if "fault" in result else {"tools": [tool["name"] for tool in result["tools"]]}

    def _call(self, name, args):
        result = self._result(self._tool(name, args))
        if "fault" in result:
            return result
        text = "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
        return {"text": text, "isError": bool(result.get("isError")), "meta": result.get("_meta")}

    def _start(self, name, args):
        self.background = subprocess.Popen(
            self._tool(name, args), env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return {"started": True}

    def _cancel(self):
        running = self.background.poll() is None
        self.background.send_signal(signal.SIGINT)
        try:
            self.background.wait(10)
        except subprocess.TimeoutExpired:
            self.background.kill()
            self.background.wait()
        return {"cancelled": running}

    def _close(self):
        return {"closed": True}
