//! Why a call or an upstream stands where it stands, in plain sentences. Facts in, words out; nothing is looked up.

use forebay_wire as wire;
use std::fmt::Write as _;
use wire::{CallState, UpstreamState};

/// Slot holders that a sentence names.
const NAMED: usize = 3;

/// What is known of one call.
pub(super) struct CallFacts<'a> {
    pub(super) call: &'a wire::Call,
    /// None if it is gone.
    pub(super) upstream: Option<&'a wire::Upstream>,
    /// Who holds its slots, longest first; of a queued call.
    pub(super) holders: &'a [wire::Call],
    /// How long until it runs, as far as that can be told.
    pub(super) wait_ms: Option<u64>,
}

/// The sentence, and what can be done about it.
pub(super) fn call(facts: &CallFacts<'_>) -> (String, Option<String>) {
    let call = facts.call;
    match call.state {
        CallState::Queued => queued(facts),
        CallState::Running => {
            let mut text = format!("{} runs at {} for {}", call.id, call.upstream, time(call.running_ms));
            if call.queued_ms > 0 {
                let _ = write!(text, ", after {} of waiting", time(call.queued_ms));
            }
            if let Some(p50) = facts.upstream.and_then(|upstream| upstream.p50_ms) {
                let _ = write!(text, "; half of its calls take less than {}", time(p50));
            }
            if call.attempt > 1 {
                let _ = write!(text, "; this is attempt {}", call.attempt);
            }
            text.push_str(&match call.deadline_ms {
                Some(left) => format!("; it is timed out in {}.", time(left)),
                None => "; nothing bounds its time.".into(),
            });
            (text, Some(format!("forebay cancel {}", call.id)))
        }
        CallState::Lingering => {
            let mut text = format!("{} is over for its caller ({})", call.id, ending(call));
            let _ = write!(text, ", but {} has not ended it, so its slot is held", call.upstream);
            text.push_str(&match call.deadline_ms {
                Some(left) => format!(" for at most another {}.", time(left)),
                None => " until it does.".into(),
            });
            (text, Some(format!("forebay upstream restart {}", call.upstream)))
        }
        CallState::Finished => (finished(call), None),
        CallState::Unknown => (format!("{} is in a state that this program does not know.", call.id), None),
    }
}

fn queued(facts: &CallFacts<'_>) -> (String, Option<String>) {
    let call = facts.call;
    let name = &call.upstream;
    let mut text = format!("{} waits: ", call.id);
    let mut hint = None;
    match facts.upstream {
        None => {
            let _ = write!(text, "{name} has been removed");
        }
        Some(upstream) => match upstream.state {
            UpstreamState::Paused => {
                let _ = write!(text, "{name} is paused");
                hint = Some(format!("forebay upstream resume {name}"));
            }
            UpstreamState::Down => {
                text.push_str(&down(upstream));
                hint = Some(format!("forebay upstream restart {name}"));
            }
            UpstreamState::Starting | UpstreamState::Asleep => {
                let _ = write!(text, "{name} is being started");
            }
            UpstreamState::Up
            | UpstreamState::Degraded
            | UpstreamState::Saturated
            | UpstreamState::Draining
            | UpstreamState::Drained
            | UpstreamState::Unknown => {
                let taken = upstream.running + upstream.lingering;
                if upstream.max_concurrent > 0 && taken >= upstream.max_concurrent {
                    text.push_str(&slots(upstream, facts.holders));
                    hint = facts.holders.first().map(|holder| format!("forebay cancel {}", holder.id));
                } else {
                    let _ = write!(
                        text,
                        "{name} has a free slot, but a limit of caller {}, of the tool or of all upstreams together is met",
                        call.caller
                    );
                }
            }
        },
    }
    if let Some(position) = call.position {
        let ahead = position.saturating_sub(1);
        text.push_str(&match ahead {
            0 => "; it is next".into(),
            1 => "; 1 call is ahead".into(),
            more => format!("; {more} calls are ahead"),
        });
        if let Some(wait) = facts.wait_ms {
            let _ = write!(text, ", about {}", time(wait));
        }
    }
    text.push_str(&match call.deadline_ms {
        Some(left) => format!("; it expires in {}.", time(left)),
        None => "; nothing bounds its wait.".into(),
    });
    (text, hint)
}

