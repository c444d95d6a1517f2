"""Installs the pinned third-party packages under target/interop, once per set of pins."""

import hashlib
import json
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
PINS = ["package.json", "package-lock.json", ".npmrc", "requirements.txt"]
# The inspector and the conformance tool need this; where the machine's own node is older, one from npm is used.
LATE_NODE = 22


class Failed(Exception):
    """An installation that did not work, in words."""


class Kit:
    """Where the installed things are."""

    def __init__(self, root):
        self.npm = root / "npm"
        self.python = root / "venv" / "bin" / "python"
        self.node = shutil.which("node")

    def server(self, name):
        """The entry file of one of the npm servers."""
        folder = self.npm / "node_modules" / "@modelcontextprotocol" / name
        bins = json.loads((folder / "package.json").read_text())["bin"]
        return str(folder / (bins if isinstance(bins, str) else next(iter(bins.values()))))

    def inspector(self):
        """The command line of the inspector, up to its own options."""
        return [self.late_node(), str(self.npm / "node_modules" / ".bin" / "mcp-inspector"), "--cli"]

    def late_node(self):
        """A node of at least that version."""
        shown = subprocess.run([self.node, "--version"], capture_output=True, text=True, check=True).stdout
        if int(shown.lstrip("v").split(".")[0]) >= LATE_NODE:
            return self.node
        found = sorted(self.npm.glob("node_modules/node-*/bin/node"))
        if not found:
            raise Failed(
                f"the inspector and the conformance tool need node {LATE_NODE} or later; this is {shown.strip()}, and npm has no node"
                f" package for {platform.system()} {platform.machine()}: install a later node"
            )
        return str(found[0])


def install(target, say):
    """Returns the kit; what is there already with the same pins is kept."""
    root = Path(target).resolve() / "interop"
    wanted = hashlib.sha256()
    for name in PINS:
        wanted.update((HERE / name).read_bytes())
    wanted.update(sys.version.encode())
    stamp = root / "stamp"
    if stamp.exists() and stamp.read_text() == wanted.hexdigest():
        say("packages: as pinned, already there")
    else:
        shutil.rmtree(root, ignore_errors=True)
        (root / "npm").mkdir(parents=True)
        for name in PINS[:3]:
            shutil.copy(HERE / name, root / "npm")
        say("packages: npm ci (about half a minute)")
        # No package here needs its install script, so none is run.
        _do(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"], root / "npm")
        say("packages: python -m venv and pip install (about half a minute)")
        _do([sys.executable, "-m", "venv", str(root / "venv")], root)
        pip = [str(root / "venv" / "bin" / "python"), "-m", "pip", "install", "--quiet", "--no-deps"]
        _do([*pip, "--disable-pip-version-check", "-r", str(HERE / "requirements.txt")], root)
        stamp.write_text(wanted.hexdigest())
    # Clients and fixture in TypeScript find their packages by walking up from where they lie.
    for part in ("clients", "fixture"):
        shutil.rmtree(root / "npm" / part, ignore_errors=True)
        shutil.copytree(HERE / part, root / "npm" / part, ignore=shutil.ignore_patterns("__pycache__"))
    return Kit(root)


def _do(command, folder):
    env = {**os.environ, "npm_config_update_notifier": "false"}
    try:
        done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=900)
    except subprocess.TimeoutExpired as error:
        raise Failed(f"{' '.join(command[:3])} was not done within {error.timeout:.0f} s") from error
    if done.returncode != 0:
        raise Failed(f"{' '.join(command[:3])} failed:\n{(done.stdout + done.stderr).strip()[-2000:]}")
