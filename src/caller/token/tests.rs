//! Row 2 of the security table, with real keys and a real server of keys on loopback.

use super::keys::{EVERY, STALE};
use super::*;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as B64;
use jsonwebtoken::Algorithm;
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

const ISSUER: &str = "https://id.example";
const AUDIENCE: &str = "https://mcp.example/mcp";

enum Signer {
    Ec(EcdsaKeyPair),
    Ed(Ed25519KeyPair),
}

impl Signer {
    fn ec() -> Signer {
        let (random, kind) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(kind, &random).unwrap();
        Signer::Ec(EcdsaKeyPair::from_pkcs8(kind, pkcs8.as_ref(), &random).unwrap())
    }

    fn ed() -> Signer {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Signer::Ed(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).unwrap())
    }

    fn public(&self) -> &[u8] {
        match self {
            Signer::Ec(pair) => pair.public_key().as_ref(),
            Signer::Ed(pair) => pair.public_key().as_ref(),
        }
    }

    fn jwk(&self, kid: &str) -> Value {
        let public = self.public();
        match self {
            Signer::Ec(_) => json!({ "kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256", "use": "sig",
                "x": B64.encode(&public[1..33]), "y": B64.encode(&public[33..]) }),
            Signer::Ed(_) => json!({ "kty": "OKP", "crv": "Ed25519", "kid": kid, "x": B64.encode(public) }),
        }
    }

    fn sign(&self, header: &Value, claims: &Value) -> String {
        let text = format!("{}.{}", B64.encode(header.to_string()), B64.encode(claims.to_string()));
        let signature = match self {
            Signer::Ec(pair) => pair.sign(&SystemRandom::new(), text.as_bytes()).unwrap().as_ref().to_vec(),
            Signer::Ed(pair) => pair.sign(text.as_bytes()).as_ref().to_vec(),
        };
        format!("{text}.{}", B64.encode(signature))
    }
}

/// A server of keys that says what it is told to, and counts who asks.
struct Server {
    url: String,
    body: Arc<Mutex<String>>,
    asked: Arc<AtomicUsize>,
}

impl Server {
    async fn start(keys: &[Value]) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/jwks", listener.local_addr().unwrap());
        let (body, asked) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicUsize::new(0)));
        let server = Server { url, body: body.clone(), asked: asked.clone() };
        server.says(keys);
        tokio::spawn(async move {
            while let Ok((mut socket, _)) = listener.accept().await {
                asked.fetch_add(1, SeqCst);
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    match socket.read_u8().await {
                        Ok(byte) => head.push(byte),
                        Err(_) => break,
                    }
                }
                let body = body.lock().clone();
                let status = if body.is_empty() { "503 No" } else { "200 OK" };
                let answer =
                    format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{body}", body.len());
                let _ = socket.write_all(answer.as_bytes()).await;
            }
        });
        server
    }

    fn says(&self, keys: &[Value]) {
        *self.body.lock() = json!({ "keys": keys }).to_string();
    }

    fn is_down(&self) {
        self.body.lock().clear();
    }

    fn asked(&self) -> usize {
        self.asked.load(SeqCst)
    }
}

fn tokens(server: &Server, scopes: &[&str]) -> Tokens {
    Tokens::new(Arc::new(JwtConfig {
        audience: AUDIENCE.into(),
        issuers: BTreeMap::from([(ISSUER.into(), server.url.parse().unwrap())]),
        algorithms: vec![Algorithm::ES256, Algorithm::EdDSA],
        leeway: Duration::from_secs(10),
        scopes: scopes.iter().map(|scope| (*scope).into()).collect(),
    }))
}

/// Lets time pass on the daemon's own clock; that of the tokens is the wall's.
async fn later(wait: Duration) {
    tokio::time::pause();
    tokio::time::advance(wait).await;
    tokio::time::resume();
}

fn header(kid: &str) -> Value {
    json!({ "alg": "ES256", "typ": "JWT", "kid": kid })
}

fn claims() -> Value {
    json!({ "iss": ISSUER, "aud": AUDIENCE, "sub": "alice@example", "exp": now() + 300, "nbf": now() - 5 })
}

fn with(mut value: Value, key: &str, new: Value) -> Value {
    value[key] = new;
    value
}

fn without(mut value: Value, key: &str) -> Value {
    value.as_object_mut().unwrap().remove(key);
    value
}

