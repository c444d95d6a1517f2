//! Who calls: the caller behind a request's credentials.

use super::guard::single;
use super::limiter::Limiter;
use crate::caller::Caller;
use crate::caller::registry::Callers;
use crate::config::Auth;
use http::header::{AUTHORIZATION, HeaderMap};
use std::net::IpAddr;
use std::sync::Arc;
use tokio::time::Instant;

/// Why nobody is behind a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Nobody {
    /// Missing, malformed, duplicate and unknown credentials are answered alike.
    Unauthorized,
    /// Too many of these came from the address; the next is looked at in so many milliseconds.
    Slowed(u64),
}

/// Finds the caller. Only what is wrong is counted against the address.
pub(crate) fn who(
    callers: &Callers,
    auth: Auth,
    headers: &HeaderMap,
    address: IpAddr,
    wrong: &Limiter,
) -> Result<Arc<Caller>, Nobody> {
    match auth {
        Auth::None => Ok(callers.anonymous().clone()),
        Auth::Keys => {
            let caller = bearer(headers).and_then(|key| callers.by_key(key));
            caller.ok_or_else(|| match wrong.wrong(address, Instant::now()) {
                Ok(()) => Nobody::Unauthorized,
                Err(wait_ms) => Nobody::Slowed(wait_ms),
            })
        }
    }
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
        let alice = CallerConfig { keys: vec![parse_key_hash(&key.key_hash()).unwrap()], ..CallerConfig::default() };
        Callers::new(&Config {
            listen: Listen {
                mcp: "127.0.0.1:0".parse().unwrap(),
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
        })
    }

    fn headers(values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn r34_a_key_is_its_caller_and_all_else_is_alike() {
        let key = Key::new([7; 32]);
        let callers = callers(&key);
        let right = format!("Bearer {}", key.expose());
        let other = format!("Bearer {}", Key::new([8; 32]).expose());
        let wrong = Limiter::new(Instant::now());
        let ask = |values: &[&str]| {
            who(&callers, Auth::Keys, &headers(values), "127.0.0.1".parse().unwrap(), &wrong)
                .map(|caller| caller.name.to_string())
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
        let address: IpAddr = "127.0.0.1".parse().unwrap();
        let right = headers(&[&format!("Bearer {}", key.expose())]);
        let mut slowed = 0;
        for _ in 0..1000 {
            let answer = who(&callers, Auth::Keys, &headers(&["Bearer nonsense"]), address, &wrong);
            slowed += usize::from(matches!(answer, Err(Nobody::Slowed(_))));
            assert!(who(&callers, Auth::Keys, &right, address, &wrong).is_ok());
        }
        assert!(slowed > 900, "{slowed}");
    }

    #[test]
    fn r33_without_keys_everybody_is_anonymous() {
        let callers = callers(&Key::new([7; 32]));
        let wrong = Limiter::new(Instant::now());
        let address: IpAddr = "127.0.0.1".parse().unwrap();
        let one = who(&callers, Auth::None, &headers(&["Bearer x"]), address, &wrong).unwrap();
        let two = who(&callers, Auth::None, &headers(&[]), address, &wrong).unwrap();
        assert!(Arc::ptr_eq(&one, &two));
        assert_eq!(&*one.name, "anonymous");
    }
}
