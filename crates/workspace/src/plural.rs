//! Counts with their words.

/// `1 match`, `2 matches`, `1 entry`, `2 entries`.
pub(crate) fn plural(number: u64, word: &str) -> String {
    if number == 1 {
        return format!("1 {word}");
    }
    if let Some(stem) = word.strip_suffix('y') {
        return format!("{number} {stem}ies");
    }
    let ending = if word.ends_with("ch") { "es" } else { "s" };
    format!("{number} {word}{ending}")
}

#[cfg(test)]
mod tests {
    use super::plural;

    #[test]
    fn words_follow_their_number() {
        let words = [(1, "match"), (0, "match"), (2, "entry"), (2, "subdir"), (1, "entry"), (3, "occurrence")];
        let texts: Vec<String> = words.into_iter().map(|(number, word)| plural(number, word)).collect();
        assert_eq!(texts, ["1 match", "0 matches", "2 entries", "2 subdirs", "1 entry", "3 occurrences"]);
    }
}
