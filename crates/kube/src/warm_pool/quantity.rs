//! Quantities of resources, whose spelling an API server changes: `1073741824` becomes `1Gi`. Pure.

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Suffixes, each with its factor in thousandths.
const SUFFIXES: [(&str, u128); 12] = [
    ("Ki", 1000 << 10),
    ("Mi", 1000 << 20),
    ("Gi", 1000 << 30),
    ("Ti", 1000 << 40),
    ("Pi", 1000 << 50),
    ("m", 1),
    ("k", 1_000_000),
    ("M", 1_000_000_000),
    ("G", 1_000_000_000_000),
    ("T", 1_000_000_000_000_000),
    ("P", 1_000_000_000_000_000_000),
    ("", 1000),
];

/// Whether two quantities are equal. An unknown format equals only the same text.
pub(super) fn is_same(one: &Quantity, other: &Quantity) -> bool {
    one == other || thousandths(&one.0).is_some_and(|it| thousandths(&other.0) == Some(it))
}

fn thousandths(text: &str) -> Option<u128> {
    let (digits, factor) = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)))?;
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let places = u32::try_from(fraction.len()).ok()?;
    let scaled = format!("{whole}{fraction}").parse::<u128>().ok()?.checked_mul(factor)?;
    let divisor = 10_u128.checked_pow(places)?;
    scaled.is_multiple_of(divisor).then(|| scaled / divisor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_compared_and_not_their_spelling() {
        let same = |one: &str, other: &str| is_same(&Quantity(one.into()), &Quantity(other.into()));
        assert!(same("1073741824", "1Gi") && same("100m", "0.1") && same("1.5Gi", "1536Mi") && same("2", "2000m"));
        assert!(!same("1Gi", "1G") && !same("100m", "100") && !same("odd", "1") && same("odd", "odd"));
    }
}
