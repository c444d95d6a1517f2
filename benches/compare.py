#!/usr/bin/env python3
"""What forebay costs, measured in one run beside nginx and a minimal MCP-aware proxy.

usage: benches/compare.py [--bench DIR] [--forebay FILE] [--rounds 9] [--seconds 2] [--callers 1,64] [--quick]

DIR holds the sources of the bench: `upstream/` (binaries mcp-bench-upstream and mcp-bench-rproxy) and `driver/`
(mcp-bench-driver). Default: $FOREBAY_BENCH, else ../shared/bench beside the project, if there. They and forebay are
built in release mode under the target folder. nginx is taken from PATH or /usr/sbin; without it the columns that
need it say so.

Rounds are interleaved and their order turns, so that a slow minute of the machine costs each the same; figures are
medians over the rounds. Everything stays on 127.0.0.1, and only what was started here is ended. The exit code says
whether the script ran, not whether a bar was met: the table shows the bars beside the figures.
"""

import argparse
import http.client
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TARGET = Path(os.environ.get("CARGO_TARGET_DIR", ROOT / "target")).resolve()
BEGAN = time.monotonic()


def say(text):
    print(f"[{time.monotonic() - BEGAN:6.1f} s] {text}", flush=True)


def options():
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--bench", default=os.environ.get("FOREBAY_BENCH"))
    asked.add_argument("--forebay", help="a binary to measure in place of a new release build")
    asked.add_argument("--rounds", type=int, default=9)
    asked.add_argument("--seconds", type=float, default=2.0)
    asked.add_argument("--callers", default="1,64")
    asked.add_argument("--out", default=str(TARGET / "compare.jsonl"), help="every single measurement, as JSON lines")
    asked.add_argument("--quick", action="store_true", help="2 rounds of half a second: to see that it works")
    asked = asked.parse_args()
    if asked.quick:
        asked.rounds, asked.seconds = 2, 0.5
    if asked.bench is None:
        beside = ROOT.parent / "shared" / "bench"
        asked.bench = str(beside) if beside.exists() else None
    if asked.bench is None or not (Path(asked.bench) / "driver" / "Cargo.toml").exists():
        sys.exit("compare: no bench sources: name their folder by --bench or FOREBAY_BENCH")
    return asked


def build(bench, forebay):
    """Builds everything, forebay only if no binary is given; returns the paths of the binaries by name."""
    peers = TARGET / "bench-peers"
    for part in ("upstream", "driver"):
        say(f"building the bench's {part}")
        manifest = Path(bench).resolve() / part / "Cargo.toml"
        line = ["cargo", "build", "--release", "--quiet", "--locked", "--manifest-path", str(manifest)]
        subprocess.run(line, env={**os.environ, "CARGO_TARGET_DIR": str(peers)}, check=True)
    if forebay is None:
        say("building forebay (fat LTO: some minutes)")
        subprocess.run(["cargo", "build", "--release", "--quiet", "--bin", "forebay"], cwd=ROOT, check=True)
    binaries = {name: str(peers / "release" / f"mcp-bench-{name}") for name in ("upstream", "rproxy", "driver")}
    binaries["forebay"] = str(Path(forebay or TARGET / "release" / "forebay").resolve())
    binaries["nginx"] = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    return binaries


class Processes:
    """What was started here, ended in the end."""

    def __init__(self, folder):
        self.folder, self.started = folder, []

    def start(self, name, *command):
        log = open(self.folder / f"{name}.log", "ab")
        process = subprocess.Popen(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A session each, so that the scheduler gives each an equal share.
            start_new_session=True,
        )
        self.started.append(process)
        return process

    def end(self):
        for process in self.started:
            if process.poll() is None:
                process.terminate()
        for process in self.started:
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def wait_for(what, found, process=None, seconds=20):
    deadline = time.monotonic() + seconds
    while not (got := found()):
        if process and process.poll() is not None:
            sys.exit(f"compare: {what}: it ended with {process.returncode}")
        if time.monotonic() > deadline:
            sys.exit(f"compare: {what}: not within {seconds} s")
        time.sleep(0.02)
    return got


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
        return True
    except OSError:
        return False


