//! Whole configs: what is taken, what is refused and how it is told.

use super::schema::{self, SECTIONS, Section};
use super::testing::Fake;
use super::*;
use crate::caller::Lane;
use proptest::prelude::*;
use std::path::Path;
use std::time::Duration;

const ONE: &str = "[upstreams.a]\ncommand = \"cat\"\n";

fn toml_with(text: &str, env: &Fake) -> Result<(Config, Vec<Warning>), Faults> {
    parse(Path::new("/etc/fb/forebay.toml"), text.into(), Format::Toml, env)
}

fn toml(text: &str) -> Result<(Config, Vec<Warning>), Faults> {
    toml_with(text, &Fake::default())
}

fn mcp_with(text: &str, env: &Fake) -> Result<(Config, Vec<Warning>), Faults> {
    parse(Path::new("/home/u/.mcp.json"), text.into(), Format::McpServers, env)
}

fn mcp(text: &str) -> Result<(Config, Vec<Warning>), Faults> {
    mcp_with(text, &Fake::default())
}

/// The limits of upstream `a` with these lines in it.
fn limits(lines: &str) -> Result<Limits, Faults> {
    toml(&format!("{ONE}{lines}\n")).map(|(config, _)| config.upstreams["a"].limits.clone())
}

/// `line:column key` of each fault.
fn places(faults: &Faults) -> Vec<String> {
    let place = |fault: &Finding| match &fault.place {
        Place::File { line, column, .. } => format!("{line}:{column} {}", fault.key),
        other => format!("{other} {}", fault.key),
    };
    faults.iter().map(place).collect()
}

fn warned(result: Result<(Config, Vec<Warning>), Faults>) -> Vec<String> {
    result.unwrap().1.iter().map(ToString::to_string).collect()
}

fn stdio(config: &Config, name: &str) -> StdioTarget {
    match &config.upstreams[name].target {
        Target::Stdio(stdio) => stdio.clone(),
        Target::Http(_) => panic!("{name} is http"),
    }
}

#[test]
fn what_is_not_said_is_built_in() {
    let (config, warnings) = toml("[upstreams.a]\ncommand = \"x\"\n[upstreams.b]\nurl = \"https://h/mcp\"\n").unwrap();
    assert_eq!(config.upstreams["a"].limits, Limits::built_in(true));
    assert_eq!(config.upstreams["b"].limits, Limits::built_in(false));
    assert_eq!(config.listen.mcp.to_string(), "127.0.0.1:7300");
    assert_eq!(config.auth, Auth::None);
    assert_eq!(config.global.overload_error_code, -31429);
    assert_eq!(config.upstreams["a"].start, Start::Eager);
    assert!(warnings.is_empty());
}

#[test]
fn defaults_stand_between_the_upstream_and_what_is_built_in() {
    let text = "[defaults]\nmax_concurrent = 3\nqueue_timeout = \"5s\"\n\
                [upstreams.a]\ncommand = \"x\"\nmax_concurrent_requests = 7\n[upstreams.b]\nurl = \"http://127.0.0.1:1/\"\n";
    let (config, _) = toml(text).unwrap();
    assert_eq!(config.upstreams["a"].limits.max_concurrent, Concurrency::Fixed(7), "the alias counts");
    assert_eq!(config.upstreams["b"].limits.max_concurrent, Concurrency::Fixed(3));
    assert_eq!(config.upstreams["a"].limits.queue_timeout, Some(Duration::from_secs(5)));
    assert_eq!(config.upstreams["a"].limits.queue_size, 100);
}

