//! `[auth.jwt]` and the subjects of callers.

use super::*;

const JWT: &str = "[upstreams.a]\ncommand = \"x\"\n[auth]\nmode = \"jwt\"\n[auth.jwt]\naudience = \"https://mcp.example/mcp\"\n\
                   issuers = { \"https://id.example\" = \"https://id.example/jwks\" }\n";

#[test]
fn tokens_have_their_defaults_and_a_caller_its_subjects() {
    let text =
        format!("{JWT}[callers.alice]\nsubjects = [\"auth0|1\", \"2\"]\nupstreams = [\"a\"]\nmax_deadline = \"1m\"\n");
    let (config, _) = toml(&text).unwrap();
    let Auth::Jwt(jwt) = &config.auth else { panic!("{:?}", config.auth) };
    assert_eq!(jwt.algorithms, [jsonwebtoken::Algorithm::RS256, jsonwebtoken::Algorithm::ES256]);
    assert_eq!((jwt.leeway, jwt.scopes.len()), (Duration::from_secs(10), 0));
    let alice = &config.callers["alice"];
    assert_eq!((alice.subjects.len(), alice.issuer.as_deref()), (2, Some("https://id.example")));
    assert_eq!(alice.max_deadline, Some(Duration::from_secs(60)));
}

#[test]
fn what_would_let_the_wrong_ones_in_is_refused_with_a_mend() {
    let jwt = |change: (&str, &str)| JWT.replace(change.0, change.1);
    for (text, key, hint) in [
        (ONE.to_owned() + "[auth]\nmode = \"jwt\"\n", "auth.mode", "[auth.jwt]"),
        (jwt(("audience = \"https://mcp.example/mcp\"\n", "")), "auth.jwt", "audience"),
        (jwt(("https://mcp.example/mcp", "mcp")), "audience", "https://"),
        (jwt(("https://mcp.example/mcp", "https://mcp.example/#x")), "audience", "fragment"),
        (jwt(("= \"https://id.example/jwks\"", "= \"http://id.example/jwks\"")), "issuers", "loopback"),
        (jwt(("= \"https://id.example/jwks\"", "= \"file:///jwks\"")), "issuers", "https"),
        (jwt(("{ \"https://id.example\" = \"https://id.example/jwks\" }", "{}")), "issuers", ""),
        (format!("{JWT}algorithms = [\"HS256\"]\n"), "algorithms", "RS256"),
        (format!("{JWT}algorithms = [\"none\"]\n"), "algorithms", "RS256"),
        (format!("{JWT}algorithms = []\n"), "algorithms", "leave it out"),
        (format!("{JWT}leeway = \"31s\"\n"), "leeway", "clocks"),
        (format!("{JWT}scopes = [\"a b\"]\n"), "scopes", "one word"),
        (format!("{JWT}[callers.a]\nsubjects = [\"x\", \"x\"]\n"), "subjects", "keep one"),
        (
            format!("{JWT}[callers.a]\nsubjects = [\"x\"]\n[callers.b]\nsubjects = [\"x\"]\n"),
            "callers.b",
            "one of them",
        ),
        (format!("{JWT}[callers.a]\nissuer = \"https://id.exampel\"\n"), "issuer", "did you mean"),
    ] {
        let told = toml(&text).map(|_| ()).expect_err(&text);
        let found = |fault: &Finding| fault.key.contains(key) && format!("{fault:?}").contains(hint);
        assert!(told.iter().any(found), "{text}\n{told}");
    }
    let two = JWT.replace("jwks\" }", "jwks\", \"https://other.example\" = \"https://other.example/jwks\" }");
    let told = toml(&format!("{two}[callers.a]\nsubjects = [\"x\"]\n")).map(|_| ()).expect_err("two issuers");
    assert!(told.to_string().contains("whose tokens"), "{told}");
}
