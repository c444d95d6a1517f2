//! What can be set, what is built in, and which settings contradict each other.

use super::*;

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
quota = { bytes_per_minute = "2MiB", tokens_per_minute = 250000 }
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
    let quota = bot.quota.unwrap();
    assert_eq!((quota.bytes_per_minute, quota.tokens_per_minute), (Some(2 << 20), Some(250_000)));
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
