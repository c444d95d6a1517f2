//! What the screens ask of the daemon: each question as a request, each answer as plain data. No I/O but
//! [`Ask::put`], which sends the one through the other.

use crate::client::{Client, ClientError, escaped, read};
use crate::state::Wanted;
use bytes::Bytes;
use forebay_wire as wire;
use hyper::{Method, StatusCode};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One question or order.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    Calls(Wanted),
    Call(String),
    CallWhy(String),
    Upstream(String),
    UpstreamWhy(String),
    Stderr(String),
    Cancel(Vec<String>),
    CancelMany(wire::Selector),
    Steer(Steer, String),
    Limits { upstream: String, change: wire::Limits, save: bool },
    Edit { id: String, edit: wire::Edit },
}

/// What is done to an upstream with a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Steer {
    Pause,
    Resume,
    Drain,
    Restart,
}

impl Steer {
    pub fn word(self) -> &'static str {
        match self {
            Steer::Pause => "pause",
            Steer::Resume => "resume",
            Steer::Drain => "drain",
            Steer::Restart => "restart",
        }
    }
}

/// What came of an [`Ask`].
#[derive(Clone, Debug)]
pub enum Answer {
    Calls(Wanted, wire::CallsPage),
    Call(String, Box<wire::CallDetail>),
    CallWhy(String, Box<wire::Why>),
    Upstream(String, Box<wire::UpstreamDetail>),
    UpstreamWhy(String, Box<wire::Why>),
    Stderr(String, Vec<String>),
    Cancelled(Vec<wire::CancelAnswer>),
    CancelledMany(wire::Selector, wire::CancelledMany),
    Steered(Steer, String),
    Limits(String, Box<wire::LimitsAnswer>),
    Edited(Box<wire::EditAnswer>),
    /// Nothing; why, and what to do about it, in words.
    Failed(Ask, String),
}

impl Ask {
    /// It only reads.
    pub fn only_reads(&self) -> bool {
        match self {
            Ask::Calls(_)
            | Ask::Call(_)
            | Ask::CallWhy(_)
            | Ask::Upstream(_)
            | Ask::UpstreamWhy(_)
            | Ask::Stderr(_) => true,
            Ask::CancelMany(selector) => selector.dry_run,
            Ask::Cancel(_) | Ask::Steer(..) | Ask::Limits { .. } | Ask::Edit { .. } => false,
        }
    }

    /// As a request: method, path, body. A cancel of several ids is one request an id, and none here.
    fn request(&self) -> (Method, String, Bytes) {
        let none = Bytes::new();
        match self {
            Ask::Calls(wanted) => (Method::GET, wanted.query.path(wanted.cursor.as_deref()), none),
            Ask::Call(id) => (Method::GET, format!("/v1/calls/{}", escaped(id)), none),
            Ask::CallWhy(id) => (Method::GET, format!("/v1/calls/{}/why", escaped(id)), none),
            Ask::Upstream(name) => (Method::GET, format!("/v1/upstreams/{}", escaped(name)), none),
            Ask::UpstreamWhy(name) => (Method::GET, format!("/v1/upstreams/{}/why", escaped(name)), none),
            Ask::Stderr(name) => (Method::GET, format!("/v1/upstreams/{}/stderr", escaped(name)), none),
            Ask::Cancel(ids) => {
                (Method::POST, format!("/v1/calls/{}/cancel", escaped(ids.first().map_or("", |id| id))), none)
            }
            Ask::CancelMany(selector) => (Method::POST, "/v1/cancel".into(), json(selector)),
            Ask::Steer(steer, name) => {
                (Method::POST, format!("/v1/upstreams/{}/{}", escaped(name), steer.word()), none)
            }
            Ask::Limits { upstream, change, save } => {
                let save = if *save { "?save=true" } else { "" };
                (Method::PATCH, format!("/v1/upstreams/{}{save}", escaped(upstream)), json(change))
            }
            Ask::Edit { id, edit } => (Method::POST, format!("/v1/calls/{}", escaped(id)), json(edit)),
        }
    }