fn finished(call: &wire::Call) -> String {
    let id = &call.id;
    let upstream = &call.upstream;
    let (waited, ran) = (time(call.queued_ms), time(call.running_ms));
    let reason = call.reason.as_deref().unwrap_or_default();
    match call.outcome.as_deref().unwrap_or_default() {
        "completed" => format!("{id} was answered by {upstream}: it waited {waited} and ran {ran}."),
        "upstream_error" => format!("{id} was answered by {upstream} with an error: it waited {waited} and ran {ran}."),
        "refused" => format!("{id} was refused ({}) and never ran.", reason.replace('_', " ")),
        "displaced" => {
            format!(
                "{id} waited {waited} and was displaced: the queue of {upstream} was full, and a caller that held less came. It never ran."
            )
        }
        "expired" => {
            let whose = match reason {
                "deadline" => "its caller's deadline",
                _ => "queue_timeout",
            };
            format!("{id} waited {waited} in the queue of {upstream} until {whose} passed. It never ran.")
        }
        "timed_out" => {
            let whose = if reason == "caller" { "its caller's deadline" } else { "call_timeout" };
            format!("{id} ran {ran} at {upstream} until {whose} passed; it may have been done all the same.")
        }
        "cancelled" => {
            let who = match reason {
                "operator" => "an operator",
                "disconnect" => "the end of its caller's connection",
                "shutdown" => "the daemon's end",
                _ => "its caller",
            };
            let did = match call.executed.as_deref() {
                Some("never") => format!("it had waited {waited} and never ran"),
                _ => format!("it had run {ran} at {upstream}, and may have been done all the same"),
            };
            format!("{id} was cancelled by {who}; {did}.")
        }
        "lost" => match call.executed.as_deref() {
            Some("never") => format!("{id} was lost before any of it was sent to {upstream}. It never ran."),
            _ => format!(
                "{id} was lost: {upstream} or its connection ended after {ran}; it may have been done all the same."
            ),
        },
        other => format!("{id} ended: {other}."),
    }
}

/// Why an upstream does what it does.
pub(super) fn upstream(
    upstream: &wire::Upstream,
    holders: &[wire::Call],
    waiting: &[wire::Share],
) -> (String, Option<String>) {
    let name = &upstream.name;
    let mut hint = None;
    let mut text = match upstream.state {
        UpstreamState::Paused => {
            hint = Some(format!("forebay upstream resume {name}"));
            format!("{name} is paused: nothing is dispatched, arrivals queue")
        }
        UpstreamState::Draining => {
            hint = Some(format!("forebay upstream resume {name}"));
            format!("{name} drains: arrivals are refused, what is queued still runs")
        }
        UpstreamState::Drained => {
            hint = Some(format!("forebay upstream resume {name}"));
            format!("{name} has run dry and refuses calls until it is resumed")
        }
        UpstreamState::Down => {
            hint = Some(format!("forebay upstream restart {name}"));
            down(upstream)
        }
        UpstreamState::Starting => format!("{name} is being started"),
        UpstreamState::Asleep => format!("{name} sleeps; it starts with its first call"),
        UpstreamState::Up | UpstreamState::Degraded | UpstreamState::Saturated | UpstreamState::Unknown => {
            let taken = upstream.running + upstream.lingering;
            if upstream.queued == 0 && taken == 0 {
                return (format!("{name} is up and idle: nothing runs and nothing waits."), None);
            }
            hint =
                holders.first().filter(|_| upstream.queued > 0).map(|holder| format!("forebay cancel {}", holder.id));
            slots(upstream, holders)
        }
    };
    if upstream.queued > 0 {
        let places = if upstream.queued >= upstream.queue_size { "; its queue is full" } else { "" };
        let _ = write!(text, "{places}; {} of {} queue places are taken", upstream.queued, upstream.queue_size);
        let named: Vec<_> =
            waiting.iter().take(NAMED).map(|share| format!("{} by {}", share.calls, share.caller)).collect();
        if !named.is_empty() {
            let more = if waiting.len() > NAMED { ", ..." } else { "" };
            let _ = write!(text, " ({}{more})", named.join(", "));
        }
        let _ = write!(text, "; the longest has waited {}", time(upstream.oldest_wait_ms));
    } else {
        text.push_str("; nothing waits");
    }
    text.push('.');
    (text, hint)
}

fn down(upstream: &wire::Upstream) -> String {
    let mut text = format!("{} is down", upstream.name);
    if let Some(fault) = &upstream.fault {
        let _ = write!(text, " ({fault})");
    }
    if let Some(retry) = upstream.retry_in_ms {
        let _ = write!(text, " and is tried again in {}", time(retry));
    }
    text
}

