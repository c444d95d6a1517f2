//! A daemon in trouble, for tests: what the screens would be told of it, and what they would ask for.

use crate::connection::{Answer, Ask, Heard};
use crate::state::{Moment, Options, State};
use crate::update::{Effect, Event, update};
use forebay_wire as wire;
use forebay_wire::{
    Call, CallState, Caller, Lane, Level, Limits, Role, Snapshot, Update, Upstream, UpstreamKind, UpstreamState,
};

/// The moment at which the sample is looked at.
pub(crate) const NOW: Moment = Moment(60_000);

pub(crate) fn upstream(name: &str, state: UpstreamState, run: (u32, u32), wait: (u32, u32), oldest: u64) -> Upstream {
    Upstream {
        name: name.into(),
        state,
        running: run.0,
        max_concurrent: run.1,
        queued: wait.0,
        queue_size: wait.1,
        oldest_wait_ms: oldest,
        p50_ms: Some(340),
        p95_ms: Some(1_900),
        finished: 900,
        offered: 950,
        queue_timeout_ms: Some(30_000),
        call_timeout_ms: Some(60_000),
        ..Upstream::default()
    }
}

pub(crate) fn upstreams() -> Vec<Upstream> {
    let mut mysql = upstream("mysql-prod", UpstreamState::Saturated, (1, 2), (16, 16), 28_400);
    (mysql.lingering, mysql.refused, mysql.failed, mysql.pids) = (1, 4, 7, vec![8123]);
    let mut slack = upstream("slack", UpstreamState::Down, (0, 2), (0, 16), 0);
    (slack.fault, slack.retry_in_ms) = (Some("exit code 1 after 2.1s".into()), Some(8_000));
    (slack.p50_ms, slack.p95_ms, slack.finished) = (None, None, 0);
    let mut github = upstream("github", UpstreamState::Up, (3, 8), (4, 64), 600);
    github.kind = UpstreamKind::Http;
    vec![
        upstream("filesystem", UpstreamState::Up, (4, 4), (3, 32), 200),
        github,
        mysql,
        upstream("browser", UpstreamState::Saturated, (1, 1), (9, 20), 11_000),
        upstream("search", UpstreamState::Paused, (0, 4), (1, 64), 20_700),
        slack,
        Upstream { max_concurrent: 4096, ..upstream("memory", UpstreamState::Asleep, (0, 1), (0, 16), 0) },
    ]
}

pub(crate) fn caller(name: &str, identity: &str, running: u32, queued: u32) -> Caller {
    Caller {
        name: name.into(),
        identity: identity.into(),
        running,
        queued,
        finished: 400,
        completed: 390,
        shed: 6,
        cancelled: 1,
        last_ms: Some(100),
        weight: 1,
        ..Caller::default()
    }
}

fn event(number: u64, level: Level, kind: &str, upstream: &str, text: &str) -> wire::Event {
    wire::Event {
        number,
        at_unix_ms: 50_539_000 + number * 700,
        level,
        kind: kind.into(),
        upstream: (upstream != "-").then(|| upstream.into()),
        text: text.into(),
        times: 1,
        ..wire::Event::default()
    }
}

pub(crate) fn snapshot() -> Snapshot {
    let mut ci = caller("ci-bot", "key", 4, 24);
    (ci.client, ci.max_queued, ci.rate_per_second) = (Some("github-runner/2.1".into()), Some(12), Some(5.0));
    let mut refused = event(8, Level::Warn, "refused", "mysql-prod", "queue_full (16/16)");
    (refused.caller, refused.call, refused.times) = (Some("ci-bot".into()), Some("k3f9q-804".into()), 4);
    let mut asked = event(7, Level::Info, "cancel.sent", "mysql-prod", "not yet answered");
    (asked.call, asked.by) = (Some("k3f9q-7e9".into()), Some("uid:1000 tui".into()));
    Snapshot {
        api: wire::API,
        version: "0.1.0".into(),
        instance: "k3f9q".into(),
        pid: 4711,
        role: Role::Operator,
        subject: "uid:1000".into(),
        mcp: "127.0.0.1:7300".into(),
        uptime_ms: 273_600_000,
        now_unix_ms: 50_539_000,
        totals: wire::Totals {
            offered: 5_000,
            queued: 33,
            running: 9,
            lingering: 1,
            finished: 4_958,
            outcomes: vec![wire::OutcomeCount {
                outcome: "refused".into(),
                reason: Some("queue_full".into()),
                calls: 4,
            }],
            ..wire::Totals::default()
        },
        upstreams: upstreams(),
        callers: vec![ci, caller("alice/claude", "key", 3, 5), caller("bob/cursor", "none", 2, 3)],
        events: vec![
            event(4, Level::Info, "config.reload", "-", "ok: +1 upstream, 2 limits changed"),
            event(5, Level::Info, "limit.changed", "browser", "queue_size 10 -> 20"),
            event(6, Level::Error, "upstream.exit", "slack", "code 1 after 2.1s; retry in 8s"),
            asked,
            refused,
        ],
        next_event: 9,
        ..Snapshot::default()
    }
}

