//! What was changed live stays over what the file says, until the file says something else (rule R24).

use super::Limits;

impl Limits {
    /// The limits in force after the file's have changed from `before` to `after`: where the file's own value is what
    /// it was, what is in force stays; where it changed, the file's counts.
    #[must_use]
    pub fn rebased(&self, before: &Limits, after: &Limits) -> Limits {
        macro_rules! each {
            ($($key:ident),*) => {
                // Named in full, so that a new limit is not forgotten here.
                Limits { $($key: if after.$key == before.$key { self.$key } else { after.$key }),* }
            };
        }
        each!(
            max_concurrent,
            queue_size,
            queue_bytes,
            queue_timeout,
            call_timeout,
            cancel_grace,
            after_cancel,
            on_full,
            fairness,
            max_queued,
            sojourn,
            count_everything
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Concurrency;

    #[test]
    fn r24_a_live_change_survives_a_reload_unless_the_files_own_value_changed() {
        let file = Limits::built_in(true);
        let live = Limits { max_concurrent: Concurrency::Fixed(1), queue_size: 7, ..file.clone() };
        assert_eq!(live.rebased(&file, &file), live, "the same file again changes nothing");
        let edited = Limits { queue_size: 50, max_queued: Some(3), ..file.clone() };
        let now = live.rebased(&file, &edited);
        assert_eq!((now.max_concurrent, now.queue_size, now.max_queued), (Concurrency::Fixed(1), 50, Some(3)));
        // What was saved to the file is no override any more, whatever the file says next.
        let saved = live.rebased(&edited, &live);
        assert_eq!(saved, live);
        assert_eq!(saved.rebased(&live, &file), file);
    }
}
