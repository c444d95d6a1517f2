//! Who calls: the caller behind a request's credentials. All of it before a byte of the body is read.

use super::guard::single;
use super::limiter::Limiter;
use crate::caller::Caller;
use crate::caller::registry::Callers;
use crate::caller::token::BadToken;
use crate::config::Auth;
use http::Uri;
use http::header::{AUTHORIZATION, HeaderMap};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// Why nobody is behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nobody {
    /// Missing, malformed, duplicate, unknown and expired credentials are answered alike.
    Unauthorized,
    /// Too many of these came from the address; the next is looked at in so many milliseconds.
    Slowed(u64),
    /// A good token without the scopes that are needed.
    Scope,
    /// A credential in the URL, where every log has it.
    InUrl,
    /// Tokens cannot be checked now; in so many milliseconds they may.
    Unready(u64),
}

/// Where a request comes from, as far as the system says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    pub address: IpAddr,
    /// The user at the other end of a unix socket.
    pub uid: Option<u32>,
}

/// Finds the caller. A user id counts where no credential is sent. Only what is wrong is counted against the address.
pub(crate) async fn who(
    callers: &Callers,
    auth: &Auth,
    uri: &Uri,
    headers: &HeaderMap,
    from: Peer,
    wrong: &Limiter,
) -> Result<Arc<Caller>, Nobody> {
    if matches!(auth, Auth::Keys | Auth::Jwt(_)) && has_token(uri) {
        return Err(Nobody::InUrl);
    }
    let found = match auth {
        Auth::None => return Ok(from.uid.map_or_else(|| callers.anonymous().clone(), |uid| callers.user(uid))),
        Auth::Keys | Auth::Jwt(_) if from.uid.is_some() && !headers.contains_key(AUTHORIZATION) => {
            from.uid.and_then(|uid| callers.by_uid(uid))
        }
        Auth::Keys => bearer(headers).and_then(|key| callers.by_key(key)),
        Auth::Jwt(_) => match bearer(headers) {
            None => None,
            Some(token) => match callers.by_token(token).await {
                Ok(caller) => Some(caller),
                Err(BadToken::Wrong) => None,
                Err(BadToken::Scope) => return Err(Nobody::Scope),
                Err(BadToken::Unready(wait_ms)) => return Err(Nobody::Unready(wait_ms)),
            },
        },
    };
    found.ok_or_else(|| match wrong.wrong(from.address, Instant::now()) {
        Ok(()) => Nobody::Unauthorized,
        Err(wait_ms) => Nobody::Slowed(wait_ms),
    })
}

