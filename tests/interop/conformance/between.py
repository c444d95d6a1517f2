#!/usr/bin/env python3
"""A client of the conformance tool with forebay between: between.py FOREBAY CLIENT... URL.

Starts forebay with the tool's server as its one upstream, runs the client against forebay, and ends both.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))
from daemon import Daemon, Failed


def main():
    binary, *client, url = sys.argv[1:]
    with tempfile.TemporaryDirectory(prefix="forebay-between-") as folder:
        folder = Path(folder).resolve()
        admin = json.dumps(f"unix:{folder}/admin.sock")
        (folder / "forebay.toml").write_text(
            f'[listen]\nmcp = "127.0.0.1:0"\nadmin = {admin}\n\n[upstreams.suite]\nurl = {json.dumps(url)}\n'
        )
        daemon = Daemon(binary, folder, ["--config", str(folder / "forebay.toml")])
        try:
            daemon.ready(["suite"], 10)
            return subprocess.run([*client, f"{daemon.mcp}/mcp/suite"], timeout=15).returncode
        except (Failed, subprocess.TimeoutExpired) as error:
            print(error, file=sys.stderr)
            return 1
        finally:
            daemon.stop()


if __name__ == "__main__":
    sys.exit(main())
