//! Token ids, nearly all of what an event is made of, read as fast as they come.
//!
//! Knows the two widths that ids of a vocabulary have, and leaves every other value to [`super::read`].

use std::hint::select_unpredictable;

/// Token ids of 16 or 32 bits that are surely whole within [`WINDOW`] bytes, of which each takes 3 or 5.
const IN_WINDOW: usize = 12;
/// Bytes looked at together: a bit of a word each.
const WINDOW: usize = 64;
/// Bytes behind the place of a token that are loaded with it.
const WITH_TOKEN: usize = 8;

/// Takes token ids of 16 and 32 bits, which follow each other without a pattern, up to the first other value; says how many.
///
/// Where a token begins depends on the lengths of all before it. To find that by a load and a branch each is slow: the loads
/// wait for each other, and the branches cannot be predicted. So the lengths at all places of a window are made one bit each
/// beforehand, and the walk over them is a shift and a choice a token.
#[inline]
pub(super) fn common_tokens(rest: &mut &[u8], slots: &mut [u32]) -> usize {
    let mut taken = 0;
    while let Some(window) = rest.first_chunk::<{ WINDOW + WITH_TOKEN }>() {
        let (mut narrow, mut place, before) = (low_bits(window), 0, taken);
        for slot in slots[taken..].iter_mut().take(IN_WINDOW) {
            // The remainder changes nothing, but says that no place is beyond the window.
            let bytes = window[place % WINDOW..].first_chunk::<WITH_TOKEN>();
            let Some(word) = bytes.map(|bytes| u64::from_le_bytes(*bytes)) else { break };
            if !matches!(word as u8, U16 | U32) {
                break;
            }
            let (is_narrow, token) = (narrow & 1 != 0, ((word >> 8) as u32).swap_bytes());
            *slot = select_unpredictable(is_narrow, token >> 16, token);
            narrow = select_unpredictable(is_narrow, narrow >> 3, narrow >> 5);
            place += select_unpredictable(is_narrow, 3, 5);
            taken += 1;
        }
        *rest = &rest[place..];
        if taken < before + IN_WINDOW {
            break;
        }
    }
    taken
}

/// The lowest bit of each byte of the window: at a marker, 1 for 16 bits and 0 for 32.
#[inline]
fn low_bits(window: &[u8; WINDOW + WITH_TOKEN]) -> u64 {
    let words = window.as_chunks::<8>().0.iter().take(WINDOW / 8);
    let bits = words
        .map(|bytes| (u64::from_le_bytes(*bytes) & 0x0101_0101_0101_0101).wrapping_mul(0x0102_0408_1020_4080) >> 56);
    bits.enumerate().fold(0, |all, (at, bits)| all | bits << (8 * at))
}

/// Marker of a number of 16 bits.
const U16: u8 = 0xcd;
/// Marker of a number of 32 bits.
const U32: u8 = 0xce;

/// The next token id, if it is of 16 or 32 bits and not at the very end.
#[inline]
pub(super) fn common_token(rest: &mut &[u8]) -> Option<u32> {
    let [marker @ (U16 | U32), a, b, c, d, ..] = *rest else { return None };
    let wide = usize::from(*marker == U32);
    *rest = &rest[3 + 2 * wide..];
    Some(u32::from_be_bytes([*a, *b, *c, *d]) >> (16 - 16 * wide))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_both_widths_are_taken_up_to_the_first_other_value() {
        let ids: Vec<u32> =
            (0..200u32).map(|id| if id * id % 7 < 3 { 256 + id } else { 65_536 + id * 12_345 }).collect();
        let mut bytes = Vec::new();
        for id in &ids {
            match u16::try_from(*id) {
                Ok(id) => bytes.extend([&[U16][..], &id.to_be_bytes()].concat()),
                Err(_) => bytes.extend([&[U32][..], &id.to_be_bytes()].concat()),
            }
        }
        let end = bytes.len();
        // A short number, then whatever follows a list: markers among it are no ids.
        bytes.extend([&[7][..], &[U16; 200]].concat());
        let (mut rest, mut slots) = (bytes.as_slice(), vec![0; ids.len() + 50]);
        assert_eq!(common_tokens(&mut rest, &mut slots), ids.len());
        assert_eq!((&slots[..ids.len()], rest.len()), (&ids[..], bytes.len() - end));
        // As many as there is room for, and none that might go beyond the end.
        for room in [0, 1, 11, 12, 13, 25] {
            let (mut rest, mut slots) = (bytes.as_slice(), vec![0; room]);
            assert_eq!(common_tokens(&mut rest, &mut slots), room);
            assert_eq!(slots, ids[..room]);
        }
        let mut rest = &bytes[..WINDOW + WITH_TOKEN - 1];
        assert_eq!((common_tokens(&mut rest, &mut [0; 50]), rest.len()), (0, WINDOW + WITH_TOKEN - 1));
        let (mut one, mut short) = (bytes.as_slice(), &bytes[..2]);
        assert_eq!((common_token(&mut one), common_token(&mut short)), (Some(ids[0]), None));
    }
}
