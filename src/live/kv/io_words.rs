//! What the system says of a failure, for people.

use std::io;

/// `connection refused`, not `Connection refused (os error 111)`.
pub fn io_words(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error ").next().unwrap_or(&text);
    let mut letters = text.chars();
    // `I/O error` and the like keep their letters.
    match (letters.next(), letters.next()) {
        (Some(first), Some(second)) if second.is_lowercase() => {
            first.to_lowercase().chain(text.chars().skip(1)).collect()
        }
        _ => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_the_system_are_left_out() {
        assert_eq!(io_words(&io::Error::from_raw_os_error(111)), "connection refused");
        assert_eq!(io_words(&io::Error::from_raw_os_error(98)), "address already in use");
        assert_eq!(io_words(&io::Error::other("broken")), "broken");
        assert_eq!(io_words(&io::Error::other("TLS failed")), "TLS failed");
    }
}
