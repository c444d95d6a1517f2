//! What an upstream sends: an answer to a request of ours, a question or notice of its own, or noise.

use super::json::{Scanner, Span, unquote};

/// One message of an upstream, borrowed from its line.
#[derive(Debug, PartialEq, Eq)]
pub enum Incoming<'a> {
    /// The answer to our request of that number.
    Response { id: u64 },
    /// A request of the upstream's own; `id` is raw.
    Request { id: &'a str, method: String },
    /// A notification; `params` is raw.
    Notification { method: String, params: Option<&'a str> },
    /// Not a JSON-RPC message, or one that answers nothing of ours.
    Noise,
}

/// Reads one line of an upstream. Ids of ours are numbers; a number given back as a string is tolerated
/// (C23).
pub fn read(line: &[u8]) -> Incoming<'_> {
    let Ok(text) = std::str::from_utf8(line) else { return Incoming::Noise };
    let (mut method, mut id, mut params, mut answers) = (None, None, None, false);
    let mut scanner = Scanner::new(text, usize::MAX);
    let read = scanner.object(|scanner, key| {
        let value = scanner.value()?;
        match &**key {
            "method" => method = Some(value),
            "id" => id = Some(value),
            "params" => params = Some(value),
            "result" | "error" => answers = true,
            _ => {}
        }
        Ok(())
    });
    if read.and_then(|_| scanner.end()).is_err() {
        return Incoming::Noise;
    }
    let id = id.map(|span: Span| &text[span.range()]);
    match method.map(|span| unquote(&text[span.range()])) {
        Some(None) => Incoming::Noise,
        Some(Some(method)) => match id {
            Some(id) => Incoming::Request { id, method: method.into_owned() },
            None => Incoming::Notification {
                method: method.into_owned(),
                params: params.map(|span: Span| &text[span.range()]),
            },
        },
        None if !answers => Incoming::Noise,
        None => id.and_then(number).map_or(Incoming::Noise, |id| Incoming::Response { id }),
    }
}

/// A request id of ours as an upstream gives it back.
pub fn number(raw: &str) -> Option<u64> {
    raw.strip_prefix('"').and_then(|raw| raw.strip_suffix('"')).unwrap_or(raw).parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_are_told_apart() {
        assert_eq!(read(br#"{"jsonrpc":"2.0","id":5,"result":{}}"#), Incoming::Response { id: 5 });
        assert_eq!(read(br#"{"id":"5","error":{"code":1,"message":""}}"#), Incoming::Response { id: 5 });
        assert_eq!(
            read(br#"{"jsonrpc":"2.0","id":"a","method":"ping"}"#),
            Incoming::Request { id: "\"a\"", method: "ping".into() }
        );
        assert_eq!(
            read(br#"{"method":"notifications/progress","params":{"x":1}}"#),
            Incoming::Notification { method: "notifications/progress".into(), params: Some("{\"x\":1}") }
        );
        for noise in ["server ready on stdio", "", "{\"level\":\"info\"}", "123", "{\"id\":1}", "\u{feff}{}"] {
            assert_eq!(read(noise.as_bytes()), Incoming::Noise, "{noise}");
        }
        assert_eq!(read(b"{\"id\":1,\"result\":\"\xff\"}"), Incoming::Noise);
    }
}
