//! `hash_ids` as text into numbers, at the speed of comparing memory.
//!
//! A turn repeats nearly the whole list of the turn before, digit for digit: the common text is skipped and its numbers
//! are kept. Invariant: [`IdText::ids`] always holds the numbers of the last text taken without error.

/// The last id list of one session, as text and as numbers.
#[derive(Debug, Default)]
pub(super) struct IdText<'a> {
    text: &'a str,
    ids: Vec<u64>,
}

impl<'a> IdText<'a> {
    /// Numbers of `text`, the inside of a JSON list.
    ///
    /// # Errors
    /// The piece that is not a whole number below 2^64.
    pub(super) fn take(&mut self, text: &'a str) -> Result<&[u64], &'a str> {
        let same = common(self.text.as_bytes(), text.as_bytes());
        let cut = memchr::memrchr(b',', &text.as_bytes()[..same]).map_or(0, |comma| comma + 1);
        let kept = match cut {
            0 => 0,
            _ => self.ids.len() - 1 - commas(&self.text.as_bytes()[cut..]),
        };
        self.ids.truncate(kept);
        match parse(&text.as_bytes()[cut..], cut > 0, &mut self.ids) {
            Ok(()) => {
                self.text = text;
                Ok(&self.ids)
            }
            Err(at) => {
                *self = IdText::default();
                let wrong = &text[cut + at..];
                Err(wrong.split(',').next().unwrap_or(wrong).trim())
            }
        }
    }
}

/// How many ids a list text holds, if it is well formed.
pub(super) fn count(text: &str) -> usize {
    if text.bytes().all(|byte| byte.is_ascii_whitespace()) { 0 } else { commas(text.as_bytes()) + 1 }
}

fn commas(text: &[u8]) -> usize {
    memchr::memchr_iter(b',', text).count()
}

/// Length of the common prefix.
fn common(a: &[u8], b: &[u8]) -> usize {
    const STRIDE: usize = 64;
    let strides = a.chunks_exact(STRIDE).zip(b.chunks_exact(STRIDE)).take_while(|(x, y)| x == y).count();
    let done = strides * STRIDE;
    done + a[done..].iter().zip(&b[done..]).take_while(|(x, y)| x == y).count()
}

/// Appends the numbers of `text`; on failure gives the place of the wrong piece.
fn parse(text: &[u8], after_comma: bool, ids: &mut Vec<u64>) -> Result<(), usize> {
    let mut at = space(text, 0);
    if at == text.len() && !after_comma {
        return Ok(());
    }
    loop {
        let start = at;
        let mut value = 0u64;
        while let Some(digit) = text.get(at).filter(|byte| byte.is_ascii_digit()) {
            let next = value.checked_mul(10).and_then(|ten| ten.checked_add(u64::from(digit - b'0')));
            value = next.ok_or(start)?;
            at += 1;
        }
        if at == start || (text[start] == b'0' && at - start > 1) {
            return Err(start);
        }
        ids.push(value);
        at = space(text, at);
        match text.get(at) {
            None => return Ok(()),
            Some(b',') => at = space(text, at + 1),
            Some(_) => return Err(start),
        }
    }
}

fn space(text: &[u8], from: usize) -> usize {
    from + text[from..].iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_whole_64_bit_range_is_exact() {
        let mut ids = IdText::default();
        assert_eq!(ids.take("9007199254740993, 18446744073709551615"), Ok(&[9_007_199_254_740_993, u64::MAX][..]));
        assert_eq!(ids.take("9007199254740993,18446744073709551616"), Err("18446744073709551616"));
        for wrong in ["-1", "1.0", "\"a\"", "1,,2", "1,", ",1", "01", "1 2", "null"] {
            assert!(ids.take(wrong).is_err(), "{wrong}");
        }
        assert_eq!((ids.take(" "), count(" "), count("1, 2")), (Ok(&[][..]), 0, 2));
    }

    proptest! {
        #[test]
        fn skipping_the_common_text_changes_nothing(
            lists in prop::collection::vec((0usize..40, prop::collection::vec(0u64..2000, 0..40), any::<bool>()), 1..12),
        ) {
            let mut previous: Vec<u64> = Vec::new();
            let mut texts = Vec::new();
            for (keep, more, spaced) in lists {
                previous.truncate(keep);
                previous.extend(more);
                let numbers: Vec<String> = previous.iter().map(u64::to_string).collect();
                texts.push((numbers.join(if spaced { ", " } else { "," }), previous.clone()));
            }
            let mut ids = IdText::default();
            for (text, expected) in &texts {
                prop_assert_eq!(ids.take(text), Ok(&expected[..]));
                prop_assert_eq!(count(text), expected.len());
            }
        }
    }
}
