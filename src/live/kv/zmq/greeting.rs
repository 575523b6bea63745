//! The bytes before the first message: greeting, security mechanism NULL, READY (RFC 23 "Greeting", RFC 15 for 2.0).
//!
//! Only bytes; [`Connection`](super::connection::Connection) sends and reads them. We greet as 3.0, so that publishers
//! take the subscription as a message; a 3.1 peer speaks 3.0 with us and still answers heartbeats.

use super::ZmqError;
use super::frame::Command;

/// Signature and our major version: what can be sent before anything is known of the peer.
pub(super) const OPENING: [u8; 11] = [0xFF, 0, 0, 0, 0, 0, 0, 0, 0, 0x7F, 3];
/// Bytes of a 3.x greeting after the opening: minor, mechanism (20), as-server, filler (31).
pub(super) const REST_BYTES: usize = 53;
const MECHANISM: &[u8] = b"NULL";

/// What kind of socket we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    Sub,
    Dealer,
    Pub,
    Router,
}

/// What the opening says of the peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Generation {
    /// 2.0: socket type as a byte, then an identity.
    Two,
    /// 3.x: mechanism, then commands.
    Three,
}

/// Socket types in the order of their bytes in 2.0.
const TYPES: [&str; 11] = ["PAIR", "PUB", "SUB", "REQ", "REP", "DEALER", "ROUTER", "PULL", "PUSH", "XPUB", "XSUB"];

impl Role {
    pub fn name(self) -> &'static str {
        match self {
            Role::Sub => "SUB",
            Role::Dealer => "DEALER",
            Role::Pub => "PUB",
            Role::Router => "ROUTER",
        }
    }

    fn speaks_with(self) -> &'static [&'static str] {
        match self {
            Role::Sub => &["PUB", "XPUB"],
            Role::Dealer => &["ROUTER", "REP", "DEALER"],
            Role::Pub => &["SUB", "XSUB"],
            Role::Router => &["DEALER", "REQ", "ROUTER"],
        }
    }

    fn judge(self, found: &str) -> Result<(), ZmqError> {
        match self.speaks_with().contains(&found) {
            true => Ok(()),
            false => Err(ZmqError::SocketType { own: self.name(), found: found.chars().take(32).collect() }),
        }
    }

    /// What follows the opening towards a 2.0 peer: socket type, and an empty identity as a frame.
    pub fn hello(self) -> [u8; 3] {
        let byte = TYPES.iter().position(|name| *name == self.name()).unwrap_or_default();
        [byte as u8, 0, 0]
    }

    /// Judges the socket type of a 2.0 peer.
    pub fn judge_byte(self, byte: u8) -> Result<(), ZmqError> {
        self.judge(TYPES.get(usize::from(byte)).copied().unwrap_or("nameless"))
    }

    /// Data of our READY command.
    pub fn ready(self) -> Vec<u8> {
        let mut data = property("Socket-Type", self.name().as_bytes());
        // libzmq names it for the sockets that have one; empty lets the peer choose.
        if matches!(self, Role::Dealer | Role::Router) {
            data.extend(property("Identity", b""));
        }
        data
    }

    /// Judges what a 3.x peer says after the greeting.
    pub fn judge_ready(self, command: &Command) -> Result<(), ZmqError> {
        match command.name.as_slice() {
            b"READY" => {
                let found =
                    find(&command.data, "Socket-Type")?.ok_or(ZmqError::Malformed("READY without Socket-Type"))?;
                self.judge(&String::from_utf8_lossy(found))
            }
            b"ERROR" => Err(refused(&command.data)),
            _ => Err(ZmqError::Malformed("a command other than READY after the greeting")),
        }
    }
}

/// Judges signature and version.
pub(super) fn judge_opening(opening: &[u8]) -> Result<Generation, ZmqError> {
    let [0xFF, _, _, _, _, _, _, _, _, last, revision] = *opening else {
        return Err(ZmqError::Malformed("no ZMTP greeting: is this another protocol's port?"));
    };
    if last & 1 == 0 {
        return Err(ZmqError::Malformed("no ZMTP greeting: is this another protocol's port?"));
    }
    match revision {
        0 => Err(ZmqError::Version { revision }),
        // libzmq 3 greets with 1, and 2 was the draft after it; both frame alike.
        1 | 2 => Ok(Generation::Two),
        _ => Ok(Generation::Three),
    }
}

/// The rest of our greeting towards a 3.x peer.
pub(super) fn rest() -> [u8; REST_BYTES] {
    let mut rest = [0; REST_BYTES];
    rest[1..=MECHANISM.len()].copy_from_slice(MECHANISM);
    rest
}

/// Judges the rest of a peer's greeting. Whether the peer answers heartbeats: 3.1 and later do.
pub(super) fn judge_rest(major: u8, rest: &[u8]) -> Result<bool, ZmqError> {
    let mechanism = rest[1..21].split(|byte| *byte == 0).next().unwrap_or_default();
    if mechanism != MECHANISM {
        return Err(ZmqError::Mechanism { found: String::from_utf8_lossy(mechanism).into_owned() });
    }
    Ok(major > 3 || rest[0] >= 1)
}

/// The reason in an ERROR command.
pub(super) fn refused(data: &[u8]) -> ZmqError {
    let reason = data.get(1..).unwrap_or_default();
    ZmqError::Refused(String::from_utf8_lossy(reason).into_owned())
}

fn property(name: &str, value: &[u8]) -> Vec<u8> {
    let mut data = vec![name.len() as u8];
    data.extend(name.as_bytes());
    data.extend((value.len() as u32).to_be_bytes());
    data.extend(value);
    data
}

/// Value of a property; names are compared without case.
fn find<'a>(mut data: &'a [u8], name: &str) -> Result<Option<&'a [u8]>, ZmqError> {
    const CUT: ZmqError = ZmqError::Malformed("READY with metadata that is cut off");
    let mut found = None;
    while let Some((&name_bytes, rest)) = data.split_first() {
        let (key, rest) = rest.split_at_checked(name_bytes.into()).ok_or(CUT)?;
        let (value_bytes, rest) = rest.split_first_chunk().ok_or(CUT)?;
        let (value, rest) = rest.split_at_checked(u32::from_be_bytes(*value_bytes) as usize).ok_or(CUT)?;
        if key.eq_ignore_ascii_case(name.as_bytes()) {
            found = found.or(Some(value));
        }
        data = rest;
    }
    Ok(found)
}
