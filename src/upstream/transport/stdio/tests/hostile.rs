//! Children that print what is no message, too much of it, or broken messages.

use super::rig::*;
use crate::call::Answer;

#[tokio::test]
async fn c09_a_child_that_floods_its_standard_error_is_answered_at_once() {
    let house = Setup::new(&[]).up().await;
    for _ in 0..3 {
        let answer = house.run("flood_stderr", json!({"bytes": 256 << 10})).await;
        assert_eq!(text(&answer), "flooded");
    }
    house.run("stderr", json!({"line": "\nlast words"})).await;
    house.close().await;
    let report = house.stdio.report();
    assert_eq!(report.stderr.last().unwrap(), "last words");
    assert!(report.stderr.iter().all(|line| line.len() <= 4096));
}

/// C24: what a caller's JSON reader may well take is not ours to refuse.
#[tokio::test]
async fn c24_a_result_that_cannot_be_annotated_passes_byte_for_byte() {
    let house = Setup::new(&[]).up().await;
    let many: Vec<_> = (0..300).map(|n| format!("\"k{n}\": {n}")).collect();
    for result in
        [r#"{"a":1,"a":1.10}"#.to_owned(), r#"{"\ud800":"\udc00"}"#.to_owned(), format!("{{{}}}", many.join(", "))]
    {
        let (held, run) = house.start("hold", json!({"key": "k"}));
        let id = house.stdio.inner.pool.lock().find(run).unwrap().1.0;
        let line = format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#);
        let (_, raw) = house.start("raw", json!({ "line": line }));
        let ending = ended(&held).await;
        assert_eq!(ending.outcome, Outcome::Completed { is_error: false });
        let Answer::Upstream(bytes) = &ending.answer else { panic!() };
        assert_eq!(bytes, format!(r#"{{"jsonrpc":"2.0","id":1,"result":{result}}}"#).as_bytes());
        house.freed(run, "answered").await;
        house.freed(raw, "answered").await;
    }
    house.close().await;
}

#[tokio::test]
async fn c10_lines_that_are_no_messages_are_skipped_and_counted() {
    let house = Setup::new(&[]).up().await;
    assert_eq!(text(&house.run("noise", json!({})).await), "after the noise");
    assert_eq!(house.stdio.report().noise, 4);
    // An answer that is not JSON costs the call it belongs to; a log line that names an id costs nothing.
    let (held, run) = house.start("hold", json!({"key": "k"}));
    let id = house.stdio.inner.pool.lock().find(run).unwrap().1.0;
    house.run("raw", json!({"line": format!("{{\"level\":\"info\",\"id\":{id}}}")})).await;
    assert_eq!(held.ticket.state(), crate::call::State::Running);
    let (_, raw) = house.start("raw", json!({"line": format!("{{\"jsonrpc\":\"2.0\",\"id\":{id},\"result\":NaN}}")}));
    let (outcome, note) = outcome(&held).await;
    assert_eq!(outcome, Outcome::Lost { sent: true });
    assert_eq!(note, "the server's answer is not valid JSON");
    house.freed(run, "lost").await;
    house.freed(raw, "answered").await;
    house.close().await;
}

#[tokio::test]
async fn c11_bytes_out_equal_bytes_in_and_what_is_not_utf8_costs_its_call_alone() {
    let house = Setup::new(&[]).up().await;
    assert_eq!(text(&house.run("utf8_bytewise", json!({})).await), "é😀");
    let (bad, run) = house.start("bad_utf8", json!({}));
    let (outcome, note) = outcome(&bad).await;
    assert_eq!(outcome, Outcome::Lost { sent: true });
    assert_eq!(note, "the server's answer is not UTF-8");
    house.freed(run, "lost").await;
    assert_eq!(text(&house.run("utf8_bytewise", json!({})).await), "é😀");
    assert_eq!(house.stdio.report().restarts, 0);
    house.close().await;
}

#[tokio::test]
async fn c12_long_lines_arrive_and_one_over_the_cap_costs_one_call() {
    let house = Setup::new(&[]).up().await;
    for bytes in [70_000, 5 << 20, 3] {
        assert_eq!(text(&house.run("big", json!({"bytes": bytes})).await).len(), bytes);
    }
    for id_last in [false, true] {
        let (bystander, held) = house.start("hold", json!({"key": id_last.to_string()}));
        let (big, run) = house.start("big", json!({"bytes": 7 << 20, "id_last": id_last}));
        let (outcome, note) = outcome(&big).await;
        assert_eq!(outcome, Outcome::Lost { sent: true });
        assert_eq!(note, "the server's answer is longer than `max_message`");
        house.freed(run, "lost").await;
        let (_, release) = house.start("release", json!({"key": id_last.to_string()}));
        assert_eq!(text(&answer(&bystander).await), id_last.to_string());
        let mut freed = vec![house.completion().await.id, house.completion().await.id];
        freed.sort_unstable();
        assert_eq!(freed, [held, release]);
    }
    assert_eq!(house.stdio.report().restarts, 0);
    house.close().await;
}

#[tokio::test]
async fn a_child_that_floods_its_standard_output_is_replaced() {
    let house = Setup::new(&[]).config(|config| config.max_message = 1 << 20).up().await;
    let (call, run) = house.start("flood_stdout", json!({"bytes": 80 << 20}));
    let (outcome, note) = outcome(&call).await;
    assert_eq!(outcome, Outcome::Lost { sent: true });
    assert_eq!(note, "flooded its standard output");
    house.freed(run, "lost").await;
    while house.event().await != (LinkEvent::Up { processes: 1 }) {}
    house.run("echo", json!({})).await;
    house.close().await;
}

#[tokio::test]
async fn c23_an_id_given_back_as_a_string_is_tolerated() {
    let house = Setup::new(&[]).up().await;
    assert_eq!(text(&house.run("string_id", json!({})).await), "a string");
    house.close().await;
}

#[tokio::test]
async fn c26_calls_of_the_same_id_get_their_own_answers() {
    let house = Setup::new(&[]).up().await;
    let (first, run_a) = house.start("hold", json!({"key": "a"}));
    let (second, run_b) = house.start("hold", json!({"key": "b"}));
    house.start("release", json!({"key": "b"}));
    assert_eq!(text(&answer(&second).await), "b");
    house.start("release", json!({"key": "a"}));
    let answer = answer(&first).await;
    assert_eq!((text(&answer), &answer["id"]), ("a", &json!(1)));
    let mut freed = Vec::new();
    for _ in 0..4 {
        freed.push(house.completion().await.id);
    }
    assert!(freed.contains(&run_a) && freed.contains(&run_b));
    assert_eq!(text(&house.run("twice", json!({})).await), "twice");
    house.stats().await;
    assert_eq!(house.stdio.report().late, 1);
    house.close().await;
}
