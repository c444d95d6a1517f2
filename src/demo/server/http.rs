//! A demo server over Streamable HTTP, without sessions: one POST, one JSON answer.

use super::Server;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

const LARGEST: usize = 1 << 20;

/// Prints its URL as one line, then serves until its standard input ends.
pub(super) async fn serve(server: Arc<Server>, address: SocketAddr) -> io::Result<()> {
    let listener = TcpListener::bind(address).await?;
    let mut stdout = tokio::io::stdout();
    stdout.write_all(format!("http://{}/mcp\n", listener.local_addr()?).as_bytes()).await?;
    stdout.flush().await?;
    let starter_is_gone = async {
        let (mut stdin, mut rest) = (tokio::io::stdin(), [0; 64]);
        while stdin.read(&mut rest).await.is_ok_and(|read| read > 0) {}
    };
    tokio::select! {
        () = starter_is_gone => Ok(()),
        failed = accept(server, listener) => failed,
    }
}

async fn accept(server: Arc<Server>, listener: TcpListener) -> io::Result<()> {
    loop {
        let (stream, _) = listener.accept().await?;
        let _ = stream.set_nodelay(true);
        let server = server.clone();
        tokio::spawn(async move {
            let service = service_fn(move |request| answer(server.clone(), request));
            let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
        });
    }
}

async fn answer(server: Arc<Server>, request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let plain = |status: StatusCode| {
        let mut answer = Response::new(Full::default());
        *answer.status_mut() = status;
        Ok(answer)
    };
    if request.method() != Method::POST {
        return plain(StatusCode::METHOD_NOT_ALLOWED);
    }
    let Ok(body) = Limited::new(request.into_body(), LARGEST).collect().await else {
        return plain(StatusCode::PAYLOAD_TOO_LARGE);
    };
    match server.answer(&body.to_bytes()).await {
        Some(text) => {
            let mut answer = Response::new(Full::from(text));
            let json = http::HeaderValue::from_static("application/json");
            answer.headers_mut().insert(http::header::CONTENT_TYPE, json);
            Ok(answer)
        }
        None => plain(StatusCode::ACCEPTED),
    }
}
