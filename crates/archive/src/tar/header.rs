//! Fields of a header block.

use ::tar::Header;

use super::{BLOCK, Device};

/// Whether the checksum is right; signed and unsigned sums are in use.
pub(super) fn has_right_sum(block: &[u8; BLOCK]) -> bool {
    let counted = |at: usize| if (148..156).contains(&at) { b' ' } else { block[at] };
    let unsigned: u64 = (0..BLOCK).map(|at| u64::from(counted(at))).sum();
    let signed: i64 = (0..BLOCK).map(|at| i64::from(counted(at).cast_signed())).sum();
    number(&block[148..156]).is_some_and(|sum| sum == signed || u64::try_from(sum) == Ok(unsigned))
}

/// Parses a number in octal digits, or in base 256 if the first bit is set. An empty field is 0.
pub(super) fn number(field: &[u8]) -> Option<i64> {
    match field.first() {
        Some(first) if first & 0x80 != 0 => base_256(field),
        _ => octal(field),
    }
}

fn base_256(field: &[u8]) -> Option<i64> {
    // The second bit is the sign; the first one marks the form.
    let negative = field[0] & 0x40 != 0;
    let first = if negative { field[0] | 0x80 } else { field[0] & 0x7f };
    let fill = if negative { 0xff } else { 0 };
    let bytes = std::iter::once(first).chain(field[1..].iter().copied());
    let (high, low): (Vec<_>, Vec<_>) = bytes.enumerate().partition(|(at, _)| at + 8 < field.len());
    let value = low.iter().fold(if negative { -1i64 } else { 0 }, |all, (_, byte)| (all << 8) | i64::from(*byte));
    (high.iter().all(|(_, byte)| *byte == fill) && (value < 0) == negative).then_some(value)
}

fn octal(field: &[u8]) -> Option<i64> {
    let text = std::str::from_utf8(field).ok()?;
    let digits = text.trim_matches([' ', '\0']);
    if digits.is_empty() { Some(0) } else { i64::from_str_radix(digits, 8).ok().filter(|it| *it >= 0) }
}

/// Returns the bytes of a text field, up to its first NUL.
pub(super) fn text(field: &[u8]) -> &[u8] {
    &field[..field.iter().position(|it| *it == 0).unwrap_or(field.len())]
}

/// The entry's name, with the prefix of the formats that have one.
pub(super) fn name(header: &Header) -> Vec<u8> {
    let name = text(&header.as_old().name);
    let Some(ustar) = header.as_ustar() else { return name.to_vec() };
    // The format of `star` has times after a shorter prefix.
    let is_star = header.as_bytes().ends_with(b"tar\0");
    let prefix = text(&ustar.prefix[..if is_star { 131 } else { ustar.prefix.len() }]);
    if prefix.is_empty() { name.to_vec() } else { [prefix, name].join(&b'/') }
}

/// The numbers of a device node.
pub(super) fn device(header: &Header) -> Option<Device> {
    let bytes = header.as_bytes();
    let field = |at: usize| number(&bytes[at..at + 8]).and_then(|it| u32::try_from(it).ok());
    let has_fields = header.as_ustar().is_some() || header.as_gnu().is_some();
    has_fields.then(|| Some(Device { major: field(329)?, minor: field(337)? })).flatten()
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn numbers_are_parsed_in_both_forms() {
        for (field, value) in [
            (&b"0000644\0"[..], Some(0o644)),
            (b"   644 \0", Some(0o644)),
            (b"\0\0\0\0\0\0\0\0", Some(0)),
            (b"77777777", Some(0o7777_7777)),
            (b"-0000001", None),
            (b"0000648\0", None),
            (b"\x80\0\0\0\0\0\0\x05", Some(5)),
            (b"\xff\xff\xff\xff\xff\xff\xff\xfe", Some(-2)),
            (b"\x80\0\0\0\0\0\0\x02\0\0\0\0", Some(0x2_0000_0000)),
            (b"\x80\0\0\x01\0\0\0\0\0\0\0\0", None),
            (b"\x80\0\0\0\x80\0\0\0\0\0\0\0", None),
            (b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff", Some(-1)),
        ] {
            assert_eq!(number(field), value, "{field:?}");
        }
    }
}
