//! The known word that somebody probably meant.

/// The known word nearest to `word`, when one is near enough to be a slip.
pub fn nearest(word: &str, known: &[String]) -> Option<String> {
    let fold = |text: &str| text.to_lowercase().replace('-', "_");
    known
        .iter()
        .map(|candidate| (strsim::jaro_winkler(&fold(word), &fold(candidate)), candidate))
        .filter(|(score, _)| *score >= 0.8)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, candidate)| candidate.clone())
}
