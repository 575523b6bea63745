//! [`InternalToken`]: what a caller of the internal endpoints must bring. It is never shown, and how long a comparison
//! takes does not tell how much of a guess is right.

use std::fmt;

use axum::http::HeaderMap;
use subtle::ConstantTimeEq;

use crate::live::api::INTERNAL_TOKEN_HEADER;

/// Longest token, bytes.
const MOST_BYTES: usize = 512;

/// See the module.
#[derive(Clone)]
pub struct InternalToken([u8; MOST_BYTES], u64);

impl InternalToken {
    /// A token. Errors: empty, longer than 512 bytes, or with characters that a header cannot carry.
    pub fn new(token: &str) -> Result<InternalToken, &'static str> {
        if token.is_empty() || !token.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(
                "it is empty, or has blanks, line breaks or other characters that are not ASCII letters, digits or signs",
            );
        }
        let (bytes, length) = padded(token.as_bytes()).ok_or("it is longer than 512 bytes")?;
        Ok(InternalToken(bytes, length))
    }

    /// Whether a request brings it, exactly once.
    pub(super) fn opens(&self, headers: &HeaderMap) -> bool {
        let mut brought = headers.get_all(INTERNAL_TOKEN_HEADER).iter();
        let (Some(value), None) = (brought.next(), brought.next()) else { return false };
        let Some((bytes, length)) = padded(value.as_bytes()) else { return false };
        (self.0.ct_eq(&bytes) & self.1.ct_eq(&length)).into()
    }
}

impl fmt::Debug for InternalToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InternalToken(…)")
    }
}

fn padded(token: &[u8]) -> Option<([u8; MOST_BYTES], u64)> {
    let mut bytes = [0; MOST_BYTES];
    bytes.get_mut(..token.len())?.copy_from_slice(token);
    Some((bytes, token.len() as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_token_itself_opens_and_it_is_never_shown() {
        let token = InternalToken::new("s3cret").unwrap();
        let with = |values: &[&str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(INTERNAL_TOKEN_HEADER, value.parse().unwrap());
            }
            headers
        };
        assert!(token.opens(&with(&["s3cret"])));
        let long = "s".repeat(513);
        for wrong in [&[][..], &[""], &["s3cre"], &["s3cret1"], &["S3cret"], &["s3cret", "s3cret"], &[&long]] {
            assert!(!token.opens(&with(wrong)), "{wrong:?}");
        }
        assert!(!format!("{token:?}").contains("s3cret"));
        for bad in ["", "a b", "a\n", "ü", &long] {
            assert!(InternalToken::new(bad).is_err());
        }
    }
}
