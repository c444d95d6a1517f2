#!/usr/bin/env python3
"""The official conformance tool against a server directly and through forebay, scenario by scenario.

usage: conformance.py --binary target/debug/forebay --target target [--only RUN,..] [--summary FILE] [--keep DIR]

A scenario is worse than direct if any of its checks is. Those of a cross pair that the specification does not allow to
pass stand in conformance/limits.toml with the sentence that says so; those that forebay does not manage yet, in
conformance/known.txt, which must be exact. Ends with a table and `N passed, N failed`; the exit code is 0 only if
nothing failed.
"""

import argparse
import concurrent.futures
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
from pathlib import Path

import install
from daemon import Daemon, Failed

HERE = Path(__file__).resolve().parent
BEGAN = time.monotonic()
# The revision of each set, the era of the fixture that it is meant for, and the other one.
SETS = {"2025-11-25": ("legacy", "modern"), "2026-07-28": ("modern", "legacy")}
# How forebay reaches the fixture: upstreams that are named `ERA-WAY`.
WAYS = ["http", "stdio"]
# One run of a set; each scenario has a bound of its own within it.
RUN_SECONDS, SCENARIO_MS = 300, 15000
# What a status counts for; a check that is missing counts as skipped.
RANK = {"SUCCESS": 0, "INFO": 0, "SKIPPED": 1, "WARNING": 2, "FAILURE": 3}
# Not about whom is tested, or about what forebay has no part in: it gives its credentials to an upstream, and asks no
# authorization server for them.
NOT_OURS = "wire-schema-harness-error"
CLIENT_SKIPS = "auth/"
# Run by no set's score, but ours to keep.
CLIENT_MORE = ["json-schema-2020-12-preservation"]


