//! Decimal digits of token ids: written by the million, so without the machinery of formatting.

/// Room for the longest number.
pub(in crate::live) type Digits = [u8; 10];

/// The digits of `number`, in the `room` given.
pub(in crate::live) fn decimal(number: u32, room: &mut Digits) -> &[u8] {
    let mut rest = number;
    let mut at = room.len();
    loop {
        at -= 1;
        room[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    &room[at..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_anyone_writes_them() {
        for number in [0, 7, 10, 4096, u32::MAX] {
            assert_eq!(decimal(number, &mut Digits::default()), number.to_string().as_bytes());
        }
    }
}
