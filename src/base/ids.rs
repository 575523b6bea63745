//! Identifiers. Dense indices inside, the field's names (`P0`, `D3`) outside.

use std::fmt;
use std::str::FromStr;

/// Index of a session in [`crate::trace::Trace::sessions`]: its arrival order, from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionIx(pub u32);

/// Index of a turn in [`crate::trace::Trace::turns`]: one planned request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestIx(pub u32);

impl SessionIx {
    /// The index as a subscript.
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

impl RequestIx {
    /// The index as a subscript.
    pub fn ix(self) -> usize {
        self.0 as usize
    }
}

/// What a worker does: the prefill leg, the decode leg, or both (colocated, "DP").
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Prefill worker, `P`.
    Prefill,
    /// Decode worker, `D`.
    Decode,
    /// Colocated worker, `W`: prefill and decode on one GPU.
    Colocated,
}

impl Role {
    /// The letter of a worker name.
    pub fn letter(self) -> char {
        match self {
            Role::Prefill => 'P',
            Role::Decode => 'D',
            Role::Colocated => 'W',
        }
    }
}

/// One worker: its role and its 0-based index among workers of that role. Printed as `P0`, `D3`, `W7`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerId {
    /// Role of the worker.
    pub role: Role,
    /// Index among the workers of this role.
    pub index: u16,
}

impl WorkerId {
    /// Worker `index` of `role`.
    pub fn new(role: Role, index: u16) -> Self {
        WorkerId { role, index }
    }
}

impl fmt::Display for WorkerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.role.letter(), self.index)
    }
}

impl FromStr for WorkerId {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("`{text}` is not a worker name; write P0, D3 or W1");
        let mut chars = text.chars();
        let role = match chars.next() {
            Some('P') => Role::Prefill,
            Some('D') => Role::Decode,
            Some('W') => Role::Colocated,
            _ => return Err(wrong()),
        };
        let digits = chars.as_str();
        if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
            return Err(wrong());
        }
        let index = digits.parse().map_err(|_| wrong())?;
        Ok(WorkerId { role, index })
    }
}