#[tokio::test]
async fn a_good_token_is_its_subject_by_either_kind_of_key() {
    let (ec, ed) = (Signer::ec(), Signer::ed());
    let server = Server::start(&[ec.jwk("one"), ed.jwk("two")]).await;
    let tokens = tokens(&server, &[]);
    let by_ec = tokens.verify(&ec.sign(&header("one"), &claims())).await.unwrap();
    assert_eq!((&*by_ec.issuer, &*by_ec.subject), (ISSUER, "alice@example"));
    let eddsa = with(header("two"), "alg", json!("EdDSA"));
    let listed = with(claims(), "aud", json!(["https://other.example", AUDIENCE]));
    assert_eq!(tokens.verify(&ed.sign(&eddsa, &listed)).await.unwrap().subject, by_ec.subject);
    assert_eq!(server.asked(), 1);
}

#[tokio::test]
async fn whatever_is_wrong_with_a_token_it_is_wrong_alike() {
    let (key, other) = (Signer::ec(), Signer::ec());
    let server = Server::start(&[key.jwk("k")]).await;
    let tokens = tokens(&server, &[]);
    let good = key.sign(&header("k"), &claims());
    assert!(tokens.verify(&good).await.is_ok());
    let late = |by: u64| key.sign(&header("k"), &with(claims(), "exp", json!(now() - by)));
    assert!(tokens.verify(&late(5)).await.is_ok(), "within the leeway");
    let none = format!("{}.{}.", B64.encode(r#"{"alg":"none","kid":"k"}"#), B64.encode(claims().to_string()));
    // Signed with the public key, as if that were a shared secret.
    let confused = {
        let text = format!(
            "{}.{}",
            B64.encode(with(header("k"), "alg", json!("HS256")).to_string()),
            B64.encode(claims().to_string())
        );
        let secret = ring::hmac::Key::new(ring::hmac::HMAC_SHA256, key.public());
        format!("{text}.{}", B64.encode(ring::hmac::sign(&secret, text.as_bytes())))
    };
    let signed = |header: Value, claims: Value| key.sign(&header, &claims);
    let mut bad = vec![
        ("empty", String::new()),
        ("no token", "fb_x_y".into()),
        ("two parts", good.rsplit_once('.').unwrap().0.into()),
        ("four parts", format!("{good}.x")),
        ("alg none", none),
        ("HS256 with the public key", confused),
        ("another's signature", other.sign(&header("k"), &claims())),
        ("another algorithm than the key's", signed(with(header("k"), "alg", json!("EdDSA")), claims())),
        ("an algorithm that is not configured", signed(with(header("k"), "alg", json!("RS256")), claims())),
        ("no kid", signed(without(header("k"), "kid"), claims())),
        ("unknown kid", signed(header("x"), claims())),
        ("something critical", signed(with(header("k"), "crit", json!(["exp"])), claims())),
        ("long expired", late(60)),
        ("not yet", signed(header("k"), with(claims(), "nbf", json!(now() + 60)))),
        ("exp is text", signed(header("k"), with(claims(), "exp", json!("2099-01-01")))),
        ("nbf is text", signed(header("k"), with(claims(), "nbf", json!("soon")))),
        ("sub is empty", signed(header("k"), with(claims(), "sub", json!("")))),
        ("sub is a number", signed(header("k"), with(claims(), "sub", json!(7)))),
        ("another's issuer", signed(header("k"), with(claims(), "iss", json!("https://evil.example")))),
        ("two issuers", signed(header("k"), with(claims(), "iss", json!([ISSUER, "https://evil.example"])))),
        ("for somebody else", signed(header("k"), with(claims(), "aud", json!("https://mcp.example")))),
        ("for a longer name", signed(header("k"), with(claims(), "aud", json!(format!("{AUDIENCE}/x"))))),
        ("for nobody", signed(header("k"), with(claims(), "aud", json!([])))),
        ("too long", format!("{good}{}", "A".repeat(LONGEST))),
    ];
    for claim in ["exp", "iss", "aud", "sub"] {
        bad.push((claim, signed(header("k"), without(claims(), claim))));
    }
    let (head, rest) = good.split_once('.').unwrap();
    let (body, signature) = rest.split_once('.').unwrap();
    let changed = B64.encode(with(claims(), "sub", json!("root")).to_string());
    bad.push(("a changed body", format!("{head}.{changed}.{signature}")));
    bad.push(("no signature", format!("{head}.{body}.")));
    for (what, token) in bad {
        assert_eq!(tokens.verify(&token).await, Err(BadToken::Wrong), "{what}");
    }
    assert_eq!(server.asked(), 1, "the unknown key id came too soon for another fetch");
}

#[tokio::test]
async fn a_token_that_lacks_a_scope_is_told_so() {
    let key = Signer::ec();
    let server = Server::start(&[key.jwk("k")]).await;
    let tokens = tokens(&server, &["call", "list"]);
    for (claim, scopes, fine) in [
        ("scope", json!("list call other"), true),
        ("scp", json!(["call", "list"]), true),
        ("scope", json!("call"), false),
        ("scope", json!("call listing"), false),
        ("other", json!("call list"), false),
    ] {
        let token = key.sign(&header("k"), &with(claims(), claim, scopes.clone()));
        // The second time from memory.
        for _ in 0..2 {
            assert_eq!(tokens.verify(&token).await.err(), (!fine).then_some(BadToken::Scope), "{claim} {scopes}");
        }
    }
}

#[tokio::test]
async fn a_flood_of_unknown_key_ids_is_one_fetch_and_a_new_key_is_found() {
    let (old, new) = (Signer::ec(), Signer::ec());
    let server = Server::start(&[old.jwk("old")]).await;
    let tokens = tokens(&server, &[]);
    let known = old.sign(&header("old"), &claims());
    assert!(tokens.verify(&known).await.is_ok());
    later(EVERY).await;
    server.says(&[new.jwk("new")]);
    let flood: Vec<_> = (0..1000).map(|number| old.sign(&header(&format!("x{number}")), &claims())).collect();
    for got in futures_util::future::join_all(flood.iter().map(|token| tokens.verify(token))).await {
        assert_eq!(got, Err(BadToken::Wrong));
    }
    assert_eq!(server.asked(), 2);
    assert!(tokens.verify(&new.sign(&header("new"), &claims())).await.is_ok());
    // What the old key had signed is not remembered beyond it.
    assert_eq!(tokens.verify(&known).await, Err(BadToken::Wrong));
}

#[tokio::test]
async fn keys_that_cannot_be_had_let_nobody_in() {
    let key = Signer::ec();
    let server = Server::start(&[key.jwk("k")]).await;
    server.is_down();
    let tokens = tokens(&server, &[]);
    let token = key.sign(&header("k"), &claims());
    assert!(matches!(tokens.verify(&token).await, Err(BadToken::Unready(_))));
    // A set of no use is no keys either.
    later(EVERY).await;
    let shared = json!({ "kty": "oct", "kid": "k", "k": B64.encode([7; 32]) });
    server.says(&[shared, json!({ "kty": "new", "kid": "n" }), json!(7)]);
    assert!(matches!(tokens.verify(&token).await, Err(BadToken::Unready(_))));
    later(EVERY).await;
    server.says(&[key.jwk("k")]);
    assert!(tokens.verify(&token).await.is_ok());
    // Old keys are used for so long and not longer, also for what was verified with them.
    server.is_down();
    for (wait, fine) in [(STALE / 2, true), (STALE, false)] {
        later(wait).await;
        let fresh = key.sign(&header("k"), &with(claims(), "jti", json!(wait.as_secs())));
        for token in [&token, &fresh] {
            assert_eq!(tokens.verify(token).await.is_ok(), fine, "{wait:?}");
        }
    }
}

#[tokio::test]
async fn a_token_seen_before_is_known_until_it_expires_and_memory_is_bounded() {
    let key = Signer::ed();
    let server = Server::start(&[key.jwk("k")]).await;
    let mut tokens = tokens(&server, &[]);
    let head = with(header("k"), "alg", json!("EdDSA"));
    let token = key.sign(&head, &claims());
    let first = tokens.verify(&token).await.unwrap();
    assert_eq!(tokens.known(&token), Some(first.clone()));
    let nearly = format!("{}A", &token[..token.len() - 1]);
    assert_eq!(tokens.known(&nearly), None);
    tokens.seen.get_mut().young.get_mut(&*token).unwrap().expires = now() - 11;
    assert_eq!(tokens.known(&token), None);
    let mut seen = Seen::default();
    for number in 0..3 * KEPT {
        seen.put(number.to_string().into(), first.clone());
        assert!(seen.get("0").is_some(), "one in use stays");
    }
    assert!(seen.young.len() + seen.old.len() <= 2 * KEPT);
}

/// RFC 7515, A.2: a key and a signature that others made.
#[test]
fn rsa_signatures_are_checked() {
    crypto::install();
    let n = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMs\
             D1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xs\
             mtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXp\
             oQ";
    let message = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    let signature = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1d\
                     nZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwu\
                     sC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";
    let key = jsonwebtoken::DecodingKey::from_rsa_components(n, "AQAB").unwrap();
    let check = |message: &str, algorithm| {
        jsonwebtoken::crypto::verify(signature, message.as_bytes(), &key, algorithm).unwrap_or(false)
    };
    assert!(check(message, Algorithm::RS256));
    assert!(!check(&message.replacen('e', "f", 1), Algorithm::RS256));
    for other in [Algorithm::RS512, Algorithm::PS256, Algorithm::ES256, Algorithm::HS256] {
        assert!(!check(message, other), "{other:?}");
    }
}
