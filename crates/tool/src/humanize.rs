//! Amounts and characters as people read them.

/// `1 file`, `2 files`.
pub fn count(amount: u64, one: &str, many: &str) -> String {
    format!("{amount} {}", if amount == 1 { one } else { many })
}

/// Bytes in the largest unit that is not below one.
pub fn bytes(amount: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    match units.iter().find(|(_, bits)| amount >> bits > 0) {
        None => count(amount, "byte", "bytes"),
        Some((unit, bits)) if amount.is_multiple_of(1 << bits) => format!("{} {unit}", amount >> bits),
        Some((unit, bits)) => format!("{:.1} {unit}", amount as f64 / (1_u64 << bits) as f64),
    }
}

/// Characters that change the order in which others are shown.
pub fn is_bidirectional(c: char) -> bool {
    matches!(c, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

#[cfg(test)]
mod tests {
    use super::bytes;

    #[test]
    fn sizes_are_short() {
        assert_eq!(
            [0, 1, 3, 1024, 1536, 4 << 30].map(bytes).join(", "),
            "0 bytes, 1 byte, 3 bytes, 1 KiB, 1.5 KiB, 4 GiB"
        );
    }
}
