//! [`PrefixLookup`]: what a policy asks of a prefix index, whoever keeps it.
//!
//! The answer is one [`WorkerHit`] for each stream: a worker with several data-parallel ranks has one for each. Whether a
//! hit may be believed is the asker's to judge; a stream that is not in step says so and promises nothing.

use std::fmt;

use crate::base::WorkerId;
use crate::kv::{BlockPath, BlockTree};

/// The read side of an index for prompts of a trace.
pub trait PrefixLookup: fmt::Debug {
    /// Appends what each stream holds of the prompt's full blocks, from the first on. `hits` is empty before.
    fn lookup(&mut self, tree: &BlockTree, prompt: BlockPath, hits: &mut Vec<WorkerHit>);

    /// Every stream, in the order of their names.
    fn streams(&self) -> Vec<StreamHealth>;
}

/// What one stream says of a prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerHit {
    /// Worker that publishes it.
    pub worker: WorkerId,
    /// Data-parallel rank of the stream.
    pub dp_rank: u32,
    /// Data-parallel ranks of the worker; 0 counts as 1.
    pub dp_size: u32,
    /// Prompt tokens in blocks that lie on the device, as far as every block before lies somewhere.
    pub device_tokens: u32,
    /// Prompt tokens in blocks that lie on the host only, as far as every block before lies somewhere.
    pub host_only_tokens: u32,
    /// Tokens in a block of the stream.
    pub block_size: u32,
    /// The stream is in step with its publisher.
    pub synchronized: bool,
    /// Whose stream it is.
    pub origin: StreamOrigin,
}

/// How a stream was found, and which process it is taken to be of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamOrigin {
    /// Listed by hand: nobody says which process is at its end.
    Static,
    /// Found through a registry of workers, or the emulated cluster's own.
    Discovered(Process),
}

/// One life of a worker's process, as far as it is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Process {
    /// Differs from one life to the next: a counter, or a hash of a name.
    pub incarnation: Option<u64>,
    /// When it registered, milliseconds since 1970.
    pub register_ts_ms: Option<u64>,
}

/// One stream, for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamHealth {
    /// Name, such as `P0` or `P0/1` for rank 1.
    pub name: String,
    /// Address it is read from; empty in virtual time.
    pub endpoint: String,
    /// In step with its publisher.
    pub synchronized: bool,
    /// What is wrong, or was last.
    pub error: Option<String>,
}

impl Process {
    /// Nothing says that these are two: by the incarnation where both have one, else by the time of registration.
    pub fn may_be(self, other: Process) -> bool {
        match (self.incarnation.zip(other.incarnation), self.register_ts_ms.zip(other.register_ts_ms)) {
            (Some((mine, theirs)), _) | (None, Some((mine, theirs))) => mine == theirs,
            (None, None) => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_are_told_apart_by_the_best_mark_both_have() {
        let process = |incarnation, register_ts_ms| Process { incarnation, register_ts_ms };
        assert!(process(Some(1), Some(7)).may_be(process(Some(1), Some(8))), "the incarnation beats the time");
        assert!(!process(Some(1), Some(7)).may_be(process(Some(2), Some(7))));
        assert!(!process(None, Some(7)).may_be(process(Some(2), Some(8))));
        assert!(process(None, Some(7)).may_be(process(Some(2), Some(7))));
        assert!(process(None, None).may_be(process(Some(2), Some(7))), "nothing known, nothing against it");
    }
}