class Admin(http.client.HTTPConnection):
    def __init__(self, path):
        super().__init__("localhost", timeout=5)
        self.path = path

    def connect(self):
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self.path)


def state(path):
    try:
        admin = Admin(path)
        admin.request("GET", "/v1/state")
        return json.loads(admin.getresponse().read())
    except (OSError, ValueError):
        return None


def rss_mib(pid):
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def start_nginx(processes, binary, port, upstream):
    folder = processes.folder / "nginx"
    folder.mkdir()
    temporary = "".join(f"{kind}_temp_path tmp_{kind}; " for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi"))
    (folder / "nginx.conf").write_text(f"""
worker_processes 2; daemon off; pid nginx.pid; error_log stderr crit;
events {{ worker_connections 4096; }}
http {{
  access_log off; {temporary}
  upstream mcp {{ server 127.0.0.1:{upstream}; keepalive 512; }}
  keepalive_requests 100000000;
  server {{
    listen 127.0.0.1:{port} backlog=4096;
    location / {{
      proxy_pass http://mcp; proxy_http_version 1.1; proxy_set_header Connection ""; keepalive_requests 100000000;
    }}
  }}
}}
""")
    return processes.start("nginx", binary, "-p", f"{folder}/", "-c", folder / "nginx.conf")


def start_forebay(processes, binaries, name, key_hash, upstreams, threads=""):
    folder = processes.folder / name
    folder.mkdir()
    admin = str(folder / "admin.sock")
    config = folder / "forebay.toml"
    config.write_text(f"""
[listen]
mcp = "127.0.0.1:0"
admin = {json.dumps("unix:" + admin)}
{threads}
[auth]
mode = "keys"
[callers.bench]
key_hash = {json.dumps(key_hash)}
{upstreams}
""")
    process = processes.start(name, binaries["forebay"], "serve", "--config", config)

    def up():
        seen = state(admin)
        return seen if seen and all(one["state"] == "up" for one in seen["upstreams"]) else None

    seen = wait_for(f"{name} is up (see {processes.folder / name}.log)", up, process)
    children = [pid for one in seen["upstreams"] for pid in one.get("pids", [])]
    return {"url": "http://" + seen["mcp"].removeprefix("http://") + "/mcp", "pid": process.pid, "children": children}


class Driver:
    def __init__(self, binary, out, key, upstream_pid):
        self.binary, self.key, self.upstream_pid = binary, key, upstream_pid
        self.out = open(out, "a")

    def run(self, name, peer, *more):
        line = [self.binary, "--url", peer["url"], "--label", name, "--token", self.key, *map(str, more)]
        if peer.get("prefix"):
            line += ["--prefix", peer["prefix"]]
        if peer.get("pid"):
            line += ["--watch", f"peer={peer['pid']}"]
        for number, child in enumerate(peer.get("children", [])):
            line += ["--watch", f"child{number}={child}"]
        line += ["--watch", f"upstream={self.upstream_pid}"]
        done = subprocess.run(line, capture_output=True, text=True, timeout=300, start_new_session=True)
        try:
            row = json.loads(done.stdout.strip().splitlines()[-1])
        except (ValueError, IndexError):
            row = {"label": name, "failed": (done.stdout + done.stderr)[-400:]}
            say(f"{name}: FAILED: {row['failed']}")
        self.out.write(json.dumps(row) + "\n")
        self.out.flush()
        return row


def own(row, figure):
    """A watched figure of the peer itself, without its children (which the driver adds in)."""
    watch = row.get("watch", {})
    if "peer" not in watch:
        return None
    return watch["peer"][figure] - sum(watch[name][figure] for name in watch if name.startswith("child"))


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def shown(value, form="{:,.0f}"):
    return "-" if value is None else form.format(value)


def throughput(driver, peers, asked):
    """Interleaved rounds of echo. Rows by (peer, callers)."""
    rows = {}
    order = list(peers)
    for number in range(asked.rounds):
        turn = number % len(order)
        for callers in asked.callers.split(","):
            for name in order[turn:] + order[:turn]:
                row = driver.run(
                    name, peers[name], "--era", "modern", "-c", callers, "-t", asked.seconds, "--warm", 0.4
                )
                if "failed" not in row:
                    rows.setdefault((name, callers), []).append(row)
        say(f"round {number + 1} of {asked.rounds}")
    return rows


def print_throughput(rows, peers, asked):
    for callers in asked.callers.split(","):
        def figure(name, get):
            return median([get(row) for row in rows.get((name, callers), [])])

        def rps(name):
            return figure(name, lambda row: row["rps"])

        direct, nginx, rproxy = rps("direct"), rps("nginx"), rps("rproxy --mcp")
        print(f"\n{callers} callers, echo, {asked.rounds} rounds of {asked.seconds} s, medians\n")
        head = ["", "rps", "of direct", "of nginx", "of rproxy --mcp", "p50 ms", "added p50", "p99 ms", "CPU us", "errors", "others' cores"]
        lines = []
        for name in peers:
            one = rps(name)
            p50, base = figure(name, lambda row: row["ms"]["p50"]), figure("direct", lambda row: row["ms"]["p50"])

            def cpu(row):
                used = own(row, "cpu_s")
                return None if used is None else 1e6 * used / max(1, row["calls"])

            ratio = lambda other: shown(one / other if one and other else None, "{:.2f}")
            lines.append([
                name, shown(one), ratio(direct), ratio(nginx), ratio(rproxy), shown(p50, "{:.3f}"),
                shown(p50 - base if p50 is not None and base is not None else None, "{:.3f}"),
                shown(figure(name, lambda row: row["ms"]["p99"]), "{:.2f}"), shown(figure(name, cpu), "{:.1f}"),
                str(sum(row["error_count"] for row in rows.get((name, callers), []))),
                shown(figure(name, lambda row: row["foreign_cores"]), "{:.2f}"),
            ])
        print_table(head, lines)


def print_table(head, lines):
    widths = [max(len(line[column]) for line in [head, *lines]) for column in range(len(head))]
    for line in [head, ["-" * width for width in widths], *lines]:
        print("| " + " | ".join(cell.ljust(width) for cell, width in zip(line, widths)) + " |")


def burst(driver, peer, stats, name, prefix):
    urllib.request.urlopen(stats + "/reset", timeout=5).read()
    row = driver.run(
        name, {**peer, "prefix": prefix}, "--era", "modern", "-c", 500, "-n", 500, "--tool", "sleep",
        "--args", '{"ms":200}', "--timeout", 60000, "-t", 90,
    )
    row["peak"] = json.loads(urllib.request.urlopen(stats + "/stats", timeout=5).read())["peak"]
    return row


def main():
    asked = options()
    binaries = build(asked.bench, asked.forebay)
    if not binaries["nginx"]:
        say("nginx is not installed (on Debian: apt-get install nginx-light): ratios to it will be missing")
    key = json.loads(subprocess.check_output([binaries["forebay"], "key", "new", "bench", "--output", "json"]))
    Path(asked.out).parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="forebay-compare-") as folder:
        processes = Processes(Path(folder))
        try:
            measure(asked, binaries, key, processes)
        finally:
            processes.end()


