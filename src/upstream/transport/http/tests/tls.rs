//! https, with a certificate made for these tests alone (`localhost`, self-signed, valid until 2126).

use super::super::wire::tls_with;
use super::rig::*;
use crate::upstream::connection::{Connection, LinkEvent};
use std::sync::Arc;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio_rustls::rustls::{RootCertStore, ServerConfig, crypto};

fn certificate() -> CertificateDer<'static> {
    CertificateDer::from(include_bytes!("localhost.cert.der").as_slice())
}

fn acceptor() -> TlsAcceptor {
    let key = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(include_bytes!("localhost.key.der").as_slice()));
    let config = ServerConfig::builder_with_provider(Arc::new(crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate()], key)
        .unwrap();
    TlsAcceptor::from(Arc::new(config))
}

#[tokio::test]
async fn calls_travel_over_tls_and_keep_their_connection() {
    let server = Hostile::tls(acceptor(), modern(|seen| result(seen, "{}")));
    let mut roots = RootCertStore::empty();
    roots.add(certificate()).unwrap();
    let url = format!("https://localhost:{}/mcp", server.address.port());
    let rig = Rig::with(config(&url), QUICK, Some(tls_with(roots).unwrap()));
    rig.http.open();
    rig.event("the link is up", |event| matches!(event, LinkEvent::Up { .. })).await;
    for _ in 0..5 {
        rig.serve("t", &format!(r#"{{"big":"{}"}}"#, "a".repeat(100_000))).await.completed();
    }
    let used: std::collections::BTreeSet<_> = server.calls().iter().map(|call| call.connection).collect();
    assert_eq!(used.len(), 1);
    assert!(server.names().iter().all(|name| name == "localhost"));
}

#[tokio::test]
async fn a_certificate_that_nobody_vouches_for_is_a_fault_before_anything_is_sent() {
    let server = Hostile::tls(acceptor(), |_| Do::Hang);
    let other_name = format!("https://127.0.0.1:{}/mcp", server.address.port());
    let right_name = format!("https://localhost:{}/mcp", server.address.port());
    let mut trusting = RootCertStore::empty();
    trusting.add(certificate()).unwrap();
    for (url, roots) in [(right_name, RootCertStore::empty()), (other_name, trusting)] {
        let rig = Rig::with(config(&url), QUICK, Some(tls_with(roots).unwrap()));
        rig.http.open();
        let down = rig.event("it is down", |event| matches!(event, LinkEvent::Down { .. })).await;
        assert!(matches!(&down, LinkEvent::Down { fault, .. } if fault.starts_with("TLS with ")), "{down:?}");
    }
    assert!(server.seen().is_empty());
}
