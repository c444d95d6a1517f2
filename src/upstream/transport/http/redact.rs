//! What a server says of us, without the secrets that we sent it: texts of servers end up in faults, logs and
//! refusals, and some servers repeat in them what they were given.
//!
//! Results and errors that are passed through to their callers are not touched.

use crate::config::{HttpTarget, Secret};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

/// Shorter values are too common in ordinary words and numbers to be struck out, and too short to be secret.
const SHORTEST: usize = 4;
const SHOWN: &str = "[secret]";

/// The configured secrets of one upstream, longest first.
#[derive(Debug, Default)]
pub(super) struct Redactor(Vec<Secret>);

impl Redactor {
    pub(super) fn new(target: &HttpTarget) -> Redactor {
        let mut texts = Vec::new();
        for (_, value) in &target.headers {
            let value = value.expose();
            texts.push(value.to_owned());
            // A scheme is no secret, what follows it is by itself (`Bearer xyz`, `Basic xyz`).
            if let Some((_, credential)) = value.trim().split_once(' ') {
                let credential = credential.trim();
                texts.push(credential.to_owned());
                let decoded = STANDARD.decode(credential).ok().and_then(|bytes| String::from_utf8(bytes).ok());
                if let Some((user, password)) = decoded.as_deref().and_then(|pair| pair.split_once(':')) {
                    texts.push(format!("{user}:{password}"));
                    texts.push(password.to_owned());
                }
            }
        }
        let user = target.url.authority().and_then(|authority| authority.as_str().rsplit_once('@'));
        if let Some((user, _)) = user {
            texts.push(user.to_owned());
            texts.extend(user.split_once(':').map(|(_, password)| password.to_owned()));
        }
        if let Some(query) = target.url.query() {
            texts.push(query.to_owned());
            let values = query.split('&').filter_map(|pair| pair.split_once('='));
            texts.extend(values.map(|(_, value)| value.to_owned()));
        }
        let decoded: Vec<_> = texts.iter().filter_map(|text| percent_decoded(text)).collect();
        texts.extend(decoded);
        texts.retain(|text| text.len() >= SHORTEST);
        texts.sort_by_key(|text| std::cmp::Reverse(text.len()));
        texts.dedup();
        Redactor(texts.into_iter().map(Secret::new).collect())
    }

    /// `text` without the secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        self.0.iter().fold(text.to_owned(), |text, secret| match text.contains(secret.expose()) {
            true => text.replace(secret.expose(), SHOWN),
            false => text,
        })
    }

    /// A server's text as one short line. Secrets are struck out before it is cut, lest a part of one is left.
    pub(super) fn clean(&self, text: &str, most: usize) -> String {
        super::answer::clean(&self.redact(text), most)
    }
}

/// None if there is nothing to decode, or no text comes out.
fn percent_decoded(text: &str) -> Option<String> {
    if !text.contains('%') {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..2).filter(|_| first == b'%').and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(first);
                rest = tail;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderName;

    fn redactor(url: &str, headers: &[(&'static str, &str)]) -> Redactor {
        let headers =
            headers.iter().map(|(name, value)| (HeaderName::from_static(name), Secret::new(*value))).collect();
        Redactor::new(&HttpTarget { url: url.parse().unwrap(), headers })
    }

    #[test]
    fn every_form_of_a_configured_secret_is_struck_out() {
        let basic = format!("Basic {}", STANDARD.encode("ann:pass:word"));
        let found = redactor(
            "https://joe:hunter22@up.example/mcp?key=CANARY%2F1&v=2&other=CANARY2",
            &[("authorization", "Bearer CANARY3"), ("x-basic", &basic), ("x-key", "CANARY4 with blanks"), ("x-v", "1")],
        );
        for (text, shown) in [
            ("bad token CANARY3, you sent Bearer CANARY3", "bad token [secret], you sent [secret]"),
            ("ann:pass:word or pass:word", "[secret] or [secret]"),
            (&basic[6..], "[secret]"),
            ("CANARY4 with blanks", "[secret]"),
            ("?key=CANARY%2F1&v=2&other=CANARY2", "?[secret]"),
            ("CANARY/1 CANARY2", "[secret] [secret]"),
            ("joe:hunter22 hunter22", "[secret] [secret]"),
            ("HTTP 401, Bearer, version 1 or 2", "HTTP 401, Bearer, version 1 or 2"),
        ] {
            assert_eq!(found.redact(text), shown);
        }
        let shown = format!("{found:?}");
        assert!(!shown.contains("CANARY") && !shown.contains("hunter"), "{shown}");
    }

    #[test]
    fn a_cut_leaves_no_part_of_a_secret() {
        let found = redactor("http://up.example/", &[("x-key", "CANARYCANARY")]);
        assert_eq!(found.clean("it is CANARYCANARY", 10), "it is [sec…");
    }
}
