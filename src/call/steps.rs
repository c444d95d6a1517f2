//! The rare steps of a call's life, for its timeline (rule R31). When it arrived, was queued, ran and ended is known
//! without them, so a call to which nothing happens has none.

use parking_lot::Mutex;
use tokio::time::Instant;

/// Steps kept of one call; later ones are not.
pub const MOST: usize = 32;
/// Bytes of a step's detail.
const LONGEST_DETAIL: usize = 120;

/// What happened to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What {
    /// Nothing of it could be sent; it waits again (rule R5).
    HandedBack,
    /// Its link broke and it is sent once more in the same slot, being declared safe (rule R5).
    SentAgain,
    /// An operator changed its lane or the end of its wait (rule R25).
    Edited,
    /// It was over for its caller, and its server was told.
    AskedToStop,
    /// Its server told how far it was.
    Progress,
    /// Its slot, held beyond its end, came back.
    Released,
}

impl What {
    pub fn name(self) -> &'static str {
        match self {
            What::HandedBack => "handed_back",
            What::SentAgain => "sent_again",
            What::Edited => "edited",
            What::AskedToStop => "asked_to_stop",
            What::Progress => "progress",
            What::Released => "released",
        }
    }
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    pub at: Instant,
    pub what: What,
    /// May hold text from outside.
    pub detail: Option<Box<str>>,
}

/// The steps of one call, shared by the call and its record: some come after its end.
#[derive(Debug, Default)]
pub struct Steps(Mutex<Vec<Step>>);

impl Steps {
    pub(super) fn put(&self, at: Instant, what: What, detail: &str) {
        let mut steps = self.0.lock();
        if steps.len() < MOST {
            let end = detail.floor_char_boundary(LONGEST_DETAIL);
            let detail = Some(&detail[..end]).filter(|detail| !detail.is_empty()).map(Into::into);
            steps.push(Step { at, what, detail });
        }
    }

    pub fn all(&self) -> Vec<Step> {
        self.0.lock().clone()
    }

    /// The most that a call's steps may come to in memory.
    pub const MOST_BYTES: usize = MOST * (size_of::<Step>() + LONGEST_DETAIL);

    /// What they take in memory now.
    pub fn bytes(&self) -> usize {
        let steps = self.0.lock();
        size_of::<Steps>()
            + steps
                .iter()
                .map(|step| size_of::<Step>() + step.detail.as_ref().map_or(0, |detail| detail.len()))
                .sum::<usize>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r31_a_call_keeps_so_many_steps_and_no_more() {
        let steps = Steps::default();
        for _ in 0..100 {
            steps.put(Instant::now(), What::Progress, &"ü".repeat(500));
        }
        assert_eq!(steps.all().len(), MOST);
        assert!(steps.all().iter().all(|step| step.detail.as_ref().unwrap().len() <= LONGEST_DETAIL));
        assert!(steps.bytes() <= Steps::MOST_BYTES + size_of::<Steps>());
    }
}