fn call(id: &str, caller: &str, tool: &str, state: CallState, age: u64, left: u64) -> Call {
    let queued = if state == CallState::Queued { age } else { 400 };
    Call {
        id: format!("k3f9q-{id}"),
        caller: caller.into(),
        upstream: "mysql-prod".into(),
        method: "tools/call".into(),
        tool: Some(tool.into()),
        state,
        age_ms: age,
        queued_ms: queued,
        running_ms: age - queued,
        deadline_ms: Some(left),
        weight: 1,
        bytes: 1_204,
        attempt: 1,
        ..Call::default()
    }
}

pub(crate) fn calls() -> Vec<Call> {
    let mut calls = vec![
        call("7f3", "alice/claude", "query", CallState::Running, 3_100, 57_300),
        call("7e9", "ci-bot", "export_table", CallState::Lingering, 58_000, 3_200),
        Call { lane: Lane::High, ..call("801", "alice/claude", "describe_table", CallState::Queued, 4_000, 26_000) },
    ];
    for (at, age) in
        [28_400, 27_900, 12_200, 9_700, 9_600, 9_500, 3_800, 3_800, 3_700, 3_600, 3_500, 3_000].iter().enumerate()
    {
        let caller = if at == 2 { "bob/cursor" } else { "ci-bot" };
        calls.push(call(&format!("7f{at}x"), caller, "query", CallState::Queued, *age, 30_000 - age));
    }
    for (at, call) in calls.iter_mut().skip(2).enumerate() {
        call.position = Some(at as u32 + 1);
    }
    calls
}

