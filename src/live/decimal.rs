//! Decimal digits of token ids: written by the million, so without the machinery of formatting.

/// Digits that are worked out together.
const TOGETHER: u32 = 100_000_000;

/// A number in digits.
#[derive(Debug, Clone, Copy)]
pub(in crate::live) struct Decimal {
    room: [u8; Decimal::ROOM],
    length: usize,
}

/// The digits of a number.
pub(in crate::live) fn decimal(number: u32) -> Decimal {
    let mut room = [0; Decimal::ROOM];
    if number < TOGETHER {
        let digits = eight(number);
        // The first digit is the lowest byte; one is left of 0.
        let zeros = (digits.trailing_zeros() / 8).min(7);
        room[..8].copy_from_slice(&ascii(digits >> (8 * zeros)));
        return Decimal { room, length: 8 - zeros as usize };
    }
    let before = decimal(number / TOGETHER);
    room[..8].copy_from_slice(&before.room[..8]);
    room[before.length..before.length + 8].copy_from_slice(&ascii(eight(number % TOGETHER)));
    Decimal { room, length: before.length + 8 }
}

/// Eight digits of a number, a byte each: halves, quarters and single digits, all of a kind at once.
fn eight(number: u32) -> u64 {
    let number = u64::from(number);
    let halves = (number / 10_000) | ((number % 10_000) << 32);
    let hundreds = ((halves * 10_486) >> 20) & 0x7f_0000_007f;
    let pairs = ((halves - 100 * hundreds) << 16) + hundreds;
    let tens = ((pairs * 103) >> 10) & 0x000f_000f_000f_000f;
    ((pairs - 10 * tens) << 8) + tens
}

fn ascii(digits: u64) -> [u8; 8] {
    (digits | 0x3030_3030_3030_3030).to_le_bytes()
}

impl Decimal {
    /// Bytes that [`Decimal::push_to`] may need beyond the digits, for a moment.
    pub const ROOM: usize = 18;

    /// Appends the digits.
    pub fn push_to(&self, out: &mut Vec<u8>) {
        // A copy of a fixed length is a few moves; one of a varying length is a call.
        let end = out.len() + self.length;
        out.extend_from_slice(&self.room);
        out.truncate(end);
    }

    /// The digits.
    pub fn digits(&self) -> &[u8] {
        &self.room[..self.length]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_anyone_writes_them() {
        let around = (0..10).map(|power| 10u32.pow(power)).flat_map(|power| [power - 1, power, power + 1, power * 3]);
        let others = (0..u32::MAX - 65_537).step_by(65_537);
        let mut text = Vec::new();
        for number in around.chain(others).chain([u32::MAX]) {
            let wanted = number.to_string();
            assert_eq!(decimal(number).digits(), wanted.as_bytes());
            decimal(number).push_to(&mut text);
            assert!(text.ends_with(wanted.as_bytes()));
        }
    }
}
