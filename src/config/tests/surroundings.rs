//! The environment over the file, and where config and admin socket are found.

use super::*;

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
