//! Texts of others, cut to what a line of ours bears.

/// A text of at most so many characters, cut between two words.
pub fn shortened(text: &str, most: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(most) else { return text.to_owned() };
    let at = |nth: usize| text.char_indices().nth(nth).map_or(end, |(at, _)| at);
    let space = text[..at(most.saturating_sub(1))].rfind(' ').filter(|at| *at > 0);
    let whole = space.unwrap_or_else(|| at(most.saturating_sub(2)));
    format!("{} …", text[..whole].trim_end_matches([' ', ',', ';', ':']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_between_words_where_it_has_some() {
        assert_eq!(shortened("one two, three", 10), "one two …");
        assert_eq!((shortened("one two", 7).as_str(), shortened("éééééé", 4).as_str()), ("one two", "éé …"));
    }
}
