//! How a child is greeted: eras, silence, slowness, deaths.

use super::rig::*;
use crate::call::Answer;

#[tokio::test]
async fn both_eras_are_found_and_an_answer_comes_back_byte_for_byte() {
    for (args, era) in [
        (&["--era", "modern"][..], Era::Modern),
        (&["--era", "legacy"], Era::Legacy),
        (&["--era", "both"], Era::Modern),
        (&["--era", "legacy", "--noise-at-start"], Era::Legacy),
    ] {
        let house = Setup::new(args).up().await;
        let info = house.stdio.server().unwrap();
        assert_eq!(info.era, era);
        assert!(info.capabilities.contains("listChanged") && info.server_info.contains("forebay-test-upstream"));
        assert_eq!(info.instructions.as_deref(), Some("\"be kind\""));
        // Written over several lines, as an HTTP body may be: a line of stdio it must be all the same.
        let arguments = "{\"id\":9223372036854775807,\"f\":1.10,\"z\":-0.0,\"s\":\"a\\nb\"}";
        let call = house.call_raw(format!(
            "{{\r\n \"jsonrpc\":\"2.0\",\n\"id\":\"x\",\"method\":\"tools/call\",\n\"params\":{{\"name\":\"echo\",\n\"arguments\":{arguments}}}}}\n"
        ));
        house.begin(&call);
        let Answer::Upstream(bytes) = ended(&call).await.answer.clone() else { panic!() };
        let answer = std::str::from_utf8(&bytes).unwrap();
        assert!(answer.contains(&format!("\"structuredContent\":{arguments}")), "{answer}");
        assert!(answer.contains("\"id\":\"x\""), "{answer}");
        house.close().await;
    }
}

#[tokio::test]
async fn a_server_silent_to_discover_is_greeted_the_old_way() {
    let house = Setup::new(&["--era", "legacy", "--silent-discover"])
        .config(|config| config.connect_timeout = Duration::from_millis(1500))
        .up()
        .await;
    assert_eq!(house.stdio.server().unwrap().era, Era::Legacy);
    assert_eq!(house.stats().await["initialized"], true);
    house.close().await;
}

#[tokio::test]
async fn a_modern_server_that_is_slow_to_start_is_not_taken_for_an_old_one() {
    let house = Setup::new(&["--era", "modern", "--slow-init", "600"])
        .config(|config| config.connect_timeout = Duration::from_millis(1500))
        .up()
        .await;
    assert_eq!(house.stdio.server().unwrap().era, Era::Modern);
    house.close().await;
}

#[tokio::test]
async fn a_server_that_dies_of_the_probe_is_greeted_the_old_way_next_time() {
    let house = Setup::new(&["--era", "legacy", "--dies-of-discover"]).build();
    house.stdio.open();
    assert!(matches!(house.event().await, LinkEvent::Down { fault, .. } if &*fault == "exit code 1"));
    assert_eq!(house.event().await, LinkEvent::Up { processes: 1 });
    assert_eq!(house.stdio.server().unwrap().era, Era::Legacy);
    house.close().await;
}

#[tokio::test]
async fn a_handshake_that_is_not_answered_ends_in_its_own_time_and_is_tried_again() {
    let folder = tempfile::tempdir().unwrap();
    let starts = folder.path().join("starts");
    let house = Setup::new(&["--silent-init", "--starts", starts.to_str().unwrap()])
        .config(|config| config.connect_timeout = Duration::from_millis(300))
        .build();
    house.stdio.open();
    for _ in 0..2 {
        match house.event().await {
            LinkEvent::Down { fault, retry_in } => {
                assert!(fault.contains("handshake within 300ms"), "{fault}");
                assert!(retry_in <= Duration::from_secs(1));
            }
            other => panic!("{other:?}"),
        }
    }
    assert!(house.stdio.server().is_none());
    assert!(matches!(house.stdio.ask("tools/list", None, PATIENCE).await, Err(AskError::Down(_))));
    let (_, run) = house.start("echo", json!({}));
    house.freed(run, "no room").await;
    house.close().await;
    let started = std::fs::read_to_string(&starts).unwrap();
    assert!(started.lines().count() >= 2);
    assert!(started.lines().all(|pid| process_state(pid.parse().unwrap()).is_none()));
}
