//! Files as they are found: cut off, empty, of clients, of the other format.

use super::*;

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
fn a_file_of_the_other_format_is_told_with_its_flag() {
    let told = |result: Result<(Config, Vec<Warning>), Faults>| result.unwrap_err().to_string();
    let json = told(toml(r#"{ "mcpServers": { "a": { "command": "x" } } }"#));
    assert!(json.contains("is JSON") && json.contains("--mcp-config") && json.lines().count() == 1, "{json}");
    let own = told(mcp(ONE));
    assert!(own.contains("is TOML") && own.contains("with --config") && own.lines().count() == 1, "{own}");
    assert!(told(toml("neither { nor")).contains("not TOML"));
    assert!(told(mcp("neither { nor")).contains("not JSON"));
}

#[test]
fn an_empty_list_of_servers_is_told_with_what_to_add() {
    let told = mcp(r#"{"mcpServers": {}}"#).unwrap_err().to_string();
    assert!(told.contains("has no server") && told.contains("add one: \"NAME\""), "{told}");
    let told = mcp(r#"{"mcpServers": {"a": {"command": "x", "disabled": true}}}"#).unwrap_err().to_string();
    assert!(told.contains("it is disabled") && told.contains("with the reason"), "{told}");
}
