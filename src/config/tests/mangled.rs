//! Files that nobody would write: no fault of theirs is a panic.

use super::*;

const WHOLE: &str = include_str!("../../../examples/forebay.toml");
const CLIENTS: &str = include_str!("../../../examples/mcp.json");

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
