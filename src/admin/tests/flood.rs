//! Ten thousand queued calls cancelled at once, while others flow and single cancels are answered.

use super::*;
use crate::outcome::{CancelledBy, Outcome, Phase};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};

const MANY: usize = 10_000;

#[tokio::test]
async fn ten_thousand_calls_cancelled_by_selector_end_once_each_while_others_flow_and_cancels_are_answered() {
    let house = House::with_places(&["db", "web"], 20_000).await;
    house.servers["web"].answer_instantly(true);
    let anns = house.backlog("db", MANY + 2).await;
    let eves: Vec<_> = (0..200).map(|_| house.call("db", "eve", "query")).collect();
    until(|| eves.iter().all(|call| call.ticket.state() == State::Queued)).await;

    let (over, flowed, singly) = (AtomicBool::new(false), AtomicUsize::new(0), AtomicUsize::new(0));
    let flow = async {
        while !over.load(SeqCst) {
            let calls: Vec<_> = (0..8).map(|_| house.call("web", "bob", "query")).collect();
            for call in calls {
                let ending = call.ticket.ended().await;
                assert_eq!(ending.outcome, Outcome::Completed { is_error: false });
                flowed.fetch_add(1, SeqCst);
            }
        }
    };
    let one_by_one = async {
        for call in &eves {
            if over.load(SeqCst) {
                break;
            }
            let answer = house.client.cancel(&call.id.to_string()).await.unwrap();
            assert_eq!(answer.answer, wire::Cancelled::CancelledQueued);
            singly.fetch_add(1, SeqCst);
        }
    };
    let all_at_once = async {
        // Both of the others are under way before it begins.
        until(|| flowed.load(SeqCst) > 0 && singly.load(SeqCst) > 0).await;
        let before = (flowed.load(SeqCst), singly.load(SeqCst));
        let body = Bytes::from_static(br#"{"caller": "ann", "state": "queued"}"#);
        let answer = house.client.send(http::Method::POST, "/v1/cancel", body).await.unwrap();
        let during = (flowed.load(SeqCst) - before.0, singly.load(SeqCst) - before.1);
        over.store(true, SeqCst);
        (read::<wire::CancelledMany>(&answer).unwrap(), during)
    };
    let ((), (), (answer, during)) = tokio::join!(flow, one_by_one, all_at_once);
    assert!(during.0 > 0, "calls flow while ten thousand are cancelled");
    assert!(during.1 > 0, "single cancels are answered while ten thousand are cancelled");
    let many = MANY as u64;
    assert_eq!((answer.matched, answer.cancelled_queued), (many, many));
    assert_eq!((answer.cancelled_running, answer.already_finished), (0, 0));

    let by_operator = Outcome::Cancelled { by: CancelledBy::Operator, phase: Phase::Queued };
    let queued: Vec<_> = anns.iter().filter(|call| house.servers["db"].began(call.id) == 0).collect();
    assert_eq!(queued.len(), MANY, "none of them reached the server");
    assert!(queued.iter().all(|call| call.ticket.ending().unwrap().outcome == by_operator));
    let flowed = flowed.load(SeqCst) as u64;
    let singly = singly.load(SeqCst) as u64;
    let left = 2 + eves.len() as u64 - singly;
    let totals = house.client.state().await.unwrap().totals;
    assert_eq!(totals.offered, many + 2 + eves.len() as u64 + flowed);
    assert_eq!((totals.finished, totals.unaccounted), (many + singly + flowed, 0));
    assert_eq!((totals.submitted, totals.running + totals.queued), (0, left));
    let of = |outcome: &str| totals.outcomes.iter().filter(|o| o.outcome == outcome).map(|o| o.calls).sum::<u64>();
    assert_eq!((of("cancelled"), of("completed")), (many + singly, flowed));
    until(|| u64::from(house.dispatcher.upstream("db").unwrap().status().queued) == left - 2).await;
    house.close().await;
}