#[test]
fn everything_that_can_be_set_is_set() {
    let text = r#"
[listen]
mcp = "[::1]:0"
admin = "unix:/run/fb/a.sock"
hosts = ["Forebay.Example"]
origins = ["https://app.example:8443"]
threads = 3
max_body = "1MiB"
[auth]
mode = "keys"
[global]
max_concurrent = 9
max_share = 0.5
max_bytes = "1GiB"
drain_timeout = "1m"
connect_concurrency = 2
overload_error_code = -32001
overload_reply = "http_429"
legacy_disconnect = "keep"
[upstreams.a]
command = "uvx"
args = ["mysql-mcp"]
env = { P = "${PASSWORD}" }
cwd = "sub"
processes = 2
max_concurrent = { min = 2, max = 20 }
queue_size = 7
queue_bytes = 65536
queue_timeout = 0
call_timeout = "90s"
cancel_grace = "1s"
after_cancel = "recycle"
on_full = "reject"
fairness = "none"
max_queued = 3
count_everything = true
start = "on_demand"
connect_timeout = "2m"
max_message = "32MiB"
[upstreams.a.tools.export]
max_concurrent = 1
weight = 2
priority = "low"
call_timeout = "10m"
retry = true
[upstreams.b]
url = "https://h.example/mcp?key=1"
headers = { Authorization = "Bearer ${PASSWORD}" }
[callers.bot]
key_hash = ["sha256:0000000000000000000000000000000000000000000000000000000000000001", "sha256:0000000000000000000000000000000000000000000000000000000000000002"]
weight = 4
max_priority = "normal"
max_concurrent = 5
max_queued = 6
rate = { per_second = 0.5 }
upstreams = ["a"]
tools = ["a__export"]
"#;
    let (config, warnings) = toml_with(text, &Fake::default().with("PASSWORD", "pw")).unwrap();
    assert_eq!(warnings, []);
    let listen = &config.listen;
    assert_eq!((listen.mcp.port(), listen.threads, listen.max_body), (0, 3, 1 << 20));
    assert_eq!((listen.hosts[0].as_str(), listen.origins[0].as_str()), ("forebay.example", "https://app.example:8443"));
    assert_eq!(listen.admin, Path::new("/run/fb/a.sock"));
    let global = &config.global;
    assert_eq!((global.max_concurrent, global.max_share, global.max_bytes), (Some(9), 0.5, 1 << 30));
    assert_eq!((global.overload_error_code, global.overload_reply), (-32001, OverloadReply::Http429));
    let a = &config.upstreams["a"];
    let limits = &a.limits;
    assert_eq!(limits.max_concurrent, Concurrency::Adaptive { min: 2, max: 20 });
    assert_eq!((limits.queue_size, limits.queue_bytes, limits.queue_timeout), (7, 65536, None));
    assert_eq!((limits.on_full, limits.fairness, limits.max_queued), (OnFull::Reject, Fairness::None, Some(3)));
    assert_eq!((limits.after_cancel, limits.count_everything), (AfterCancel::Recycle, true));
    assert_eq!((a.start, a.connect_timeout, a.max_message), (Start::OnDemand, Duration::from_secs(120), 32 << 20));
    assert_eq!(a.tools["export"].call_timeout, Some(Duration::from_secs(600)));
    assert_eq!((a.tools["export"].weight, a.tools["export"].priority), (Some(2), Some(Lane::Low)));
    let target = stdio(&config, "a");
    assert_eq!((target.env["P"].expose(), target.processes), ("pw", 2));
    assert_eq!(target.cwd.as_deref(), Some(Path::new("/etc/fb/sub")));
    let Target::Http(http) = &config.upstreams["b"].target else { panic!() };
    assert_eq!(http.headers[0].1.expose(), "Bearer pw");
    let bot = &config.callers["bot"];
    assert_eq!((bot.keys.len(), bot.weight, bot.max_priority), (2, 4, Lane::Normal));
    assert_eq!(bot.rate, Some(Rate { per_second: 0.5, burst: 1 }));
    assert_eq!(bot.tools.as_deref(), Some(&["a__export".to_owned()][..]));
}

#[test]
fn all_faults_are_told_at_once_with_their_places() {
    let text = "[defaults]\nqueue_sise = 1\n\n[upstreams.a]\ncommand = \"x\"\nmax_concurrent = -1\n  call_timeout = 60\n\
                [upstreams.b]\n[upstreams.\"c d\"]\nurl = \"ftp://h\"\n[global]\noverload_error_code = -32050\n";
    let faults = toml(text).unwrap_err();
    assert_eq!(
        places(&faults),
        [
            "2:1 defaults.queue_sise",
            "6:18 upstreams.a.max_concurrent",
            "7:18 upstreams.a.call_timeout",
            "8:12 upstreams.b",
            "9:12 upstreams.c d",
            "10:7 upstreams.c d.url",
            "12:23 global.overload_error_code",
        ]
    );
    assert!(faults.iter().all(|fault| fault.hint.is_some()), "{faults}");
    assert!(faults.to_string().contains("/etc/fb/forebay.toml:2:1: `defaults.queue_sise` is not a key"));
    assert!(faults.to_string().contains("did you mean `queue_size`?"));
}