def measure(asked, binaries, key, processes):
    port = free_port()
    upstream = processes.start("upstream", binaries["upstream"], "--listen", f"127.0.0.1:{port}")
    wait_for("the bench's upstream listens", lambda: listens(port), upstream)
    stats = f"http://127.0.0.1:{port}"
    peers = {"direct": {"url": f"{stats}/mcp"}}
    if binaries["nginx"]:
        nginx = free_port()
        process = start_nginx(processes, binaries["nginx"], nginx, port)
        wait_for("nginx listens", lambda: listens(nginx), process)
        peers["nginx"] = {"url": f"http://127.0.0.1:{nginx}/mcp", "pid": process.pid}
    rproxy = free_port()
    process = processes.start(
        "rproxy", binaries["rproxy"], "--listen", f"127.0.0.1:{rproxy}", "--to", f"127.0.0.1:{port}", "--mcp", "up_"
    )
    wait_for("rproxy listens", lambda: listens(rproxy), process)
    peers["rproxy --mcp"] = {"url": f"http://127.0.0.1:{rproxy}/mcp", "pid": process.pid, "prefix": "up_"}

    limits = "max_concurrent = 64\nqueue_size = 1000"
    url = f'url = "http://127.0.0.1:{port}/mcp"'
    over_http = start_forebay(
        processes, binaries, "forebay-http", key["key_hash"], f"[upstreams.up]\n{url}\n{limits}\n"
    )
    child = f"command = {json.dumps(binaries['upstream'])}\nargs = [\"--stdio\"]"
    over_stdio = start_forebay(
        processes, binaries, "forebay-stdio", key["key_hash"], f"[upstreams.up]\n{child}\n{limits}\n"
    )
    idle = {"HTTP": rss_mib(over_http["pid"]), "stdio": rss_mib(over_stdio["pid"])}
    say(f"everything is up; forebay at rest: {idle['HTTP']:.1f} MiB (HTTP), {idle['stdio']:.1f} MiB (stdio)")
    peers["forebay, HTTP"] = {**over_http, "prefix": "up__"}
    peers["forebay, stdio"] = {**over_stdio, "prefix": "up__"}

    driver = Driver(binaries["driver"], asked.out, key["key"], upstream.pid)
    rows = throughput(driver, peers, asked)

    say("256 sessions")
    sessions = {}
    for kind, name in (("HTTP", "forebay, HTTP"), ("stdio", "forebay, stdio")):
        row = driver.run(name, peers[name], "--era", "legacy", "-c", 256, "-t", max(1.0, asked.seconds), "--warm", 0.4)
        sessions[kind] = row

    say("bursts: 500 calls of 200 ms at once")
    bursts = start_forebay(
        processes, binaries, "forebay-burst", key["key_hash"],
        f"[upstreams.deep]\n{url}\n{limits}\n[upstreams.shallow]\n{url}\nmax_concurrent = 64\nqueue_size = 100\n",
    )
    deep = burst(driver, bursts, stats, "burst, queue 1000", "deep__")
    shallow = burst(driver, bursts, stats, "burst, queue 100", "shallow__")

    print_throughput(rows, peers, asked)
    print("\nbars at 64 callers: HTTP >= 0.65 of nginx and >= 0.90 of rproxy --mcp, stdio >= 0.80 of nginx; CPU a call")
    print("<= 35 us (HTTP), <= 25 us (stdio); added p50 at one caller <= 0.1 ms\n")
    print_table(
        ["memory, MiB", "at rest", "256 sessions", "sessions open", "errors", "bar"],
        [
            [
                f"forebay, {kind}", f"{idle[kind]:.1f}", shown(own(row, "rss_peak_mb"), "{:.1f}"),
                str(row.get("sessions", "-")), str(row.get("error_count", "failed")), "<= 15 / <= 40",
            ]
            for kind, row in sessions.items()
        ],
    )
    print()
    print_table(
        ["500 x sleep 200, max_concurrent 64", "ok", "refused", "upstream peak", "seconds", "refusal p50 ms", "bar"],
        [
            [
                f"queue_size {size}", str(row.get("ok", "failed")), str(row.get("error_count", "-")), str(row["peak"]),
                shown(row.get("seconds"), "{:.2f}"), shown(row.get("error_ms", {}).get("p50"), "{:.1f}"), bar,
            ]
            for size, row, bar in (
                (1000, deep, "500 ok, peak 64, <= 1.9 s"),
                (100, shallow, "336 refused, < 60 ms"),
            )
        ],
    )
    for row in (deep, shallow):
        if row.get("errors"):
            print(f"errors of '{row['label']}': {json.dumps(row['errors'])}")
    for name, one in (("forebay-http", over_http), ("forebay-stdio", over_stdio), ("forebay-burst", bursts)):
        seen = state(str(processes.folder / name / "admin.sock"))
        totals = seen["totals"] if seen else None
        if not totals or totals["unaccounted"] != 0 or totals["offered"] != totals["finished"]:
            print(f"{name}: THE LEDGER DOES NOT ADD UP: {totals}")
    print(f"\nevery measurement: {asked.out}")


if __name__ == "__main__":
    main()