/// "2 of 2 slots of mysql are taken (k3-7f3 by alice for 3.1 s, ...)".
fn slots(upstream: &wire::Upstream, holders: &[wire::Call]) -> String {
    let taken = upstream.running + upstream.lingering;
    let of = if upstream.max_concurrent == 0 { String::new() } else { format!(" of {}", upstream.max_concurrent) };
    let (noun, verb) = if taken == 1 && upstream.max_concurrent <= 1 { ("slot", "is") } else { ("slots", "are") };
    let mut text = format!("{taken}{of} {noun} of {} {verb} taken", upstream.name);
    let named: Vec<_> = holders
        .iter()
        .take(NAMED)
        .map(|holder| {
            let lingers = if holder.state == CallState::Lingering { ", lingering" } else { "" };
            format!("{} by {} for {}{lingers}", holder.id, holder.caller, time(holder.running_ms))
        })
        .collect();
    if !named.is_empty() {
        let more = if holders.len() > NAMED { ", ..." } else { "" };
        let _ = write!(text, " ({}{more})", named.join(", "));
    }
    text
}

fn ending(call: &wire::Call) -> String {
    let outcome = call.outcome.as_deref().unwrap_or("ended").replace('_', " ");
    match call.reason.as_deref() {
        Some(reason) => format!("{outcome}, {}", reason.replace('_', " ")),
        None => outcome,
    }
}

