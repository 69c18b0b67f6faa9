//! Quantities of resources: `500m`, `64Mi`.

use serde_json::Value;

const SUFFIXES: &[(&str, f64)] = &[
    ("Ki", 1024.0),
    ("Mi", 1_048_576.0),
    ("Gi", 1_073_741_824.0),
    ("Ti", 1_099_511_627_776.0),
    ("n", 1e-9),
    ("u", 1e-6),
    ("m", 1e-3),
    ("k", 1e3),
    ("M", 1e6),
    ("G", 1e9),
    ("T", 1e12),
];

/// `None` for an invalid quantity.
pub(crate) fn quantity(value: &Value) -> Option<f64> {
    if let Some(number) = value.as_f64() {
        return Some(number);
    }
    let text = value.as_str()?;
    let suffixed = SUFFIXES.iter().find_map(|(suffix, factor)| Some((text.strip_suffix(suffix)?, *factor)));
    let (digits, factor) = suffixed.unwrap_or((text, 1.0));
    digits.parse::<f64>().ok().filter(|it| it.is_finite() && *it >= 0.0).map(|it| it * factor)
}

/// A quantity as whole bytes.
pub(crate) fn bytes(value: &Value) -> Option<u64> {
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is finite and not negative")]
    quantity(value).map(|it| it.ceil() as u64)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{bytes, quantity};

    #[test]
    fn quantities_are_read_with_their_suffixes() {
        assert_eq!(quantity(&json!("500m")), Some(0.5));
        assert_eq!(bytes(&json!("64Mi")), Some(64 << 20));
        assert_eq!((bytes(&json!("1000")), bytes(&json!(7)), bytes(&json!("2k"))), (Some(1000), Some(7), Some(2000)));
        assert_eq!((quantity(&json!("64MB")), quantity(&json!("-1")), quantity(&json!(null))), (None, None, None));
    }
}
