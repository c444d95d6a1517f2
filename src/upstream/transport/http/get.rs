//! One document over HTTP, for what is fetched now and then and is no upstream: an issuer's keys.

use super::wire::{Dialer, Trust};
use bytes::Bytes;
use http::header::{ACCEPT, HOST};
use http::{Method, Request, Uri};
use http_body_util::{BodyExt, Empty, Limited};
use hyper::client::conn::http1::Builder;
use hyper_util::rt::TokioIo;
use std::time::Duration;

/// Gets a document of at most `most` bytes within `limit`. Redirects are not followed: what was configured is
/// what is asked.
pub(crate) async fn get(url: &Uri, limit: Duration, most: usize) -> Result<Bytes, String> {
    tokio::time::timeout(limit, fetch(url, limit, most))
        .await
        .unwrap_or_else(|_| Err(format!("nothing within {limit:?}")))
}

async fn fetch(url: &Uri, limit: Duration, most: usize) -> Result<Bytes, String> {
    let (Some(authority), Some(host)) = (url.authority(), url.host()) else { return Err("the URL has no host".into()) };
    let https = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if https { 443 } else { 80 });
    let dialer = Dialer::new(host, port, https.then_some(Trust::Machine))?;
    let stream = dialer.dial(limit).await.map_err(|fault| fault.to_string())?;
    let speak = |fault: hyper::Error| format!("speak HTTP with {}: {fault}", dialer.to());
    let (mut send, connection) =
        Builder::new().max_buf_size(64 << 10).handshake(TokioIo::new(stream)).await.map_err(speak)?;
    // It ends with `send` and the body.
    tokio::spawn(async move {
        if let Err(fault) = connection.await {
            tracing::trace!(%fault, "a connection ended early");
        }
    });
    let path = url.path_and_query().map_or("/", |whole| whole.as_str());
    let request = Request::builder()
        .method(Method::GET)
        .uri(path)
        .header(HOST, authority.as_str())
        .header(ACCEPT, "application/json")
        .body(Empty::<Bytes>::new())
        .map_err(|fault| fault.to_string())?;
    let answer = send.send_request(request).await.map_err(speak)?;
    if answer.status() != 200 {
        return Err(format!("{} answered {}", dialer.to(), answer.status()));
    }
    let body = Limited::new(answer.into_body(), most).collect().await;
    body.map(|whole| whole.to_bytes()).map_err(|fault| format!("the body of {}: {fault}", dialer.to()))
}
