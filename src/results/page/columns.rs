//! [`Columns`]: something over time in a bounded number of columns.
//!
//! When the run goes on past the last column, neighbours are merged and every column covers twice the time. Sums over a
//! column are exact and do not depend on the order in which they came.

/// Most columns.
pub(super) const MOST_COLUMNS: usize = 240;

/// Time of a column at first, nanoseconds: a millisecond.
const FIRST_WIDTH_NS: u64 = 1_000_000;

/// What two neighbouring columns become.
pub(super) trait Merge: Default {
    /// Takes in the later one.
    fn merge(&mut self, later: Self);
}

impl Merge for u64 {
    fn merge(&mut self, later: u64) {
        *self = self.saturating_add(later);
    }
}

impl Merge for u128 {
    fn merge(&mut self, later: u128) {
        *self += later;
    }
}

impl Merge for i64 {
    fn merge(&mut self, later: i64) {
        *self += later;
    }
}

impl<T: Merge, const N: usize> Merge for [T; N]
where
    [T; N]: Default,
{
    fn merge(&mut self, later: [T; N]) {
        self.iter_mut().zip(later).for_each(|(cell, later)| cell.merge(later));
    }
}

/// Columns from the start of the run on.
#[derive(Debug, Clone)]
pub(super) struct Columns<T> {
    width_ns: u64,
    cells: Vec<T>,
}

impl<T> Default for Columns<T> {
    fn default() -> Self {
        Columns { width_ns: FIRST_WIDTH_NS, cells: Vec::new() }
    }
}

impl<T: Merge> Columns<T> {
    /// The column at a time.
    pub(super) fn at(&mut self, at_ns: u64) -> &mut T {
        self.reach(at_ns);
        let ix = (at_ns / self.width_ns) as usize;
        if self.cells.len() <= ix {
            self.cells.resize_with(ix + 1, T::default);
        }
        &mut self.cells[ix]
    }

    /// Each column between two times, with the nanoseconds it has of them; an instant counts as one.
    pub(super) fn spread(&mut self, from_ns: u64, to_ns: u64, mut add: impl FnMut(&mut T, u64)) {
        // The very last instant has none after it.
        let from_ns = from_ns.min(u64::MAX - 1);
        let to_ns = to_ns.max(from_ns + 1);
        self.reach(to_ns - 1);
        let mut at = from_ns;
        while at < to_ns {
            let end = (at / self.width_ns + 1).saturating_mul(self.width_ns).min(to_ns);
            add(self.at(at), end - at);
            at = end;
        }
    }

    /// Time of a column, nanoseconds.
    pub(super) fn width_ns(&self) -> u64 {
        self.width_ns
    }

    /// Doubles the width until it is `width_ns`, which another series has reached.
    pub(super) fn widen(&mut self, width_ns: u64) {
        while self.width_ns < width_ns {
            self.double();
        }
    }

    /// The columns up to the last one touched.
    pub(super) fn cells(&self) -> &[T] {
        &self.cells
    }

    fn reach(&mut self, at_ns: u64) {
        while at_ns / self.width_ns >= MOST_COLUMNS as u64 {
            self.double();
        }
    }

    fn double(&mut self) {
        self.width_ns *= 2;
        let mut earlier = std::mem::take(&mut self.cells).into_iter();
        while let Some(mut cell) = earlier.next() {
            if let Some(later) = earlier.next() {
                cell.merge(later);
            }
            self.cells.push(cell);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_run_keeps_its_sums_in_few_columns() {
        let mut columns: Columns<u64> = Columns::default();
        for second in 0..100_000u64 {
            *columns.at(second * 1_000_000_000) += 1;
        }
        assert!(columns.cells().len() <= MOST_COLUMNS && columns.cells().len() > MOST_COLUMNS / 4);
        assert_eq!(columns.cells().iter().sum::<u64>(), 100_000);
    }

    #[test]
    fn the_end_of_time_is_a_column_like_others() {
        for (from, to) in [(0, u64::MAX), (0, u64::MAX - 1), (u64::MAX - 1, u64::MAX), (u64::MAX, u64::MAX)] {
            let mut columns: Columns<u64> = Columns::default();
            columns.spread(from, to, |cell, ns| *cell += ns);
            *columns.at(u64::MAX) += 0;
            assert!(columns.cells().len() <= MOST_COLUMNS);
            assert_eq!(columns.cells().iter().sum::<u64>(), (to - from).max(1));
        }
    }

    #[test]
    fn a_span_is_shared_out_over_its_columns_whatever_came_before() {
        let spans = [(0, 2_500_000), (3_000_000, 3_000_000), (1_000_000, 900_000_000)];
        let filled = |order: [usize; 3]| {
            let mut columns: Columns<u64> = Columns::default();
            order.into_iter().for_each(|ix| columns.spread(spans[ix].0, spans[ix].1, |cell, ns| *cell += ns));
            (columns.width_ns(), columns.cells().to_vec())
        };
        let (width, cells) = filled([0, 1, 2]);
        assert_eq!((width, cells.clone()), filled([2, 1, 0]));
        assert_eq!(cells.iter().sum::<u64>(), 2_500_000 + 1 + 899_000_000);
        assert_eq!(cells[0], 2_500_000 + 1 + 3_000_000);
    }
}