    /// Reads the answer's body.
    fn answer(&self, body: &[u8]) -> Result<Answer, ClientError> {
        fn boxed<T: DeserializeOwned>(body: &[u8]) -> Result<Box<T>, ClientError> {
            read(body).map(Box::new)
        }
        Ok(match self {
            Ask::Calls(wanted) => Answer::Calls(wanted.clone(), read(body)?),
            Ask::Call(id) => Answer::Call(id.clone(), boxed(body)?),
            Ask::CallWhy(id) => Answer::CallWhy(id.clone(), boxed(body)?),
            Ask::Upstream(name) => Answer::Upstream(name.clone(), boxed(body)?),
            Ask::UpstreamWhy(name) => Answer::UpstreamWhy(name.clone(), boxed(body)?),
            Ask::Stderr(name) => Answer::Stderr(name.clone(), lines(body)?),
            Ask::Cancel(_) => Answer::Cancelled(vec![read(body)?]),
            Ask::CancelMany(selector) => Answer::CancelledMany(selector.clone(), read(body)?),
            Ask::Steer(steer, name) => Answer::Steered(*steer, name.clone()),
            Ask::Limits { upstream, .. } => Answer::Limits(upstream.clone(), boxed(body)?),
            Ask::Edit { .. } => Answer::Edited(boxed(body)?),
        })
    }

    /// Sends it and reads what comes back.
    pub async fn put(self, client: &Client) -> Answer {
        let answered = match &self {
            Ask::Cancel(ids) => cancel(ids, client).await,
            other => {
                let (method, path, body) = other.request();
                match client.send(method, &path, body).await {
                    Ok(body) => other.answer(&body),
                    // "It is over already" and "no such call" come with a body that says so.
                    Err(ClientError::Refused { status: StatusCode::NOT_FOUND | StatusCode::CONFLICT, body, fault })
                        if matches!(other, Ask::Edit { .. }) =>
                    {
                        let status = StatusCode::NOT_FOUND;
                        other.answer(&body).map_err(|_| ClientError::Refused { status, fault, body })
                    }
                    Err(error) => Err(error),
                }
            }
        };
        answered.unwrap_or_else(|error| Answer::Failed(self, words(&error)))
    }
}

async fn cancel(ids: &[String], client: &Client) -> Result<Answer, ClientError> {
    let mut answers = Vec::with_capacity(ids.len());
    for id in ids {
        answers.push(client.cancel(id).await?);
    }
    Ok(Answer::Cancelled(answers))
}

/// A failure and its mend in one sentence.
pub(super) fn words(error: &ClientError) -> String {
    match error {
        ClientError::Refused { fault, .. } => match &fault.hint {
            Some(hint) => format!("{}: {hint}", fault.message),
            None => fault.message.clone(),
        },
        ClientError::Unreachable { source, .. } => format!("{error}: {source}"),
        ClientError::Silent { .. } | ClientError::Malformed(_) => error.to_string(),
    }
}

fn json(body: &impl Serialize) -> Bytes {
    // Plain structs of strings and numbers always become JSON.
    serde_json::to_vec(body).unwrap_or_default().into()
}

/// Lines of error output: as a list, or as an object that holds it.
fn lines(body: &[u8]) -> Result<Vec<String>, ClientError> {
    #[derive(serde::Deserialize)]
    #[serde(untagged)]
    enum Form {
        List(Vec<String>),
        Object {
            #[serde(alias = "lines")]
            stderr: Vec<String>,
        },
    }
    Ok(match read(body)? {
        Form::List(lines) | Form::Object { stderr: lines } => lines,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stay_within_their_part_of_the_path() {
        let (method, path, body) = Ask::Steer(Steer::Pause, "a/../b?c".into()).request();
        assert_eq!((method, &*path, body.len()), (Method::POST, "/v1/upstreams/a%2F..%2Fb%3Fc/pause", 0));
    }

    #[test]
    fn limits_send_only_what_changes_and_say_whether_to_save() {
        let change = wire::Limits { max_concurrent: Some(3), ..wire::Limits::default() };
        let (method, path, body) = Ask::Limits { upstream: "u".into(), change, save: true }.request();
        assert_eq!(
            (method, &*path, &body[..]),
            (Method::PATCH, "/v1/upstreams/u?save=true", &br#"{"max_concurrent":3}"#[..])
        );
    }

    #[test]
    fn a_dry_run_reads_and_a_cancel_does_not() {
        let dry = wire::Selector { all: true, dry_run: true, ..wire::Selector::default() };
        assert!(Ask::CancelMany(dry.clone()).only_reads());
        assert!(!Ask::CancelMany(wire::Selector { dry_run: false, ..dry }).only_reads());
    }

    #[test]
    fn error_output_is_read_in_both_forms() {
        assert_eq!(lines(br#"["a","b"]"#).unwrap(), ["a", "b"]);
        assert_eq!(lines(br#"{"lines":["a"],"dropped":3}"#).unwrap(), ["a"]);
        assert!(lines(b"3").is_err());
    }
}
