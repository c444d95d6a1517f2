//! This daemon as an OAuth resource: what a client must know to get a token for it (RFC 9728), and how it is told.

use super::answer::{self, Reply};
use super::service::METADATA;
use crate::config::{Auth, JwtConfig};
use serde_json::json;

/// `GET /.well-known/oauth-protected-resource`; none unless tokens are what callers are known by.
pub(super) fn metadata(auth: &Auth) -> Option<Reply> {
    let Auth::Jwt(jwt) = auth else { return None };
    let mut about = json!({
        "resource": jwt.audience,
        "authorization_servers": jwt.issuers.keys().collect::<Vec<_>>(),
        "bearer_methods_supported": ["header"],
    });
    if !jwt.scopes.is_empty() {
        about["scopes_supported"] = json!(jwt.scopes);
    }
    Some(answer::json(200, about.to_string()))
}

/// The value of `WWW-Authenticate`. All scopes that are needed are told at once.
pub(super) fn challenge(auth: &Auth, error: Option<&str>) -> String {
    let mut parts = Vec::new();
    if let Some(error) = error {
        parts.push(format!("error=\"{error}\""));
    }
    if let Auth::Jwt(jwt) = auth {
        parts.push(format!("resource_metadata=\"{}\"", metadata_url(jwt)));
        if !jwt.scopes.is_empty() {
            parts.push(format!("scope=\"{}\"", jwt.scopes.join(" ")));
        }
    }
    if parts.is_empty() { "Bearer".into() } else { format!("Bearer {}", parts.join(", ")) }
}

/// The well-known path goes between the host and the path of the resource.
fn metadata_url(jwt: &JwtConfig) -> String {
    let (scheme, rest) = jwt.audience.split_once("://").unwrap_or(("https", &jwt.audience));
    let (host, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
    format!("{scheme}://{host}{METADATA}{}", path.trim_end_matches('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use std::sync::Arc;
    use std::time::Duration;

    fn auth(audience: &str, scopes: &[&str]) -> Auth {
        Auth::Jwt(Arc::new(JwtConfig {
            audience: audience.into(),
            issuers: BTreeMap::from([("https://id.example".into(), "https://id.example/jwks".parse().unwrap())]),
            algorithms: vec![jsonwebtoken::Algorithm::ES256],
            leeway: Duration::ZERO,
            scopes: scopes.iter().map(|scope| (*scope).into()).collect(),
        }))
    }

    #[test]
    fn a_challenge_says_where_to_ask_and_for_what() {
        assert_eq!(challenge(&Auth::Keys, None), "Bearer");
        assert_eq!(
            challenge(&auth("https://mcp.example/mcp", &["call", "list"]), Some("insufficient_scope")),
            "Bearer error=\"insufficient_scope\", \
             resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource/mcp\", scope=\"call list\""
        );
        assert_eq!(
            challenge(&auth("https://mcp.example", &[]), None),
            "Bearer resource_metadata=\"https://mcp.example/.well-known/oauth-protected-resource\""
        );
    }
}
