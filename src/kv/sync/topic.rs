//! [`Followed`]: which of the topics that a subscription matches is the stream's.
//!
//! A subscription matches every topic that begins as its own (`kv@pod-1` also hears `kv@pod-10`), and several publishers
//! may be behind one address. A configured topic is the publisher's to the letter, unless it is a prefix on purpose: empty,
//! or ending in a separator (`kv@`). Of a prefix the first topic heard is followed. Invariant: what is followed is forgotten
//! by no new connection, so that nothing of one publisher is put behind what another one left.

/// Longest piece of a topic in words, bytes.
const MOST_SHOWN: usize = 200;

/// See the module.
#[derive(Debug)]
pub(super) struct Followed {
    wanted: String,
    is_prefix: bool,
    topic: Option<Vec<u8>>,
    /// Live, or named by a reply, on this connection.
    is_heard: bool,
    /// The first of others that was heard, cut.
    foreign: Option<Vec<u8>>,
}

/// Whose a message is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The followed publisher's.
    Ours,
    /// The stream's, but of another publisher than the one that was followed until now.
    Successor,
    /// Another publisher's.
    Foreign,
}

impl Followed {
    /// `wanted` as it was configured.
    pub fn new(wanted: &str) -> Followed {
        let is_prefix = wanted.chars().next_back().is_none_or(|last| !last.is_alphanumeric());
        let topic = (!is_prefix).then(|| wanted.as_bytes().to_vec());
        Followed { wanted: wanted.to_owned(), is_prefix, topic, is_heard: false, foreign: None }
    }

    /// There is another connection.
    pub fn reconnected(&mut self) {
        self.is_heard = false;
    }

    /// Whose a message of `topic` is, live or a reply; it is followed from now on if that is the stream's.
    pub fn hear(&mut self, topic: &[u8]) -> Whose {
        if self.topic.as_deref() == Some(topic) {
            self.is_heard = true;
            return Whose::Ours;
        }
        if !self.is_prefix || self.is_heard || !topic.starts_with(self.wanted.as_bytes()) {
            return Whose::Foreign;
        }
        self.is_heard = true;
        self.foreign = self.foreign.take().filter(|foreign| foreign != topic);
        let was_another = self.topic.replace(topic.to_owned()).is_some();
        if was_another { Whose::Successor } else { Whose::Ours }
    }

    /// Notes a live batch of another publisher.
    pub fn note_foreign(&mut self, topic: &[u8]) {
        self.foreign.get_or_insert_with(|| topic[..topic.len().min(MOST_SHOWN)].to_owned());
    }

    /// What is to be said of batches of another publisher that arrive, if any do.
    pub fn of_others(&self) -> Option<String> {
        self.foreign.as_ref().map(|foreign| self.another("batches", foreign))
    }

    /// That messages of another publisher arrive, and what to do if they are meant.
    pub fn another(&self, what: &str, found: &[u8]) -> String {
        let (wanted, name) = (&self.wanted, shown(found));
        if !found.starts_with(wanted.as_bytes()) {
            return format!("{what} of {name} arrive: another publisher's; `topic` is {wanted:?}");
        }
        if self.is_prefix {
            let followed = shown(self.topic.as_deref().unwrap_or_default());
            return format!(
                "{what} of {name} arrive, which begins as `topic` {wanted:?}: another publisher's, {followed} is followed; \
                 write in the file which one is meant, whole"
            );
        }
        format!(
            "{what} of {name} arrive, which begins as `topic` {wanted:?}: another publisher's; if it is meant, write it in \
             the file, whole"
        )
    }
}

/// A topic of somebody else's in words.
pub(super) fn shown(topic: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&topic[..topic.len().min(MOST_SHOWN)]))
}