/// Whether the query carries a token (RFC 6750, 2.3), which is not taken there.
fn has_token(uri: &Uri) -> bool {
    let names = uri.query().unwrap_or_default().split('&').map(|pair| pair.split('=').next().unwrap_or_default());
    names.into_iter().any(|name| name.eq_ignore_ascii_case("access_token"))
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    let value = single(headers, &AUTHORIZATION).ok().flatten()?;
    let (scheme, key) = value.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| key.trim_start_matches(' '))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::caller::key::{Key, parse_key_hash};
    use crate::config::{CallerConfig, Config, Global, Listen};
    use http::HeaderValue;
    use std::collections::BTreeMap;

    fn callers(key: &Key) -> Callers {
        Callers::new(&config(key))
    }

    fn config(key: &Key) -> Config {
        let alice = CallerConfig { keys: vec![parse_key_hash(&key.key_hash()).unwrap()], ..CallerConfig::default() };
        Config {
            listen: Listen {
                mcp: "127.0.0.1:0".parse().unwrap(),
                mcp_unix: None,
                admin: "/nowhere".into(),
                hosts: Vec::new(),
                origins: Vec::new(),
                threads: 1,
                max_body: 1024,
            },
            auth: Auth::Keys,
            global: Global::default(),
            upstreams: BTreeMap::new(),
            callers: BTreeMap::from([("alice".into(), Arc::new(alice))]),
            hooks: crate::config::Hooks::default(),
            origin: None,
        }
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    fn ask(callers: &Callers, auth: &Auth, headers: &HeaderMap, wrong: &Limiter) -> Result<Arc<Caller>, Nobody> {
        from(None, callers, auth, headers, wrong)
    }

    fn from(
        uid: Option<u32>,
        callers: &Callers,
        auth: &Auth,
        headers: &HeaderMap,
        wrong: &Limiter,
    ) -> Result<Arc<Caller>, Nobody> {
        let (uri, peer) = (Uri::from_static("/mcp"), Peer { address: "127.0.0.1".parse().unwrap(), uid });
        let found = who(callers, auth, &uri, headers, peer, wrong);
        futures_util::FutureExt::now_or_never(found).expect("keys are not waited for")
    }

    #[test]
    fn r33_a_user_of_the_machine_is_known_by_its_id_and_a_credential_goes_before_it() {
        let key = Key::new([7; 32]);
        let mut config = config(&key);
        let bob = CallerConfig { uids: vec![1001], ..CallerConfig::default() };
        config.callers.insert("bob".into(), Arc::new(bob));
        let callers = Callers::new(&config);
        let wrong = Limiter::new(Instant::now());
        let right = headers(&[&format!("Bearer {}", key.expose())]);
        let name = |uid, auth: &Auth, headers: &HeaderMap| {
            from(uid, &callers, auth, headers, &wrong).map(|caller| caller.name.to_string())
        };
        let nothing = HeaderMap::new();
        assert_eq!(name(Some(1001), &Auth::None, &nothing), Ok("bob".into()));
        assert_eq!(name(Some(1002), &Auth::None, &nothing), Ok("uid:1002".into()));
        assert_eq!(name(None, &Auth::None, &nothing), Ok("anonymous".into()));
        assert_eq!(name(Some(1001), &Auth::Keys, &nothing), Ok("bob".into()));
        assert_eq!(name(Some(1002), &Auth::Keys, &nothing), Err(Nobody::Unauthorized));
        assert_eq!(name(Some(1001), &Auth::Keys, &right), Ok("alice".into()));
        assert_eq!(name(Some(1001), &Auth::Keys, &headers(&["Bearer x"])), Err(Nobody::Unauthorized));
        // One record a user.
        let id = |uid| from(Some(uid), &callers, &Auth::None, &nothing, &wrong).unwrap().id;
        assert_eq!(id(1002), id(1002));
        assert_ne!(id(1002), id(1003));
        assert_eq!(&*callers.by_name("uid:1002").unwrap().name, "uid:1002");
    }

    #[test]
    fn a_token_in_the_url_is_told_from_other_words() {
        for bad in ["/mcp?access_token=x", "/mcp?a=b&Access_Token=", "/mcp?access_token"] {
            assert!(has_token(&bad.parse().unwrap()), "{bad}");
        }
        for good in ["/mcp", "/mcp?a=access_token", "/access_token"] {
            assert!(!has_token(&good.parse().unwrap()), "{good}");
        }
    }

    #[test]
    fn r34_two_keys_of_a_caller_live_side_by_side_while_one_replaces_the_other() {
        let (old, new) = (Key::new([7; 32]), Key::new([9; 32]));
        let callers = callers(&old);
        let hash = |key: &Key| parse_key_hash(&key.key_hash()).unwrap();
        let mut config = config(&old);
        let wrong = Limiter::new(Instant::now());
        let known = |callers: &Callers, key: &Key| {
            let headers = headers(&[&format!("Bearer {}", key.expose())]);
            ask(callers, &Auth::Keys, &headers, &wrong).map(|caller| caller.id)
        };
        let before = known(&callers, &old).unwrap();
        for (keys, works) in [(vec![&old, &new], [true, true]), (vec![&new], [false, true])] {
            let alice = CallerConfig { keys: keys.into_iter().map(hash).collect(), ..CallerConfig::default() };
            config.callers.insert("alice".into(), Arc::new(alice));
            callers.reload(&config);
            let got = [&old, &new].map(|key| known(&callers, key).is_ok_and(|id| id == before));
            assert_eq!(got, works, "one caller by either key");
        }
    }

    #[test]
    fn r34_a_key_is_its_caller_and_all_else_is_alike() {
        let key = Key::new([7; 32]);
        let callers = callers(&key);
        let right = format!("Bearer {}", key.expose());
        let other = format!("Bearer {}", Key::new([8; 32]).expose());
        let wrong = Limiter::new(Instant::now());
        let ask = |values: &[&str]| {
            ask(&callers, &Auth::Keys, &headers(values), &wrong).map(|caller| caller.name.to_string())
        };
        assert_eq!(ask(&[&right]), Ok("alice".into()));
        assert_eq!(ask(&[&right.replace("Bearer", "bEARER ")]), Ok("alice".into()));
        for bad in [&[][..], &["Bearer"], &["Basic x"], &[&other], &[&right, &right], &["Bearer fb_x_y"]] {
            assert_eq!(ask(bad), Err(Nobody::Unauthorized), "{bad:?}");
        }
    }

    #[test]
    fn c35_a_good_caller_passes_while_its_address_is_slowed() {
        let key = Key::new([7; 32]);
        let callers = callers(&key);
        let wrong = Limiter::new(Instant::now());
        let right = headers(&[&format!("Bearer {}", key.expose())]);
        let mut slowed = 0;
        for _ in 0..1000 {
            let answer = ask(&callers, &Auth::Keys, &headers(&["Bearer nonsense"]), &wrong);
            slowed += usize::from(matches!(answer, Err(Nobody::Slowed(_))));
            assert!(ask(&callers, &Auth::Keys, &right, &wrong).is_ok());
        }
        assert!(slowed > 900, "{slowed}");
    }

    #[test]
    fn r33_without_keys_everybody_is_anonymous() {
        let callers = callers(&Key::new([7; 32]));
        let wrong = Limiter::new(Instant::now());
        let one = ask(&callers, &Auth::None, &headers(&["Bearer x"]), &wrong).unwrap();
        let two = ask(&callers, &Auth::None, &headers(&[]), &wrong).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(&*one.name, "anonymous");
    }
}
