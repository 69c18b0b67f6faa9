//! Suggests existing names for an unknown one.

/// How many names an error lists. For more, it names a command.
const FEW: usize = 8;

/// Returns the most similar name, if any is similar.
pub fn nearest<'a>(name: &str, known: &'a [String]) -> Option<&'a str> {
    let name: String = name.chars().take(64).collect();
    let alike = |it: &str| {
        let (name, it) = (name.to_lowercase(), it.to_lowercase());
        // The first measure underrates two swapped letters in a short name.
        let is_one_slip = name.len() >= 3 && strsim::osa_distance(&name, &it) <= 1;
        strsim::jaro_winkler(&name, &it).max(if is_one_slip { 0.81 } else { 0.0 })
    };
    // `stat` is a prefix of `status`, even if it is more similar to `start`.
    let begun = known.iter().filter(|it| name.chars().count() >= 3 && it.starts_with(&name)).min_by_key(|it| it.len());
    let scored = known.iter().map(|it| (alike(it), it));
    let like = || scored.filter(|(score, _)| *score > 0.8).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, it)| it);
    begun.or_else(like).map(String::as_str)
}

/// Builds the hint: the most similar name, and all names if they are few; else `otherwise`, which names a command that
/// shows them.
pub fn hint(name: &str, known: &[String], otherwise: &str) -> String {
    let all = match known {
        [] => otherwise.to_owned(),
        few if few.len() <= FEW => format!("{} {}", if few.len() == 1 { "there is" } else { "there are" }, listed(few)),
        _ => otherwise.to_owned(),
    };
    match nearest(name, known) {
        Some(near) if known.len() == 1 => format!("did you mean `{near}`?"),
        Some(near) => format!("did you mean `{near}`? {}", all.replacen("there", "There", 1)),
        None => all,
    }
}

fn listed(names: &[String]) -> String {
    names.iter().map(|it| format!("`{it}`")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::{hint, nearest};

    fn names(text: &str) -> Vec<String> {
        text.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn a_name_that_begins_another_is_that_one() {
        assert_eq!(nearest("stat", &names("start status stop")), Some("status"));
        assert_eq!(nearest("backnd", &names("backend frontend")), Some("backend"));
        assert_eq!(nearest("WEB", &names("web db")), Some("web"));
        assert_eq!(nearest("completions", &names("copy-in copy-out cp")), None);
    }

    #[test]
    fn few_names_are_listed_and_many_are_shown_by_a_command() {
        assert_eq!(hint("backnd", &names("backend"), "`networks` shows them"), "did you mean `backend`?");
        assert_eq!(hint("ab", &names("abc xyz"), "-"), "did you mean `abc`? There are `abc`, `xyz`");
        assert_eq!(hint("x", &names("a b"), "`networks` shows them"), "there are `a`, `b`");
        assert_eq!(hint("x", &[], "`networks` shows them"), "`networks` shows them");
        let many: Vec<String> = (0..9).map(|it| format!("job{it}")).collect();
        assert_eq!(hint("jbo1", &many, "`jobs` shows them"), "did you mean `job1`? `jobs` shows them");
    }
}
