//! What is secret is never told.

use super::*;

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
