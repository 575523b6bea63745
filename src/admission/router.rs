//! The replayer's own verdicts: soft cap, room by its beliefs, least recently used idle sessions dropped for room.
//!
//! The beliefs lag behind the D, and so do these verdicts; that is part of what is studied.

use crate::admission::{AdmissionConfig, SlotRelease, TurnSize, soft_cap};
use crate::base::SessionIx;
use crate::sessions::SessionTable;

/// What is believed to be free on a D.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Tokens the replayer may count on; `None` while the capacity is unknown.
    pub usable_tokens: Option<u64>,
    /// Tokens of resident sessions and of requests in flight.
    pub used_tokens: u64,
}

/// Verdict on an append to a resident session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AppendVerdict {
    /// There is room.
    Admitted {
        /// Idle sessions to drop first, least recently used first.
        drop: Vec<SessionIx>,
    },
    /// No room, and not enough idle sessions.
    NoCapacity,
}

/// A session that asks to live on a D.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeedAsk {
    /// Session.
    pub session: SessionIx,
    /// D, by index.
    pub worker: u16,
    /// Turn that asks.
    pub size: TurnSize,
}

/// Verdict on a seed or reseed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SeedVerdict {
    /// The session may live there.
    Admitted {
        /// Session that gives its slot up for it.
        slot_from: Option<SessionIx>,
        /// Idle sessions to drop for room, least recently used first.
        drop: Vec<SessionIx>,
    },
    /// It may not.
    Rejected(SeedRejection),
}

/// Why a seed was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SeedRejection {
    /// No free slot under the soft cap.
    SessionCap,
    /// No room, and not enough idle sessions.
    NoCapacity,
}

impl SeedRejection {
    /// Stable label.
    pub fn as_str(self) -> &'static str {
        match self {
            SeedRejection::SessionCap => "session-cap",
            SeedRejection::NoCapacity => "no-capacity",
        }
    }
}

/// May `session` append `tokens` (prompt and answer) on `worker`?
pub fn admit_append(table: &SessionTable, session: SessionIx, worker: u16, tokens: u64, room: Room) -> AppendVerdict {
    match make_room(table, [Some(session), None], worker, tokens, room) {
        Some(drop) => AppendVerdict::Admitted { drop },
        None => AppendVerdict::NoCapacity,
    }
}

/// May the session live on the D? A session that holds a slot there keeps it, whatever the cap has become.
pub fn admit_seed(config: &AdmissionConfig, table: &SessionTable, ask: SeedAsk, room: Room) -> SeedVerdict {
    let mut slot_from = None;
    if table.slot(ask.session) != Some(ask.worker)
        && table.slots(ask.worker) >= soft_cap(config, room.usable_tokens, ask.size)
    {
        // One session gives one slot: when the cap has shrunk below the slots in use, that is not enough.
        let enough = table.slots(ask.worker) <= soft_cap(config, room.usable_tokens, ask.size);
        slot_from = match config.slot_release {
            SlotRelease::IdleLru if enough => table.longest_idle_slot(ask.worker),
            SlotRelease::IdleLru | SlotRelease::Never | SlotRelease::SessionEnd => None,
        };
        if slot_from.is_none() {
            return SeedVerdict::Rejected(SeedRejection::SessionCap);
        }
    }
    let mut room = room;
    let held_by = |session| match table.residence(session) {
        Some(at) if at.worker == ask.worker => u64::from(at.tokens),
        Some(_) | None => 0,
    };
    // Both are closed before the seed arrives.
    room.used_tokens = room.used_tokens.saturating_sub(held_by(ask.session) + slot_from.map_or(0, held_by));
    let tokens = u64::from(ask.size.input_tokens) + u64::from(ask.size.output_tokens);
    match make_room(table, [Some(ask.session), slot_from], ask.worker, tokens, room) {
        Some(drop) => SeedVerdict::Admitted { slot_from, drop },
        None => SeedVerdict::Rejected(SeedRejection::NoCapacity),
    }
}

/// Idle sessions to drop, least recently used first and none of `spare`, so that `tokens` fit; `None` when they cannot.
fn make_room(
    table: &SessionTable,
    spare: [Option<SessionIx>; 2],
    worker: u16,
    tokens: u64,
    room: Room,
) -> Option<Vec<SessionIx>> {
    let mut drop = Vec::new();
    let Some(usable) = room.usable_tokens else { return Some(drop) };
    let mut used = room.used_tokens;
    let mut idle = table.idle_residents(worker).filter(|(other, _)| !spare.contains(&Some(*other)));
    while used.saturating_add(tokens) > usable {
        let (other, held) = idle.next()?;
        used = used.saturating_sub(u64::from(held));
        drop.push(other);
    }
    Some(drop)
}
