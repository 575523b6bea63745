//! [`RouteMap`]: which value of the target header reaches which decode worker.

/// Value of the target header for each D.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RouteMap {
    /// `index[d]` reaches D `d`; `None`: no index is known to.
    pub index: Vec<Option<u16>>,
}

impl RouteMap {
    /// Value for D `decode`.
    pub fn of(&self, decode: u16) -> Option<u16> {
        self.index.get(usize::from(decode)).copied().flatten()
    }
}
