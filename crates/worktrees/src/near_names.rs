//! Finds names similar to an unknown one, for the hint of an error.

/// Maximum number of names that are suggested for an unknown base.
const NEAR: usize = 10;

/// Returns similar names: those with the most pairs of letters in common.
pub(crate) fn near<'a>(name: &str, all: impl Iterator<Item = &'a String>) -> Vec<String> {
    let pairs = |text: &str| text.to_lowercase().into_bytes().windows(2).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let wanted = pairs(name);
    let likeness = |text: &str| {
        let found = pairs(text);
        let common = wanted.iter().filter(|it| found.contains(it)).count();
        200 * common / (wanted.len() + found.len()).max(1)
    };
    let mut names: Vec<_> = all.map(|it| (std::cmp::Reverse(likeness(it)), it)).collect();
    names.sort();
    names.into_iter().take(NEAR).map(|(_, it)| it.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn near_names_come_first_and_are_ten_at_most() {
        let names: Vec<String> =
            (0..20).map(|n| format!("other-{n}")).chain(["release/2.0".into(), "main".into()]).collect();
        let found = near("relase/2.0", names.iter());
        assert_eq!((found.len(), found[0].as_str()), (10, "release/2.0"));
        assert_eq!(near("", [].iter()), [""; 0]);
    }
}