#[test]
fn a_name_used_twice_is_told_beside_the_other_faults() {
    let faults =
        toml(&format!("{ONE}[upstreams.a]\ncommand = \"y\"\n[upstreams.b]\ncommand = \"z\"\nqueue_size = -1\n"));
    let faults = faults.unwrap_err();
    assert!(faults.iter().any(|fault| fault.message.contains("given before")), "{faults}");
    assert!(faults.iter().any(|fault| fault.key == "upstreams.b.queue_size"), "{faults}");
    let twice = mcp(r#"{"mcpServers": {"a": {"command": "x"}, "a": {"command": "y"}}}"#).unwrap_err();
    assert!(twice.to_string().contains("given before"), "{twice}");
    let alias = limits("max_concurrent = 1\nmax_concurrent_requests = 2").unwrap_err();
    assert!(alias.to_string().contains("another name of `max_concurrent`"), "{alias}");
}

#[test]
fn r32_reserved_error_codes_are_refused() {
    let code = |code: i64| toml(&format!("{ONE}[global]\noverload_error_code = {code}\n"));
    for reserved in [-32099, -32050, -32020] {
        assert!(code(reserved).is_err(), "{reserved}");
    }
    for free in [-32100, -32019, -32001, -31429, 7] {
        assert_eq!(code(free).unwrap().0.global.overload_error_code, free);
    }
    assert!(warned(code(-32602))[0].contains("another meaning"));
}

#[test]
fn r12_the_global_share_is_a_fraction() {
    let share = |share: &str| toml(&format!("{ONE}[global]\nmax_share = {share}\n"));
    for wrong in ["0", "0.0", "-0.5", "1.01", "nan", "inf", "1e400", "\"x\"", "[]"] {
        assert!(share(wrong).is_err(), "{wrong}");
    }
    assert_eq!(share("1").unwrap().0.global.max_share, 1.0);
}

#[test]
fn r14_a_weight_above_the_limit_is_a_warning() {
    let text = format!("{ONE}max_concurrent = 2\n[upstreams.a.tools.t]\nweight = 3\n");
    assert!(warned(toml(&text))[0].contains("counts as 2"));
    assert!(warned(toml(&text.replace('3', "2"))).is_empty());
}

#[test]
fn r21_the_ceilings_hold() {
    assert_eq!(limits("max_concurrent = 4096").unwrap().max_concurrent, Concurrency::Fixed(4096));
    assert!(limits("max_concurrent = 4097").is_err());
    assert_eq!(limits("queue_size = 61440").unwrap().queue_size, 61_440);
    assert!(limits("queue_size = 61441").is_err());
}

#[test]
fn r34_keys_are_stored_as_hashes_and_at_most_two() {
    let caller =
        |line: &str| toml(&format!("{ONE}[auth]\nmode = \"keys\"\n[callers.bot]\nupstreams = [\"a\"]\n{line}\n"));
    let key = crate::caller::key::Key::new([3; 32]);
    let hash = |digit: char| format!("\"sha256:{}\"", String::from(digit).repeat(64));
    let (config, warnings) = caller(&format!("key_hash = \"{}\"", key.key_hash())).unwrap();
    assert_eq!((config.callers["bot"].keys.len(), warnings.len()), (1, 0));
    assert!(caller(&format!("key_hash = [{}, {}]", hash('1'), hash('2'))).is_ok());
    assert!(caller(&format!("key_hash = [{}, {}, {}]", hash('1'), hash('2'), hash('3'))).is_err());
    assert!(caller(&format!("key_hash = [{0}, {0}]", hash('1'))).is_err());
    assert!(caller("key_hash = []").is_err());
    assert!(caller("key_hash = \"sha256:12\"").is_err());
    let itself = caller(&format!("key_hash = \"{}\"", key.expose())).unwrap_err().to_string();
    assert!(itself.contains("a key itself") && !itself.contains(key.expose()), "{itself}");
    let shared = format!("key_hash = {0}\n[callers.b]\nkey_hash = {0}\n", hash('1'));
    assert!(caller(&shared).unwrap_err().to_string().contains("callers.bot"));
    let told = warned(caller(""));
    assert!(told.iter().any(|told| told.contains("cannot call")), "{told:?}");
    assert!(told.iter().any(|told| told.contains("nobody can call")), "{told:?}");
}

#[test]
fn who_may_use_everything_is_told_unless_it_is_said() {
    let key = "key_hash = \"sha256:0000000000000000000000000000000000000000000000000000000000000000\"";
    let caller = |line: &str| toml(&format!("{ONE}[auth]\nmode = \"keys\"\n[callers.bot]\n{key}\n{line}\n"));
    assert!(warned(caller(""))[0].contains("all upstreams"));
    let (config, warnings) = caller("upstreams = [\"*\"]").unwrap();
    assert_eq!((config.callers["bot"].upstreams.as_ref(), warnings.len()), (None, 0));
    assert!(warned(caller("upstreams = [\"b\"]"))[0].contains("not in this config"));
}

#[test]
fn an_open_door_needs_keys() {
    let listen =
        |address: &str, auth: &str| toml(&format!("{ONE}[listen]\nmcp = \"{address}\"\n[auth]\nmode = \"{auth}\"\n"));
    for open in ["0.0.0.0:7300", "[::]:7300", "192.168.1.5:1", "[::ffff:8.8.8.8]:1"] {
        let faults = listen(open, "none").unwrap_err();
        assert!(faults.to_string().contains("forebay key new"), "{faults}");
        assert!(listen(open, "keys").is_ok());
    }
    for own in ["127.0.0.1:0", "127.9.9.9:7300", "[::1]:7300", "localhost:7300", "[::ffff:127.0.0.1]:1"] {
        assert!(listen(own, "none").is_ok(), "{own}");
    }
    for wrong in ["7300", ":7300", "localhost", "127.0.0.1", "127.0.0.1:99999", "example.com:80", ""] {
        assert!(listen(wrong, "keys").is_err(), "{wrong}");
    }
}

#[test]
fn hosts_and_origins_are_whole_names() {
    let list = |key: &str, value: &str| toml(&format!("{ONE}[listen]\n{key} = [\"{value}\"]\n"));
    for wrong in ["", "*", "a b", "http://a", "a:80", "*.a"] {
        assert!(list("hosts", wrong).is_err(), "{wrong}");
    }
    for wrong in ["", "*", "null", "a.example", "https://a/", "https://a/x", "https://u@a", "https://*.a"] {
        assert!(list("origins", wrong).is_err(), "{wrong}");
    }
    assert!(list("hosts", "a.example").is_ok());
    assert!(list("origins", "http://localhost:5173").is_ok());
}

#[test]
fn an_upstream_is_a_command_or_a_url() {
    let upstream = |lines: &str| toml(&format!("[upstreams.a]\n{lines}\n"));
    for (wrong, part) in [
        ("", "neither"),
        ("command = \"x\"\nurl = \"http://h\"", "beside `command`"),
        ("command = \"x\"\nheaders = {}", "goes with `url`"),
        ("url = \"http://h\"\nargs = []", "goes with `command`"),
        ("command = \"\"", "empty"),
        ("command = \"/usr/bin/forebay\"", "forebay itself"),
        ("url = \"h/mcp\"", "http"),
        ("url = \"http://\"", "URL"),
        ("url = \"http:///x\"", "URL"),
        ("url = \"https://u:p@h/\"", "credentials"),
        ("url = \"http://h:99999/\"", "port"),
        ("url = \"unix:/x\"", "URL"),
        ("url = \"http://127.0.0.1:7300/mcp\"", "own address"),
        ("url = \"http://localhost:7300/mcp/a\"", "own address"),
        ("url = \"http://h\"\nafter_cancel = \"recycle\"", "no process"),
        ("url = \"http://h\"\nafter_cancel = \"hold\"\ncall_timeout = 0", "needs a call_timeout"),
        ("url = \"http://h\"\nafter_cancel = \"hold\"\ncall_timeout = \"0s\"", "needs a call_timeout"),
        ("url = \"http://h\"\nheaders = { \"a b\" = \"x\" }", "no name"),
        ("url = \"http://h\"\nheaders = { A = \"x\\n\" }", "character"),
        ("url = \"http://h\"\nheaders = { A = \"x\", a = \"y\" }", "twice"),
        ("command = \"x\"\nenv = { \"A=B\" = \"x\" }", "no name"),
        ("command = \"x\"\nenv = { A = 1 }", "quotes"),
        ("command = \"x\"\nargs = \"-y\"", "list"),
        ("command = \"x\"\nargs = [1]", "a.args[0]"),
        ("command = \"x\\u0000\"", "zero byte"),
    ] {
        let told = upstream(wrong).map(|_| ()).unwrap_err().to_string();
        assert!(told.contains(part), "{wrong}: {told}");
    }
    assert!(upstream("url = \"https://[::1]:8080/mcp\"").is_ok());
    assert!(upstream("url = \"http://h:80\"").is_ok());
    for own in ["Accept", "Content-Type", "Host", "Mcp-Session-Id"] {
        let (config, warnings) = upstream(&format!("url = \"https://h\"\nheaders = {{ {own} = \"x\" }}")).unwrap();
        let Target::Http(http) = &config.upstreams["a"].target else { panic!() };
        assert!(http.headers.is_empty() && warnings[0].message.contains("sets itself"), "{own}");
    }
    let clear = "url = \"http://h.example/\"\nheaders = { Authorization = \"x\" }";
    assert!(warned(upstream(clear))[0].contains("unencrypted"));
    assert!(warned(upstream("command = \"npx -y thing\""))[0].contains("without a shell"));
}

#[test]
fn variables_stand_over_the_file() {
    let env = Fake::default()
        .with("FOREBAY_GLOBAL_MAX_CONCURRENT", "8")
        .with("FOREBAY_DEFAULTS_QUEUE_SIZE", "3")
        .with("FOREBAY_DEFAULTS_QUEUE_TIMEOUT", "2s")
        .with("FOREBAY_LISTEN_MCP", "127.0.0.1:0")
        .with("FOREBAY_ADMIN", "unix:/x");
    let (config, _) = toml_with(&format!("{ONE}[global]\nmax_concurrent = 2\n"), &env).unwrap();
    assert_eq!(config.global.max_concurrent, Some(8));
    assert_eq!(config.upstreams["a"].limits.queue_size, 3);
    assert_eq!(config.upstreams["a"].limits.queue_timeout, Some(Duration::from_secs(2)));
    assert_eq!(config.listen.mcp.port(), 0);
    let (config, _) = mcp_with(r#"{"mcpServers": {"a": {"command": "x"}}}"#, &env).unwrap();
    assert_eq!(config.upstreams["a"].limits.queue_size, 3);
}

#[test]
fn a_faulty_variable_is_named() {
    for (name, value, part) in [
        ("FOREBAY_GLOBAL_MAX_CONCURENT", "8", "did you mean FOREBAY_GLOBAL_MAX_CONCURRENT?"),
        ("FOREBAY_GLOBAL_MAX_CONCURRENT", "-8", "is negative"),
        ("FOREBAY_GLOBAL_MAX_CONCURRENT", "99999999999999999999", "beyond all bounds"),
        ("FOREBAY_DEFAULTS_QUEUE_TIMEOUT", "60", "without a unit"),
        ("FOREBAY_DEFAULTS_COUNT_EVERYTHING", "yes", "true or false"),
        ("FOREBAY_LISTEN_HOSTS", "a", "is a list"),
        ("FOREBAY_LISTEN_MCP", "0.0.0.0:1", "open to other machines"),
    ] {
        let told = toml_with(ONE, &Fake::default().with(name, value)).unwrap_err().to_string();
        assert!(told.contains(part) && told.contains(&format!("environment variable {name}")), "{name}: {told}");
    }
}

#[test]
fn the_config_is_found_in_the_order_of_the_manual() {
    let bad = |file: &str| Fake::default().with("HOME", "/home/u").with_file(file, "");
    let origin = |env: &Fake| load(&Source::Discover, env).unwrap_err().origin;
    let etc = bad("/etc/forebay/config.toml");
    assert_eq!(origin(&etc).unwrap(), Path::new("/etc/forebay/config.toml"));
    let home = etc.with_file("/home/u/.config/forebay/config.toml", "");
    assert_eq!(origin(&home).unwrap(), Path::new("/home/u/.config/forebay/config.toml"));
    let xdg = home.with("XDG_CONFIG_HOME", "/xdg").with_file("/xdg/forebay/config.toml", "");
    assert_eq!(origin(&xdg).unwrap(), Path::new("/xdg/forebay/config.toml"));
    let service = xdg.with("CONFIGURATION_DIRECTORY", "/svc").with_file("/svc/config.toml", "");
    assert_eq!(origin(&service).unwrap(), Path::new("/svc/config.toml"));
    let none = load(&Source::Discover, &Fake::default()).unwrap_err();
    assert!(none.origin.is_none() && none.to_string().contains("--mcp-config"), "{none}");
}

#[test]
fn the_admin_socket_has_one_place_for_daemon_and_commands() {
    let root = Fake { root: true, ..Fake::default() };
    assert_eq!(default_admin(&root), Path::new("/run/forebay/forebay.sock"));
    assert_eq!(default_admin(&Fake::default()), Path::new("/tmp/forebay-user/forebay.sock"));
    let user = Fake::default().with("XDG_RUNTIME_DIR", "/run/user/7").with("USER", "../../x").with("HOME", "/h");
    assert_eq!(default_admin(&user), Path::new("/run/user/7/forebay.sock"));
    let text = format!("{ONE}[listen]\nadmin = \"unix:${{SOCK:-a.sock}}\"\n[nonsense]\n");
    let with_file = user.with_file("/h/.config/forebay/config.toml", text);
    assert_eq!(default_admin(&with_file), Path::new("/h/.config/forebay/a.sock"), "a faulty config still tells it");
    let set = with_file.with("FOREBAY_LISTEN_ADMIN", "unix:/y.sock");
    assert_eq!(default_admin(&set), Path::new("/y.sock"));
    for wrong in ["", "unix:", "tcp://x", "http://127.0.0.1:1", &format!("unix:/{}", "x".repeat(107))] {
        assert!(parse_admin(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn c15_env_is_what_the_config_says_and_nothing_of_the_daemons() {
    let text = r#"{"mcpServers": {"a": {"command": "sh", "args": ["-c", "command -v cat"], "env": {"X": "1"}}}}"#;
    let (config, _) = mcp_with(text, &Fake::default().with("DAEMON_SECRET", "s")).unwrap();
    let target = stdio(&config, "a");
    assert_eq!(target.env.keys().collect::<Vec<_>>(), ["X"]);
    let told = toml("[upstreams.a]\ncommand = \"x\"\nenv = { K = \"${GONE}\" }\n").unwrap_err();
    let fault = told.iter().next().unwrap();
    assert_eq!(fault.key, "upstreams.a.env.K");
    assert!(fault.message.contains("GONE") && fault.message.contains("not set"), "{told}");
}

#[test]
fn c32_no_secret_is_ever_told() {
    let good = r#"
[auth]
mode = "keys"
[upstreams.a]
command = "x"
args = ["-e", "TOKEN=s3cr3t-0001"]
env = { KEY = "s3cr3t-0002", V = "${V}" }
[upstreams.b]
url = "https://h.example/s3cr3t-0005?key=s3cr3t-0006"
headers = { Authorization = "Bearer s3cr3t-0003" }
[callers.c]
key_hash = "sha256:0000000000000000000000000000000000000000000000000000000000000000"
"#;
    let env = Fake::default().with("V", "s3cr3t-0007");
    let (config, warnings) = toml_with(good, &env).unwrap();
    assert!(!format!("{config:?}{warnings:?}").contains("s3cr3t"));
    // The same text with a fault in every place that holds a secret, and cut off at every byte.
    let mut bad: Vec<String> = (0..good.len()).map(|end| good[..end].to_owned()).collect();
    bad.push(good.replace("https://", "s3cr3t://u:s3cr3t@"));
    bad.push(good.replace("Bearer s3cr3t-0003", "Bearer s3cr3t-0003\\n"));
    bad.push(good.replace("s3cr3t-0001", "s3cr3t\\u0000"));
    bad.push(
        good.replace("\"x\"\n", "\"x\"\nqueue_timeout = \"${V}\"\nqueue_bytes = \"${V}\"\nmax_concurrent = \"${V}\"\n"),
    );
    bad.push(good.replace("\"x\"\n", "\"x\"\nstart = \"${V}\"\ncount_everything = \"${V}\"\ncwd = 5\n"));
    bad.push(good.replace("sha256:", "fb_s3cr3t_s3cr3t"));
    bad.push(good.replace("[auth]", "[listen]\nmcp = \"${V}\"\nadmin = \"${V}\"\nhosts = [\"${V} \"]\n[auth]"));
    bad.push(good.replace("KEY = ", "KEY = 5 "));
    let mut refused = 0;
    for text in bad {
        let told = match toml_with(&text, &env) {
            Ok((config, warnings)) => format!("{config:?}{warnings:?}"),
            Err(faults) => {
                refused += 1;
                format!("{faults}{faults:?}")
            }
        };
        assert!(!told.contains("s3cr3t"), "{text}\n{told}");
    }
    assert!(refused > 100);
}

#[test]
fn c37_a_cut_off_or_empty_file_is_refused() {
    for empty in ["", "\n", " \n\t", "\u{feff}"] {
        let told = toml(empty).unwrap_err().to_string();
        assert!(told.contains("is empty"), "{told}");
        assert!(mcp(empty).unwrap_err().to_string().contains("is empty"));
    }
    let cut = toml("[upstreams.a]\ncommand = \"ca").unwrap_err();
    assert!(matches!(cut.iter().next().unwrap().place, Place::File { line: 2, column: 11.., .. }), "{cut}");
    assert!(mcp("{\"mcpServers\": {\"a\": {\"command\": \"x\"").unwrap_err().to_string().contains(".mcp.json:1:"));
    assert!(toml("# only a comment\n").unwrap_err().to_string().contains("nothing to serve"));
    assert!(mcp("// only a comment\n").unwrap_err().to_string().contains("comments only"));
    assert!(toml("[upstreams]\n").unwrap_err().to_string().contains("nothing to serve"));
    let gone = load(&Source::File("/gone.toml".into()), &Fake::default()).unwrap_err().to_string();
    assert!(gone.contains("/gone.toml") && gone.contains("cannot be read"), "{gone}");
    let latin = parse(Path::new("f"), b"a = 1\nb = \"\xe9\"\n".to_vec(), Format::Toml, &Fake::default()).unwrap_err();
    assert_eq!(places(&latin), ["2:6 "]);
}

#[test]
fn c38_a_client_file_with_comments_is_taken_as_it_is() {
    let text = "\u{feff}{\n  // note\n  \"mcpServers\": { /* two */\n    \"a\": {\"type\": \"stdio\", \"command\": \"x\", \
                \"args\": [\"http://x//y\", \"/* no */\",],},\n    \"b\": {\"url\": \"http://x//y\"},\n  },\n}\n";
    let (config, warnings) = mcp(text).unwrap();
    assert_eq!(warnings, []);
    let args: Vec<_> = stdio(&config, "a").args.iter().map(|arg| arg.expose().to_owned()).collect();
    assert_eq!(args, ["http://x//y", "/* no */"]);
    let Target::Http(http) = &config.upstreams["b"].target else { panic!() };
    assert_eq!(http.url.to_string(), "http://x//y");
    let toml = toml(&format!("\u{feff}# note\n{ONE}")).unwrap();
    assert_eq!(toml.0.upstreams.len(), 1);
    for (wrong, place) in [("{\"mcpServers\": {'a': {}}}", "1:17 "), ("{\"mcpServers\": {\n\"a\" {}}}", "2:5 ")] {
        assert_eq!(places(&mcp(wrong).unwrap_err()), [place], "{wrong}");
    }
}

#[test]
fn c38_never_a_start_with_no_upstreams() {
    for none in ["{}", "[]", "null", "1", "{\"mcpServers\": {}}", "{\"mcpServers\": []}", "{\"mcpServers\": null}"] {
        assert!(mcp(none).is_err(), "{none}");
    }
    let all_left_out =
        mcp(r#"{"mcpServers": {"a": {"type": "sse", "url": "https://h/sse"}}}"#).unwrap_err().to_string();
    assert!(all_left_out.contains("old HTTP+SSE") && all_left_out.contains("no server"), "{all_left_out}");
}

#[test]
fn servers_that_cannot_be_taken_are_told_one_by_one() {
    let text = r#"{"mcpServers": {
        "ok": {"command": "x", "headers": {}, "env": null, "alwaysAllow": ["y"], "disabled": false},
        "old": {"type": "sse", "url": "https://h/sse"},
        "loop": {"url": "http://localhost:7300/mcp"},
        "bridge": {"command": "/usr/local/bin/forebay", "args": ["bridge"]},
        "off": {"command": "x", "disabled": true},
        "My Server": {"command": "x", "timeout": 60000},
        "wind": {"serverUrl": "https://h/mcp"},
        "proxy": {"protocol": "http", "url": "https://h/mcp", "max_concurrent_requests": 2, "queue_size": 4}
    }}"#;
    let (config, warnings) = mcp(text).unwrap();
    assert_eq!(config.upstreams.keys().collect::<Vec<_>>(), ["My-Server", "ok", "proxy", "wind"]);
    assert_eq!(config.upstreams["proxy"].limits.max_concurrent, Concurrency::Fixed(2));
    assert_eq!(config.upstreams["proxy"].limits.queue_size, 4);
    let told: Vec<String> = warnings.iter().map(|warning| format!("{} {}", warning.key, warning.message)).collect();
    for part in [
        "old is left out",
        "loop is left out",
        "bridge is left out",
        "off is left out",
        "`My-Server`",
        "timeout is ignored",
    ] {
        assert!(told.iter().any(|told| told.contains(part)), "{part}: {told:?}");
    }
    assert_eq!(told.len(), 6, "{told:?}");
}

#[test]
fn other_shapes_of_client_files_are_taken_too() {
    let vs_code = r#"{"inputs": [], "servers": {"a": {"type": "stdio", "command": "x"}}}"#;
    assert_eq!(mcp(vs_code).unwrap().0.upstreams.len(), 1);
    let settings = r#"{"editor.x": 1, "mcp": {"servers": {"a": {"type": "http", "url": "https://h/"}}}}"#;
    assert_eq!(mcp(settings).unwrap().0.upstreams.len(), 1);
    let list = r#"{"mcpServers": [{"name": "a", "protocol": "stdio", "command": "x", "url": "", "working_dir": "w", "enabled": true}]}"#;
    let (config, warnings) = mcp(list).unwrap();
    assert_eq!(stdio(&config, "a").cwd.as_deref(), Some(Path::new("/home/u/w")));
    assert_eq!(warnings, []);
    let prompt = mcp(r#"{"servers": {"a": {"command": "x", "env": {"K": "${input:key}"}}}}"#).unwrap_err().to_string();
    assert!(prompt.contains("servers.a.env.K") && prompt.contains("input"), "{prompt}");
    let clash = mcp(r#"{"mcpServers": {"a b": {"command": "x"}, "a-b": {"command": "y"}}}"#).unwrap_err().to_string();
    assert!(clash.contains("like another server"), "{clash}");
}

#[test]
fn c39_the_unit_is_in_the_value_and_0_is_none() {
    let timeout = |value: &str| limits(&format!("call_timeout = {value}")).map(|limits| limits.call_timeout);
    let seconds = |seconds| Some(Duration::from_secs_f64(seconds));
    for (value, expected) in [
        ("0", None),
        ("0.0", None),
        ("\"0\"", None),
        ("\"0s\"", None),
        ("\"60s\"", seconds(60.0)),
        ("\"1m\"", seconds(60.0)),
        ("\"60 s\"", seconds(60.0)),
        ("\"1.5s\"", seconds(1.5)),
    ] {
        assert_eq!(timeout(value).unwrap(), expected, "{value}");
    }
    for (value, hint) in [("60", "\"60s\""), ("\"60\"", "\"60s\""), ("1.5", "\"1.5s\"")] {
        let told = timeout(value).unwrap_err().to_string();
        assert!(told.contains("without a unit") && told.contains(hint), "{value}: {told}");
    }
    for value in
        ["\"\"", "-1", "\"-1s\"", "-0.5", "true", "[]", "nan", "inf", "1e400", "2024-01-01", "99999999999999999999"]
    {
        assert!(timeout(value).is_err(), "{value}");
    }
    for key in ["cancel_grace", "connect_timeout"] {
        assert!(limits(&format!("{key} = 0")).unwrap_err().to_string().contains("must not be 0"));
    }
}

#[test]
fn c40_zero_negative_and_absurd_numbers() {
    assert_eq!(limits("queue_size = 0").unwrap().queue_size, 0);
    assert_eq!(limits("max_concurrent = 0").unwrap().max_concurrent, Concurrency::Unlimited);
    assert_eq!(limits("max_concurrent = \"unlimited\"").unwrap().max_concurrent, Concurrency::Unlimited);
    assert!(limits("processes = 0").unwrap_err().to_string().contains("is below 1"));
    for key in ["queue_size", "max_concurrent", "processes", "queue_bytes", "max_queued", "max_message"] {
        for (value, part) in [
            ("-1", "is negative"),
            ("nan", "finite"),
            ("-inf", "finite"),
            ("1e400", "finite"),
            ("18446744073709551616", "beyond all bounds"),
            ("9223372036854775807", ""),
            ("1.5", "whole number"),
            ("true", ""),
            ("[1]", ""),
        ] {
            let told = limits(&format!("{key} = {value}")).unwrap_err().to_string();
            assert!(told.contains(part) && told.contains(key), "{key} = {value}: {told}");
        }
    }
    for range in [
        "{}",
        "{ min = 2 }",
        "{ min = 0, max = 5 }",
        "{ min = 9, max = 5 }",
        "{ min = 1, max = 5000 }",
        "{ min = 1, max = 2, x = 1 }",
    ] {
        assert!(limits(&format!("max_concurrent = {range}")).is_err(), "{range}");
    }
}

#[test]
fn c40_a_queue_without_a_limit_is_refused() {
    let refused = |text: &str| toml(text).unwrap_err().to_string().contains("asks for a queue");
    assert!(refused(&format!("{ONE}max_concurrent = 0\nqueue_size = 5\n")));
    assert!(refused(&format!("[defaults]\nmax_concurrent = 0\n{ONE}queue_size = 5\n")));
    assert!(refused(&format!("[defaults]\nmax_concurrent = \"unlimited\"\nqueue_size = 5\n{ONE}")));
    assert!(toml(&format!("[defaults]\nqueue_size = 5\n{ONE}max_concurrent = 0\n")).is_ok());
    assert!(limits("max_concurrent = 0\nqueue_size = 0").is_ok());
    assert!(limits("queue_size = \"unlimited\"").is_err());
}

/// A config in which `key` of `section` has a value that no key takes.
fn with_wrong_value(section: &Section, key: &str) -> String {
    let head = match section.title {
        "" => return format!("{key} = 2024-01-01\n"),
        "upstreams.NAME" => "[upstreams.a]\n".to_owned(),
        "upstreams.NAME.tools.TOOL" => format!("{ONE}[upstreams.a.tools.t]\n"),
        "callers.NAME" => format!("{ONE}[callers.c]\n"),
        "callers.NAME.rate" => format!("{ONE}[callers.c.rate]\n"),
        title => format!("{ONE}[{title}]\n"),
    };
    let beside = match key {
        "args" | "env" | "cwd" | "processes" => "command = \"x\"\n",
        "headers" => "url = \"http://h\"\n",
        "burst" => "per_second = 1\n",
        _ => "",
    };
    format!("{head}{beside}{key} = 2024-01-01\n")
}

#[test]
fn every_key_that_is_documented_is_read() {
    for section in SECTIONS {
        for key in section.keys() {
            for name in key.aliases.iter().chain([&key.name]) {
                let text = with_wrong_value(&section, name);
                let told = toml(&text).map(|_| ()).expect_err(&text);
                let read = |fault: &Finding| fault.key.ends_with(name) && !fault.message.contains("not a key");
                assert!(told.iter().any(read), "{text}\n{told}");
            }
        }
    }
}

#[test]
fn the_manual_tells_every_key_and_no_other() {
    let manual = include_str!("../../docs/config.md");
    let tables = schema::manual();
    let begin = "<!-- keys: made from src/config/schema.rs -->\n";
    let end = "<!-- end of keys -->";
    let inside = manual.split_once(begin).and_then(|(_, rest)| rest.split_once(end)).map(|(inside, _)| inside);
    if inside != Some(&*tables) {
        let wanted = std::env::temp_dir().join("forebay-config-keys.md");
        std::fs::write(&wanted, &tables).unwrap();
        panic!(
            "docs/config.md differs from the schema; what should stand between the marks is in {}",
            wanted.display()
        );
    }
}

#[test]
fn the_examples_load_without_a_fault_or_warning() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for source in [Source::File(directory.join("forebay.toml")), Source::McpFile(directory.join("mcp.json"))] {
        struct Files;
        impl Env for Files {
            fn var(&self, _: &str) -> Option<String> {
                None
            }
            fn own_vars(&self) -> Vec<(String, String)> {
                Vec::new()
            }
            fn read(&self, path: &Path) -> std::io::Result<Vec<u8>> {
                ProcessEnv.read(path)
            }
            fn is_root(&self) -> bool {
                false
            }
        }
        let (config, warnings) = load(&source, &Files).unwrap_or_else(|faults| panic!("{faults}"));
        assert_eq!(warnings, []);
        assert!(config.upstreams.len() >= 3);
    }
}

const WHOLE: &str = include_str!("../../examples/forebay.toml");
const CLIENTS: &str = include_str!("../../examples/mcp.json");

/// A text with some of its bytes cut out, doubled or replaced.
fn mangled(text: &'static str) -> impl Strategy<Value = Vec<u8>> {
    let bits = prop::sample::select(vec![
        "[",
        "]",
        "{",
        "}",
        "\"",
        "'",
        "=",
        "\n",
        ".",
        ",",
        "${",
        "}",
        "-1",
        "1e400",
        "\0",
        "\u{202e}",
        "[[",
        "]]",
        "\\",
        "#",
        "//",
        "/*",
        "inf",
        "0",
        "upstreams",
        "command = 1",
        "\u{feff}",
        "9999999999999999999999",
        "\"\"\"",
        "é",
    ]);
    let edit = (any::<prop::sample::Index>(), 0usize..40, bits);
    prop::collection::vec(edit, 1..6).prop_map(move |edits| {
        let mut bytes = text.as_bytes().to_vec();
        for (at, cut, bit) in edits {
            let at = at.index(bytes.len() + 1);
            let end = (at + cut).min(bytes.len());
            bytes.splice(at..end, bit.bytes());
        }
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 512 }))]

    #[test]
    fn c37_no_mangled_file_panics_and_every_refusal_has_a_place(bytes in mangled(WHOLE)) {
        if let Err(faults) = parse(Path::new("f"), bytes, Format::Toml, &Fake::default()) {
            prop_assert!(faults.len() > 0);
            let whole = |fault: &Finding| fault.place != Place::Nowhere && !fault.message.is_empty() && fault.hint.is_some();
            prop_assert!(faults.iter().all(whole), "{}", faults);
        }
    }

    #[test]
    fn c38_no_mangled_client_file_panics_or_loads_empty(bytes in mangled(CLIENTS)) {
        match parse(Path::new("f"), bytes, Format::McpServers, &Fake::default()) {
            Ok((config, _)) => prop_assert!(!config.upstreams.is_empty()),
            Err(faults) => prop_assert!(faults.len() > 0),
        }
    }

    #[test]
    fn no_bytes_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(Path::new("f"), bytes.clone(), Format::Toml, &Fake::default());
        let _ = parse(Path::new("f"), bytes, Format::McpServers, &Fake::default());
    }
}
