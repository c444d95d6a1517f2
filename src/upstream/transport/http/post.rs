//! One request to a place that is no upstream: a webhook.

use super::client::Client;
use super::wire::{Dialer, Trust};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, USER_AGENT};
use http::{Method, Request, Uri};
use http_body_util::Full;
use std::time::Duration;

/// Posts JSON, and gives the status of the answer. A redirect is not followed, and the answer's body is not read. An
/// error names no more of the URL than its host.
pub(crate) async fn post(url: &Uri, body: Bytes, limit: Duration) -> Result<u16, String> {
    let host = url.host().ok_or("the url names no host")?;
    let https = url.scheme_str() == Some("https");
    let port = url.port_u16().unwrap_or(if https { 443 } else { 80 });
    let dialer = Dialer::new(host, port, https.then_some(Trust::Machine))?;
    let mut client = Client::dial(&dialer, limit).await.map_err(|fault| fault.to_string())?;
    let authority = match url.port_u16() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    };
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    let request = Request::builder()
        .method(Method::POST)
        .uri(path)
        .header(HOST, authority)
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("forebay/", env!("CARGO_PKG_VERSION")))
        .body(Full::new(body))
        .map_err(|_| "the url cannot be asked")?;
    client.send(request).await.map(|answer| answer.status.as_u16()).map_err(|broken| broken.why)
}