def say(text):
    print(f"[conformance {time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


class Tool:
    """The conformance tool, run with bounds; every process it starts is its child and ends with it."""

    def __init__(self, kit, results):
        package = kit.npm / "node_modules" / "@modelcontextprotocol" / "conformance"
        self.command = [kit.late_node(), str(package / "dist" / "index.js")]
        self.results = results

    def scenarios(self, revision, leg):
        shown = self._run(["list", "--requirements", revision], 60)
        names, inside = [], False
        for line in shown.splitlines():
            if line.strip().startswith("- "):
                names.append((inside, line.strip()[2:].split()[0]))
            elif line.strip():
                inside = line.strip().lower()
        return [name for head, name in names if head and head.startswith(leg)]

    def server(self, label, url, revision):
        out = self._out(label)
        options = ["--requirements", revision, "--timeout", str(SCENARIO_MS), "-o", str(out)]
        self._run(["server", "--url", url, *options], RUN_SECONDS)
        found = {}
        for folder in sorted(out.glob("server-*")):
            found[scenario_of(folder.name)] = checks_of(folder)
        say(f"{label}: {len(found)} scenarios")
        return found

    def client(self, label, command, revision, scenario):
        out = self._out(f"{label} {scenario}")
        options = ["--scenario", scenario, "--spec-version", revision, "--timeout", "30000", "-o", str(out)]
        self._run(["client", "--command", command, *options], 60)
        folders = [path.parent for path in out.rglob("checks.json")]
        return checks_of(folders[0]) if folders else {}

    def _out(self, label):
        """A folder of that name with nothing of an earlier run in it."""
        out = self.results / label.replace(" ", "-")
        shutil.rmtree(out, ignore_errors=True)
        return out

    def _run(self, arguments, seconds):
        try:
            done = subprocess.run(
                [*self.command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=seconds
            )
        except subprocess.TimeoutExpired as error:
            raise Failed(f"{' '.join(arguments[:3])} was not done within {error.timeout:.0f} s") from error
        return done.stdout


def scenario_of(folder):
    """`server-tools-list-2026-11-30T21-51-58-248Z` is of `tools-list`."""
    return re.sub(r"-\d{4}-\d\d-\d\dT[\d-]+Z$", "", folder.removeprefix("server-"))


def checks_of(folder):
    """The worst status of each check of a scenario, with what was said of it."""
    checks = {}
    for check in json.loads((folder / "checks.json").read_text()):
        # Several checks share an id; their names tell them apart.
        name = f"{check['id']}/{check.get('name', '')}"
        status = check["status"]
        if check["id"] != NOT_OURS and RANK[status] >= RANK[checks.get(name, ("SUCCESS", ""))[0]]:
            checks[name] = (status, check.get("errorMessage") or "")
    return checks


def worse(direct, through):
    """The checks that are worse, each with its two statuses and what was said."""
    found = []
    for name, (status, _) in direct.items():
        if status == "INFO":
            continue
        got, said = through.get(name, ("SKIPPED", "the check is missing"))
        if RANK[got] > RANK[status]:
            found.append(f"{name}: {status} -> {got}: {said[:200]}")
    for name, (got, said) in through.items():
        if name not in direct and got == "FAILURE":
            found.append(f"{name}: FAILURE: {said[:200]}")
    return found


def cell(checks):
    if not checks:
        return "-"
    judged = [status for status, _ in checks.values() if status != "INFO"]
    good = sum(status == "SUCCESS" for status in judged)
    return f"{good}/{len(judged)}"


class Fixture:
    """The fixture server over HTTP."""

    def __init__(self, kit, era, folder):
        self.errors = open(folder / f"fixture-{era}.log", "ab")
        self.process = subprocess.Popen(
            [kit.late_node(), str(kit.npm / "fixture" / "serve.mjs"), era, "0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=self.errors,
            text=True,
        )
        line = self.process.stdout.readline().strip()
        if not line.startswith("http://"):
            raise Failed(f"the fixture ({era}) did not start: {line}")
        # The tool wants to see the name that its checks of Host and Origin are about.
        self.url = line.replace("127.0.0.1", "localhost")

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.errors.close()


def config(kit, folder, fixtures):
    """Every fixture as an upstream of a client of its own, so that a server can ask the client whose call it serves."""
    text = f'[listen]\nmcp = "127.0.0.1:0"\nadmin = {json.dumps(f"unix:{folder}/admin.sock")}\n'
    text += '\n[global]\ndrain_timeout = "2s"\n'
    for era, fixture in fixtures.items():
        text += f"\n[upstreams.{era}-http]\nurl = {json.dumps(fixture.url)}\n"
        command = [str(kit.npm / "fixture" / "serve.mjs"), era]
        text += f"\n[upstreams.{era}-stdio]\ncommand = {json.dumps(kit.late_node())}\nargs = {json.dumps(command)}\n"
    return text


def server_runs(kit, tool, binary, folder, only):
    """Each set directly and in every way through forebay: {set: {way: {scenario: checks}}}."""
    fixtures, daemon, table = {}, None, {}
    try:
        for era in ("legacy", "modern"):
            fixtures[era] = Fixture(kit, era, folder)
        (folder / "forebay.toml").write_text(config(kit, folder, fixtures))
        daemon = Daemon(binary, folder, ["--config", str(folder / "forebay.toml")])
        daemon.ready([f"{era}-{way}" for era in fixtures for way in WAYS])
        say("forebay is up, with the fixture of both eras behind it over HTTP and stdio")
        mcp = daemon.mcp.replace("127.0.0.1", "localhost")
        runs = []
        for revision, (own, other) in SETS.items():
            runs.append((revision, "direct", fixtures[own].url))
            runs += [(revision, way, f"{mcp}/mcp/{own}-{way}") for way in WAYS]
            runs += [(revision, f"cross {way}", f"{mcp}/mcp/{other}-{way}") for way in WAYS]
        runs = [run for run in runs if not only or run[1] == "direct" or f"{run[0]} {run[1]}" in only]
        # Two at a time: the tool mostly waits. No two runs of one upstream: they would see each other's changes.
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            asked = {run: pool.submit(tool.server, f"{run[0]} {run[1]}", run[2], run[0]) for run in runs}
            for (revision, way, _), answer in asked.items():
                table.setdefault(revision, {})[way] = answer.result()
        state = daemon.state()
        for call in (one for upstream in state["upstreams"] for one in daemon.calls(upstream["name"])):
            say(f"still live: {call}")
        if state["totals"]["unaccounted"] != 0:
            raise Failed(f"the ledger does not add up: {state['totals']}")
        if fault := daemon.stop():
            raise Failed(f"forebay: {fault}\n{daemon.tail()}")
    finally:
        if daemon:
            daemon.stop()
        for fixture in fixtures.values():
            fixture.stop()
    return table


def client_runs(kit, tool, binary, only):
    """The tool's servers, with a client in front directly, and with forebay between."""
    script = kit.npm / "clients" / "conform.mjs"
    direct = f"{kit.late_node()} {script}"
    through = f"{sys.executable} {HERE / 'conformance' / 'between.py'} {binary} {direct}"
    table = {}
    for revision in SETS:
        if only and f"{revision} client" not in only:
            continue
        names = [name for name in tool.scenarios(revision, "client") if not name.startswith(CLIENT_SKIPS)] + CLIENT_MORE
        pair = {"direct": {}, "client": {}}
        for scenario in names:
            for way, command in (("direct", direct), ("client", through)):
                pair[way][scenario] = tool.client(f"{revision} client {way}", command, revision, scenario)
        say(f"{revision} client: {len(names)} scenarios")
        table[f"{revision} client"] = pair
    return table


def judge(table, limits, known, only):
    """Prints the table and says what is wrong."""
    rows, faults, seen = [], [], set()
    for name, ways in table.items():
        revision = name.split()[0]
        direct = ways.pop("direct")
        scenarios = list(dict.fromkeys(one for found in (direct, *ways.values()) for one in found))
        print(f"\n{name}\n  {'scenario':46} {'direct':>8} " + " ".join(f"{way:>12}" for way in ways))
        for scenario in scenarios:
            cells = []
            for way, found in ways.items():
                place = f"{revision} {way} {scenario}"
                bad = worse(direct.get(scenario, {}), found.get(scenario, {}))
                mark = " "
                if bad and place in limits:
                    mark = "="
                    seen.add(place)
                elif bad and place in known:
                    mark = "~"
                    seen.add(place)
                elif bad:
                    mark = "!"
                    faults.append(place + "".join(f"\n      {line}" for line in bad))
                cells.append(f"{cell(found.get(scenario, {})):>11}{mark}")
                rows.append((place, mark))
            print(f"  {scenario:46} {cell(direct.get(scenario, {})):>8} " + " ".join(cells))
    ran = {f"{name.split()[0]} {way}" for name, ways in table.items() for way in ways}
    for place in [*limits, *known]:
        if place not in seen and " ".join(place.split()[:-1]) in ran:
            where = "limits.toml" if place in limits else "known.txt"
            faults.append(f"{place} is in {where}, but is not worse than direct (any more): take it out")
    if known_worse := [place for place, mark in rows if mark == "!"]:
        print("\nworse than direct:\n" + "\n".join(sorted(known_worse)))
    print("\n  = a limit of the pair (conformance/limits.toml)   ~ known to be worse   ! worse")
    count = {mark: sum(row[1] == mark for row in rows) for mark in " =~!"}
    print(f"  as good as direct: {count[' ']}, limits: {count['=']}, known: {count['~']}, worse: {count['!']}\n")
    return len(rows) - count["!"], faults


def read_lists():
    limits = {}
    for limit in tomllib.loads((HERE / "conformance" / "limits.toml").read_text()).get("limit", []):
        for way in limit["ways"]:
            for scenario in limit["scenarios"]:
                limits[f"{limit['set']} {way} {scenario}"] = limit["because"]
    lines = (HERE / "conformance" / "known.txt").read_text().splitlines()
    known = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    return limits, known


def main():
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--binary", required=True)
    options.add_argument("--target", required=True)
    options.add_argument("--only", help="runs such as `2025-11-25 http` or `2026-07-28 client`, separated by commas")
    options.add_argument("--summary", help="a file for `PASSED FAILED`")
    options.add_argument("--keep", help="a folder for the tool's own results and forebay's log")
    asked = options.parse_args()
    only = asked.only.split(",") if asked.only else None
    binary = str(Path(asked.binary).resolve())
    passed, faults = 0, []
    try:
        limits, known = read_lists()
        kit = install.install(Path(asked.target).resolve(), say)
        with tempfile.TemporaryDirectory(prefix="forebay-conformance-") as folder:
            folder = Path(folder).resolve()
            results = Path(asked.keep).resolve() if asked.keep else folder / "results"
            results.mkdir(parents=True, exist_ok=True)
            tool = Tool(kit, results)
            table = server_runs(kit, tool, binary, folder, only)
            table |= client_runs(kit, tool, binary, only)
            if asked.keep:
                (results / "forebay.log").write_bytes((folder / "forebay.log").read_bytes())
        passed, faults = judge(table, limits, known, only)
    except (Failed, install.Failed) as error:
        faults.append(str(error))
    for fault in faults:
        print(f"conformance: {fault}")
    if asked.summary:
        Path(asked.summary).write_text(f"{passed} {len(faults)}\n")
    print(f"conformance: {passed} passed, {len(faults)} failed")
    return 1 if faults or not passed else 0


if __name__ == "__main__":
    sys.exit(main())
