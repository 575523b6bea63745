//! Lanes: spans that overlap in time go side by side, so that none lies wrongly in another.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// The lane of each span `(start, end)`, from 0: the lowest that is free at its start. A span that ends when another starts
/// leaves its lane to it.
pub(super) fn lanes(spans: &[(u64, u64)]) -> Vec<usize> {
    let mut order: Vec<usize> = (0..spans.len()).collect();
    order.sort_by_key(|ix| spans[*ix]);
    let mut lane_of = vec![0; spans.len()];
    let mut busy: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    let mut free: BinaryHeap<Reverse<usize>> = BinaryHeap::new();
    let mut used = 0;
    for ix in order {
        let (start, end) = spans[ix];
        while let Some(Reverse((_, lane))) = busy.peek().copied().filter(|Reverse((end, _))| *end <= start) {
            busy.pop();
            free.push(Reverse(lane));
        }
        let lane = free.pop().map_or_else(
            || {
                used += 1;
                used - 1
            },
            |Reverse(lane)| lane,
        );
        lane_of[ix] = lane;
        busy.push(Reverse((end, lane)));
    }
    lane_of
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::lanes;

    #[test]
    fn the_lowest_free_lane_is_taken() {
        assert_eq!(lanes(&[(0, 5), (1, 2), (2, 9), (5, 6)]), [0, 1, 1, 0]);
    }

    proptest! {
        #[test]
        fn no_two_of_a_lane_overlap(spans in prop::collection::vec((0u64..50, 0u64..20), 0..60)) {
            let spans: Vec<(u64, u64)> = spans.into_iter().map(|(start, length)| (start, start + length)).collect();
            let lane_of = lanes(&spans);
            for (a, (start, end)) in spans.iter().enumerate() {
                for b in (0..spans.len()).filter(|b| *b != a && lane_of[*b] == lane_of[a]) {
                    prop_assert!(spans[b].1 <= *start || spans[b].0 >= *end);
                }
            }
        }
    }
}
