//! `forebay callers`: who calls, what they hold, and their limits.

use super::out::{self, Table};
use super::{CliError, Global, daemon};
use forebay_tui::client::read;
use forebay_tui::text::time;
use forebay_wire::{Caller, Lane};

#[derive(Debug, clap::Args)]
pub(super) struct Args {}

pub(super) async fn run(_args: Args, global: &Global) -> Result<(), CliError> {
    let callers = daemon::pages(&daemon::client(global)?, "/v1/callers?limit=1000", "callers", global).await?;
    if global.json() {
        return out::print(&daemon::array(&callers));
    }
    if callers.is_empty() {
        out::note("no callers", global);
        return Ok(());
    }
    let callers: Vec<Caller> = callers.iter().map(|raw| read(raw.get().as_bytes())).collect::<Result<_, _>>()?;
    out::print(&table(&callers).render(global.color_on_stdout()))
}

fn table(callers: &[Caller]) -> Table {
    let mut table = Table::new(&[
        "CALLER",
        "IDENTITY",
        ">RUN",
        ">WAIT",
        ">DONE",
        ">SHED",
        ">CANCELLED",
        ">LAST",
        "LIMITS",
        "CLIENT (A CLAIM)",
    ]);
    for caller in callers {
        table.row([
            caller.name.clone(),
            caller.identity.clone(),
            caller.running.to_string(),
            caller.queued.to_string(),
            caller.completed.to_string(),
            caller.shed.to_string(),
            caller.cancelled.to_string(),
            caller.last_ms.map_or("-".into(), time),
            limits(caller),
            caller.client.clone().unwrap_or_else(|| "-".into()),
        ]);
    }
    table
}

fn limits(caller: &Caller) -> String {
    let mut limits = Vec::new();
    if let Some(most) = caller.max_concurrent {
        limits.push(format!("max_concurrent {most}"));
    }
    if let Some(most) = caller.max_queued {
        limits.push(format!("max_queued {most}"));
    }
    if let Some(rate) = caller.rate_per_second {
        limits.push(format!("{rate} a second"));
    }
    if caller.weight != 1 {
        limits.push(format!("weight {}", caller.weight));
    }
    match caller.max_priority {
        Some(Lane::Normal) => limits.push("at most normal".into()),
        Some(Lane::Low) => limits.push("low only".into()),
        Some(Lane::High | Lane::Unknown) | None => {}
    }
    if limits.is_empty() { "-".into() } else { limits.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_callers_names_steer_no_terminal_and_its_limits_are_told() {
        let caller = Caller {
            name: "ci\u{202e}bot".into(),
            identity: "key".into(),
            client: Some("evil\u{1b}]0;x\u{7}".into()),
            weight: 2,
            max_queued: Some(12),
            max_priority: Some(Lane::Low),
            rate_per_second: Some(0.5),
            ..Caller::default()
        };
        let text = table(&[caller]).render(false);
        assert!(text.contains("max_queued 12, 0.5 a second, weight 2, low only"), "{text}");
        assert!(text.contains("ci\\u{202e}bot") && !text.contains('\u{1b}') && !text.contains('\u{7}'), "{text}");
    }
}
