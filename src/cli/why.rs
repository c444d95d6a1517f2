//! `forebay why`: why a call waits, or an upstream is full, in one plain sentence.

use super::out::{self, Paint, Table, clean};
use super::{CliError, Exit, Global, daemon, ps};
use forebay_tui::client::{Client, ClientError, escaped, read};
use forebay_tui::text::time;
use forebay_wire::Why;

#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// An upstream's name, or a call's id as `forebay ps` shows it
    #[arg(value_name = "UPSTREAM|ID")]
    what: String,
}

pub(super) async fn run(args: Args, global: &Global) -> Result<(), CliError> {
    let body = ask(&daemon::client(global)?, &args.what).await?;
    if global.json() {
        return out::line(&String::from_utf8_lossy(&body));
    }
    out::print(&page(&read(&body)?, global.color_on_stdout()))
}

/// An upstream's name counts first: it is what somebody chose, while nearly every short word is some call's number.
async fn ask(client: &Client, what: &str) -> Result<bytes::Bytes, CliError> {
    let unknown = |fault: &ClientError| matches!(fault, ClientError::Refused { status, .. } if status.as_u16() == 404);
    match client.get(&format!("/v1/upstreams/{}/why", escaped(what))).await {
        Err(fault) if unknown(&fault) => {}
        other => return Ok(other?),
    }
    client.get(&format!("/v1/calls/{}/why", escaped(what))).await.map_err(|fault| match &fault {
        ClientError::Refused { fault: no, .. } if no.code == "bad_id" => {
            CliError::new(Exit::NotFound, format!("`{}` is neither an upstream nor the id of a call", clean(what)))
                .hint("see `forebay status` for upstreams, `forebay ps` for ids")
        }
        _ => fault.into(),
    })
}

pub(super) fn page(why: &Why, color: bool) -> String {
    let mut text = format!("{}\n", clean(&why.sentence));
    if let Some(split) = &why.split {
        text.push_str(&format!(
            "time: admission {}, queue {}, upstream {}, delivery {}\n",
            time(split.admission_ms),
            time(split.queue_ms),
            time(split.upstream_ms),
            time(split.delivery_ms)
        ));
    }
    if !why.holders.is_empty() {
        text.push_str("\nwho holds the slots:\n");
        text.push_str(&ps::table(&why.holders).render(color));
    }
    if !why.waiting.is_empty() {
        text.push_str("\nwho waits:\n");
        let mut table = Table::new(&["CALLER", ">CALLS"]);
        for share in &why.waiting {
            table.row([share.caller.clone(), share.calls.to_string()]);
        }
        text.push_str(&table.render(color));
    }
    if let Some(hint) = &why.hint {
        text.push_str(&format!("\n{} {}\n", out::paint("try:", Paint::Dim, color), clean(hint)));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use forebay_wire::{Call, Share, Split};

    #[test]
    fn the_sentence_comes_first_and_steers_no_terminal() {
        let why = Why {
            sentence: "waits behind 3 calls of a\u{1b}[2Jb".into(),
            hint: Some("forebay cancel --caller x".into()),
            split: Some(Split { admission_ms: 1, queue_ms: 2300, upstream_ms: 0, delivery_ms: 0 }),
            holders: vec![Call { id: "k3f9q-11".into(), ..Call::default() }],
            waiting: vec![Share { caller: "x\r".into(), calls: 3 }],
        };
        let text = page(&why, false);
        assert!(text.starts_with("waits behind 3 calls of a\\x1b[2Jb\ntime: admission 1ms, queue 2.3s"), "{text}");
        for part in ["who holds the slots:\n", "k3f9q-11", "who waits:\n", "x\\r", "try: forebay cancel --caller x\n"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains('\r'));
        assert_eq!(page(&Why { sentence: "it is idle".into(), ..Why::default() }, false), "it is idle\n");
    }
}