fn time(ms: u64) -> String {
    match ms {
        0..1000 => format!("{ms} ms"),
        1000..120_000 => format!("{:.1} s", ms as f64 / 1000.0),
        120_000..7_200_000 => format!("{} min", ms / 60_000),
        _ => format!("{} h", ms / 3_600_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(state: UpstreamState) -> wire::Upstream {
        wire::Upstream {
            name: "mysql".into(),
            state,
            running: 2,
            max_concurrent: 2,
            queued: 2,
            queue_size: 16,
            oldest_wait_ms: 2400,
            p50_ms: Some(1900),
            ..Default::default()
        }
    }

    fn one(state: CallState) -> wire::Call {
        wire::Call {
            id: "k3f9q-7ee".into(),
            caller: "bob".into(),
            upstream: "mysql".into(),
            state,
            queued_ms: 2400,
            attempt: 1,
            ..Default::default()
        }
    }

    fn holders() -> Vec<wire::Call> {
        let holder = |id: &str, caller: &str, running_ms, state| wire::Call {
            id: id.into(),
            caller: caller.into(),
            running_ms,
            state,
            ..Default::default()
        };
        vec![
            holder("k3f9q-7f3", "alice", 3100, CallState::Running),
            holder("k3f9q-7f4", "carol", 900, CallState::Lingering),
        ]
    }

    fn say(call_: &wire::Call, upstream: &wire::Upstream, wait_ms: Option<u64>) -> (String, Option<String>) {
        let holders = holders();
        call(&CallFacts { call: call_, upstream: Some(upstream), holders: &holders, wait_ms })
    }

    #[test]
    fn a_queued_call_names_who_holds_the_slots() {
        let waits = wire::Call { position: Some(2), deadline_ms: Some(1600), ..one(CallState::Queued) };
        let (sentence, hint) = say(&waits, &up(UpstreamState::Up), Some(4000));
        assert_eq!(
            sentence,
            "k3f9q-7ee waits: 2 of 2 slots of mysql are taken (k3f9q-7f3 by alice for 3.1 s, k3f9q-7f4 by carol for \
             900 ms, lingering); 1 call is ahead, about 4.0 s; it expires in 1.6 s."
        );
        assert_eq!(hint.as_deref(), Some("forebay cancel k3f9q-7f3"));
    }

    #[test]
    fn a_queued_call_says_what_is_the_matter_with_its_upstream() {
        let waits = wire::Call { position: Some(1), ..one(CallState::Queued) };
        let (sentence, hint) = say(&waits, &up(UpstreamState::Paused), None);
        assert_eq!(sentence, "k3f9q-7ee waits: mysql is paused; it is next; nothing bounds its wait.");
        assert_eq!(hint.as_deref(), Some("forebay upstream resume mysql"));
        let down =
            wire::Upstream { fault: Some("exit code 1".into()), retry_in_ms: Some(4000), ..up(UpstreamState::Down) };
        let (sentence, _) = say(&waits, &down, None);
        assert!(sentence.starts_with("k3f9q-7ee waits: mysql is down (exit code 1) and is tried again in 4.0 s;"));
        let (sentence, _) = say(&waits, &up(UpstreamState::Starting), None);
        assert!(sentence.contains("mysql is being started"));
        let free = wire::Upstream { running: 1, ..up(UpstreamState::Up) };
        let (sentence, _) = say(&waits, &free, None);
        assert!(sentence.contains("mysql has a free slot, but a limit of caller bob"), "{sentence}");
        let gone = call(&CallFacts { call: &waits, upstream: None, holders: &[], wait_ms: None }).0;
        assert!(gone.contains("mysql has been removed"));
    }

    #[test]
    fn a_running_call_tells_how_long_and_what_is_usual() {
        let runs = wire::Call { running_ms: 130_000, deadline_ms: Some(5000), attempt: 2, ..one(CallState::Running) };
        let (sentence, hint) = say(&runs, &up(UpstreamState::Up), None);
        assert_eq!(
            sentence,
            "k3f9q-7ee runs at mysql for 2 min, after 2.4 s of waiting; half of its calls take less than 1.9 s; this is \
             attempt 2; it is timed out in 5.0 s."
        );
        assert_eq!(hint.as_deref(), Some("forebay cancel k3f9q-7ee"));
    }

    #[test]
    fn a_lingering_call_tells_why_its_slot_is_held() {
        let lingers = wire::Call {
            outcome: Some("timed_out".into()),
            reason: Some("call_timeout".into()),
            deadline_ms: Some(4200),
            ..one(CallState::Lingering)
        };
        assert_eq!(
            say(&lingers, &up(UpstreamState::Up), None).0,
            "k3f9q-7ee is over for its caller (timed out, call timeout), but mysql has not ended it, so its slot is held \
             for at most another 4.2 s."
        );
    }

    #[test]
    fn every_ending_has_its_sentence() {
        for index in 0..crate::outcome::Outcome::COUNT {
            let (outcome, reason) = crate::outcome::Outcome::labels(index);
            for executed in ["yes", "never", "unknown"] {
                let over = wire::Call {
                    outcome: Some(outcome.into()),
                    reason: Some(reason.to_owned()).filter(|reason| !reason.is_empty()),
                    executed: Some(executed.into()),
                    ..one(CallState::Finished)
                };
                let sentence = finished(&over);
                assert!(sentence.starts_with("k3f9q-7ee ") && sentence.ends_with('.'), "{sentence}");
                assert!(!sentence.contains(" ended: "), "{outcome} has no sentence of its own");
            }
        }
        let refused = wire::Call {
            outcome: Some("refused".into()),
            reason: Some("queue_full".into()),
            ..one(CallState::Finished)
        };
        assert_eq!(finished(&refused), "k3f9q-7ee was refused (queue full) and never ran.");
    }

    #[test]
    fn an_upstream_tells_who_fills_it() {
        let full = wire::Upstream { queued: 16, ..up(UpstreamState::Saturated) };
        let shares: Vec<_> = [("alice", 10), ("bob", 4), ("carol", 1), ("dan", 1)]
            .map(|(caller, calls)| wire::Share { caller: caller.into(), calls })
            .into();
        let (sentence, hint) = upstream(&full, &holders(), &shares);
        assert_eq!(
            sentence,
            "2 of 2 slots of mysql are taken (k3f9q-7f3 by alice for 3.1 s, k3f9q-7f4 by carol for 900 ms, lingering); \
             its queue is full; 16 of 16 queue places are taken (10 by alice, 4 by bob, 1 by carol, ...); the longest \
             has waited 2.4 s."
        );
        assert_eq!(hint.as_deref(), Some("forebay cancel k3f9q-7f3"));
    }

    #[test]
    fn an_upstream_in_each_state_says_so() {
        let idle = wire::Upstream { running: 0, queued: 0, ..up(UpstreamState::Up) };
        assert_eq!(upstream(&idle, &[], &[]).0, "mysql is up and idle: nothing runs and nothing waits.");
        for (state, words) in [
            (UpstreamState::Paused, "mysql is paused"),
            (UpstreamState::Draining, "mysql drains"),
            (UpstreamState::Drained, "mysql has run dry"),
            (UpstreamState::Down, "mysql is down"),
            (UpstreamState::Starting, "mysql is being started"),
            (UpstreamState::Asleep, "mysql sleeps"),
        ] {
            assert!(upstream(&up(state), &[], &[]).0.starts_with(words), "{state:?}");
        }
    }
}
