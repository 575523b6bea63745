//! Session ids as indices, request ids for messages; both forgotten when nobody refers to them any more.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use crate::base::{Names, RequestIx, SessionIx};

/// Sessions known before the first look for some to forget.
const FIRST_SWEEP: usize = 1024;

#[derive(Debug)]
pub(super) struct NodeNames {
    // Looked up only, never iterated.
    by_name: HashMap<Arc<str>, SessionIx>,
    by_ix: BTreeMap<SessionIx, Arc<str>>,
    next: u32,
    sweep_at: usize,
    rids: BTreeMap<RequestIx, String>,
}

impl Names for NodeNames {
    fn session(&self, session: SessionIx) -> Option<&str> {
        self.by_ix.get(&session).map(|name| &**name)
    }

    fn request(&self, request: RequestIx) -> Option<&str> {
        self.rids.get(&request).map(String::as_str)
    }
}

impl NodeNames {
    pub fn new() -> NodeNames {
        let (by_name, by_ix, rids) = (HashMap::new(), BTreeMap::new(), BTreeMap::new());
        NodeNames { by_name, by_ix, next: 0, sweep_at: FIRST_SWEEP, rids }
    }

    /// The index of a session id, a new one if need be.
    pub fn session_ix(&mut self, name: &str) -> SessionIx {
        if let Some(known) = self.find(name) {
            return known;
        }
        while self.by_ix.contains_key(&SessionIx(self.next)) {
            self.next = self.next.wrapping_add(1);
        }
        let (ix, name) = (SessionIx(self.next), Arc::<str>::from(name));
        self.next = self.next.wrapping_add(1);
        self.by_name.insert(name.clone(), ix);
        self.by_ix.insert(ix, name);
        ix
    }

    pub fn find(&self, name: &str) -> Option<SessionIx> {
        self.by_name.get(name).copied()
    }

    /// The id of a session that somebody refers to.
    pub fn name(&self, session: SessionIx) -> String {
        self.session(session).unwrap_or_default().to_owned()
    }

    /// Many sessions have been named since the last sweep.
    pub fn wants_sweep(&self) -> bool {
        self.by_ix.len() > self.sweep_at
    }

    /// Forgets the sessions that are not `used`.
    pub fn sweep(&mut self, mut used: impl FnMut(SessionIx) -> bool) {
        let by_name = &mut self.by_name;
        self.by_ix.retain(|ix, name| {
            let keep = used(*ix);
            if !keep {
                by_name.remove(name);
            }
            keep
        });
        self.sweep_at = (2 * self.by_ix.len()).max(FIRST_SWEEP);
    }

    pub fn remember_rid(&mut self, request: RequestIx, rid: Option<String>) {
        if let Some(rid) = rid {
            self.rids.insert(request, rid);
        }
    }

    pub fn forget_rid(&mut self, request: RequestIx) {
        self.rids.remove(&request);
    }

    #[cfg(test)]
    pub fn len(&self) -> usize {
        self.by_ix.len() + self.by_name.len() + self.rids.len()
    }
}
