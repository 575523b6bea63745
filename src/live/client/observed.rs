//! [`Observed`]: what a client notices of its target beside the answers themselves: prompts that the server counted
//! otherwise than they were sent, and workers that served and that nobody listed.
//!
//! Counts and nothing else: what follows for a run is said by its summary. Bounded, whatever names a target makes up.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::live::Dialect;
use crate::live::client::line::locked;
use crate::live::client::tally::Counting;
use crate::record::{AnswerFacts, CacheFacts, PromptFacts};
use crate::scenario::OpenAiApi;

/// Names of workers kept; what more there are is counted under [`OTHERS`].
const MOST_NAMES: usize = 64;
const OTHERS: &str = "others";

/// Tokens that a chat prompt may differ by, and the divisor of its length that it may differ by beside them: the server's
/// template adds tokens, and its vocabulary may split a word.
const CHAT_SLACK: u32 = 64;
const CHAT_PART: u32 = 20;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Observed {
    seen: Mutex<Seen>,
}

/// What was noticed so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Seen {
    /// Prompts by the server's count.
    pub prompts: PromptFacts,
    /// Their caches by the server's word.
    pub caches: CacheFacts,
    /// Their answers by the server's count.
    pub answers: AnswerFacts,
    /// Requests served by workers that are none of the run's, by what the target calls them.
    pub unlisted_workers: BTreeMap<String, u64>,
}

impl Observed {
    /// Takes in a served prompt of so many tokens: its length and what of it was cached by the server's count.
    pub fn prompt(&self, dialect: Dialect, sent: u32, counted: Option<u32>, cached: Option<u32>) {
        let Seen { prompts, caches, .. } = &mut *locked(&self.seen);
        let slack = slack(dialect, sent);
        match counted {
            None => prompts.untold += 1,
            Some(counted) => {
                prompts.compared += 1;
                if sent.abs_diff(counted) > slack {
                    prompts.differing += 1;
                    prompts.sent_tokens += u64::from(sent);
                    prompts.counted_tokens += u64::from(counted);
                }
            }
        }
        match cached {
            None => caches.untold += 1,
            Some(cached) => {
                caches.told += 1;
                if cached.saturating_sub(sent) > slack {
                    caches.beyond += 1;
                    caches.prompt_tokens += u64::from(sent);
                    caches.cached_tokens += u64::from(cached);
                }
            }
        }
    }

    /// Takes in a complete answer of so many tokens, and what the server's own count of them is worth.
    pub fn answer(&self, tokens: u32, counting: Counting) {
        let Seen { answers, .. } = &mut *locked(&self.seen);
        answers.told += u64::from(counting != Counting::Untold);
        answers.led += u64::from(counting == Counting::Led);
        if counting == Counting::TooFew {
            answers.uncounted += 1;
            answers.chunks += u64::from(tokens);
        }
    }

    /// Takes in a request served by a worker that nobody listed; whether it is the first by that name.
    pub fn stranger(&self, name: &str) -> bool {
        let strangers = &mut locked(&self.seen).unlisted_workers;
        let name = if strangers.len() < MOST_NAMES || strangers.contains_key(name) { name } else { OTHERS };
        let count = strangers.entry(name.to_owned()).or_default();
        *count += 1;
        *count == 1
    }

    /// Everything so far.
    pub fn now(&self) -> Seen {
        locked(&self.seen).clone()
    }
}

/// Tokens by which the server's count may differ: token arrays are what they are, words are not.
fn slack(dialect: Dialect, sent: u32) -> u32 {
    match dialect {
        Dialect::Generate | Dialect::OpenAi(OpenAiApi::Completions) => 0,
        Dialect::OpenAi(OpenAiApi::Chat) => CHAT_SLACK + sent / CHAT_PART,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_arrays_must_agree_and_words_nearly() {
        let differs = |dialect, sent, counted| {
            let observed = Observed::default();
            observed.prompt(dialect, sent, Some(counted), None);
            let PromptFacts { compared, differing, sent_tokens, counted_tokens, untold } = observed.now().prompts;
            assert_eq!((compared, untold), (1, 0));
            let figures = if differing == 1 { (u64::from(sent), u64::from(counted)) } else { (0, 0) };
            assert_eq!((sent_tokens, counted_tokens), figures);
            differing == 1
        };
        for exact in [Dialect::Generate, Dialect::OpenAi(OpenAiApi::Completions)] {
            assert_eq!([999, 1000, 1001].map(|counted| differs(exact, 1000, counted)), [true, false, true]);
        }
        let chat = Dialect::OpenAi(OpenAiApi::Chat);
        let found = [885, 886, 1000, 1114, 1115].map(|counted| differs(chat, 1000, counted));
        assert_eq!(found, [true, false, false, false, true]);
    }

    #[test]
    fn what_nobody_told_is_counted_apart_and_no_more_is_cached_than_was_sent() {
        let observed = Observed::default();
        let (exact, chat) = (Dialect::Generate, Dialect::OpenAi(OpenAiApi::Chat));
        for (dialect, cached) in [(exact, None), (exact, Some(0)), (exact, Some(1000)), (chat, Some(1114))] {
            observed.prompt(dialect, 1000, None, cached);
        }
        assert_eq!(observed.now().prompts, PromptFacts { untold: 4, ..PromptFacts::default() });
        assert_eq!(observed.now().caches, CacheFacts { told: 3, untold: 1, ..CacheFacts::default() });
        observed.prompt(exact, 1000, Some(1000), Some(1001));
        observed.prompt(chat, 1000, Some(1000), Some(1500));
        let CacheFacts { told, beyond, prompt_tokens, cached_tokens, .. } = observed.now().caches;
        assert_eq!((told, beyond, prompt_tokens, cached_tokens), (5, 2, 2000, 2501));
    }

    #[test]
    fn strangers_are_counted_by_name_and_names_are_bounded() {
        let observed = Observed::default();
        assert!(observed.stranger("a") && !observed.stranger("a") && observed.stranger("b"));
        for nth in 0..1000 {
            observed.stranger(&format!("made-up-{nth}"));
        }
        let strangers = observed.now().unlisted_workers;
        assert_eq!((strangers["a"], strangers["b"], strangers.len()), (2, 1, MOST_NAMES + 1));
        assert_eq!(strangers.values().sum::<u64>(), 1003);
    }
}
