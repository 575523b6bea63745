//! A look at the streams of the KV index, some time into the run: a policy that reads an index which sees nothing still
//! chooses, and its figures look almost as good.

use crate::base::Time;
use crate::kv::StreamHealth;
use crate::record::LedgerKind;
use crate::replay::Replayer;
use crate::replay::machine::Note;

impl Replayer<'_> {
    /// Names each stream that is not in step; stops the run when none is and one has to be.
    pub(super) fn check_index(&mut self, now: Time) {
        let streams = self.index.as_ref().map(|index| index.streams()).unwrap_or_default();
        for stream in streams.iter().filter(|stream| !stream.synchronized) {
            self.note(now, LedgerKind::IndexNotInStep, Note::default().because(told(stream)));
        }
        if streams.is_empty() {
            self.note(now, LedgerKind::IndexNotInStep, Note::default().because("the index has no stream"));
        }
        if self.config.index.require && streams.iter().all(|stream| !stream.synchronized) {
            self.index_failure = Some(streams);
            self.stop(now);
        }
    }
}

fn told(stream: &StreamHealth) -> String {
    let why = stream.error.as_deref().unwrap_or("nothing was heard");
    format!("{} at {}: {why}", stream.name, stream.endpoint)
}
