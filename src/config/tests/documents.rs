//! The manual, the examples and the schema say the same.

use super::*;

/// A config in which `key` of `section` has a value that no key takes.
fn with_wrong_value(section: &Section, key: &str) -> String {
    let head = match section.title {
        "" => return format!("{key} = 2024-01-01\n"),
        "upstreams.NAME" => "[upstreams.a]\n".to_owned(),
        "upstreams.NAME.tools.TOOL" => format!("{ONE}[upstreams.a.tools.t]\n"),
        "upstreams.NAME.tools.TOOL.cursor" => format!("{ONE}[upstreams.a.tools.t.cursor]\n"),
        "[upstreams.NAME.tools.TOOL.gate]" => format!("{ONE}[[upstreams.a.tools.t.gate]]\n"),
        "callers.NAME.quota" => format!("{ONE}[callers.c.quota]\n"),
        "callers.NAME" => format!("{ONE}[callers.c]\n"),
        "callers.NAME.rate" => format!("{ONE}[callers.c.rate]\n"),
        title => format!("{ONE}[{title}]\n"),
    };
    let beside = match key {
        "args" | "env" | "cwd" | "processes" => "command = \"x\"\n",
        "headers" => "url = \"http://h\"\n",
        "burst" => "per_second = 1\n",
        "max" | "value" => "price = \"p\"\nmax = 1\n",
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
    let manual = include_str!("../../../docs/config.md");
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