/// What the daemon would answer.
pub(crate) fn answer(ask: &Ask) -> Option<Answer> {
    let step = |at_ms, what: &str, detail: &str| wire::Step { at_ms, what: what.into(), detail: Some(detail.into()) };
    Some(match ask {
        Ask::Calls(wanted) => {
            let query = &wanted.query;
            let takes = |call: &Call| {
                query.upstream.as_ref().is_none_or(|name| *name == call.upstream)
                    && query.caller.as_ref().is_none_or(|name| *name == call.caller)
                    && query.state.is_none_or(|state| state == call.state)
            };
            let calls = calls().into_iter().filter(takes).collect();
            Answer::Calls(wanted.clone(), wire::CallsPage { calls, ..wire::CallsPage::default() })
        }
        Ask::Call(id) => {
            let call = calls().into_iter().find(|call| call.id == *id)?;
            let detail = wire::CallDetail {
                arrived_unix_ms: 50_510_900,
                client: Some("github-runner/2.1".into()),
                protocol: Some("2025-11-25".into()),
                upstream_protocol: Some("2026-07-28".into()),
                waiting: call.position.map(|_| 16),
                timeline: vec![
                    step(0, "accepted", "http 10.0.3.7:51544"),
                    step(1, "queued", "position 14 of 14"),
                    step(24_410, "progress", "told the client: position 2 of 16"),
                ],
                call,
            };
            Answer::Call(id.clone(), Box::new(detail))
        }
        Ask::CallWhy(id) => Answer::CallWhy(
            id.clone(),
            Box::new(wire::Why {
                sentence: format!(
                    "{id} waits because both slots of mysql-prod are taken, by k3f9q-7e9 for 57.6s and k3f9q-7f3 for 2.7s; it is served 2nd."
                ),
                hint: Some("forebay cancel k3f9q-7e9 would not help: it lingers; forebay upstream restart mysql-prod frees its slot".into()),
                split: Some(wire::Split { admission_ms: 1, queue_ms: 28_400, upstream_ms: 0, delivery_ms: 0 }),
                ..wire::Why::default()
            }),
        ),
        Ask::Upstream(name) => {
            let upstream = upstreams().into_iter().find(|upstream| upstream.name == *name)?;
            let file = Limits {
                max_concurrent: Some(2),
                queue_size: Some(10),
                queue_timeout_ms: Some(30_000),
                call_timeout_ms: Some(60_000),
                max_queued: Some(12),
                cancel_grace_ms: Some(5_000),
            };
            let count = |outcome: &str, reason: Option<&str>, calls| wire::OutcomeCount {
                outcome: outcome.into(),
                reason: reason.map(Into::into),
                calls,
            };
            Answer::Upstream(
                name.clone(),
                Box::new(wire::UpstreamDetail {
                    now: Limits { queue_size: Some(16), ..file },
                    file,
                    on_full: "displace".into(),
                    after_cancel: "linger".into(),
                    processes: 1,
                    protocol: Some("2025-11-25".into()),
                    server: Some("mysql-mcp/1.4".into()),
                    outcomes: vec![count("completed", None, 4_281), count("refused", Some("queue_full"), 9)],
                    stderr: vec!["INFO ready".into(), "WARN slow query 7.1s".into(), "\u{1b}[31mWARN pool exhausted".into()],
                    upstream,
                }),
            )
        }
        Ask::UpstreamWhy(name) => Answer::UpstreamWhy(
            name.clone(),
            Box::new(wire::Why {
                sentence: format!("{name} is full."),
                holders: calls().into_iter().filter(|call| call.upstream == *name).take(2).collect(),
                waiting: vec![
                    wire::Share { caller: "ci-bot".into(), calls: 12 },
                    wire::Share { caller: "alice/claude".into(), calls: 3 },
                ],
                ..wire::Why::default()
            }),
        ),
        Ask::Stderr(name) => Answer::Stderr(
            name.clone(),
            (1..=60).map(|at| format!("14:02:{:02} WARN line {at} \u{1b}[2Jof its output", at % 60)).collect(),
        ),
        Ask::CancelMany(selector) => {
            let done = wire::CancelledMany {
                dry_run: selector.dry_run,
                matched: 13,
                cancelled_queued: 12,
                cancelled_running: 1,
                ..wire::CancelledMany::default()
            };
            Answer::CancelledMany(selector.clone(), done)
        }
        Ask::Cancel(_) | Ask::Steer(..) | Ask::Limits { .. } | Ask::Edit { .. } => return None,
    })
}

/// Lets something happen, and answers whatever is asked for thereupon. Gives what else was wanted.
pub(crate) fn happen(state: &mut State, event: Event, now: Moment) -> Vec<Effect> {
    let mut left = Vec::new();
    let mut effects = update(state, event, now);
    for _ in 0..20 {
        let mut following = Vec::new();
        for effect in effects {
            match &effect {
                Effect::Ask(ask) => match answer(ask) {
                    Some(answer) => following.extend(update(state, Event::Heard(Heard::Answer(answer)), now)),
                    None => left.push(effect),
                },
                _ => left.push(effect),
            }
        }
        if following.is_empty() {
            break;
        }
        effects = following;
    }
    left
}

/// The screens as they are after a minute of watching the sample.
pub(crate) fn state() -> State {
    let mut state = State::new(Options { target: "local".into(), ..Options::default() });
    let mut first = snapshot();
    for upstream in &mut first.upstreams {
        (upstream.refused, upstream.failed, upstream.offered) = (0, 0, 900);
        upstream.finished = upstream.finished.saturating_sub(50);
        upstream.queued /= 2;
    }
    first.totals.outcomes.clear();
    for caller in &mut first.callers {
        (caller.finished, caller.completed, caller.shed, caller.cancelled) = (310, 306, 3, 1);
    }
    happen(&mut state, Event::Heard(Heard::Update(Update::Snapshot(Box::new(first)))), Moment(0));
    happen(&mut state, Event::Tick, Moment(30_000));
    happen(&mut state, Event::Heard(Heard::Update(Update::Snapshot(Box::new(snapshot())))), NOW);
    happen(&mut state, Event::Tick, NOW);
    state.notice = None;
    state
}
