//! The bytes that a terminal sends for keys.

/// Returns the bytes of a key by its name, such as `enter`, `ctrl-c` or `alt-b`; `None` for an unknown name.
pub(super) fn bytes_of(key: &str, application: bool) -> Option<Vec<u8>> {
    let key = key.to_ascii_lowercase();
    if let Some(rest) = key.strip_prefix("alt-") {
        let mut bytes = vec![0x1b];
        bytes.extend(if rest.len() == 1 { rest.as_bytes().to_vec() } else { bytes_of(rest, application)? });
        return Some(bytes);
    }
    if let Some(letter) = key.strip_prefix("ctrl-").or_else(|| key.strip_prefix('^')) {
        return control(letter).map(|it| vec![it]);
    }
    // Most full-screen programs select the other form of arrow keys.
    let arrow = |letter: char| format!("\x1b{}{letter}", if application { 'O' } else { '[' });
    let text = match key.as_str() {
        "enter" | "return" => "\r".into(),
        "tab" => "\t".into(),
        "escape" | "esc" => "\x1b".into(),
        "space" => " ".into(),
        "backspace" => "\x7f".into(),
        "delete" => "\x1b[3~".into(),
        "insert" => "\x1b[2~".into(),
        "up" => arrow('A'),
        "down" => arrow('B'),
        "right" => arrow('C'),
        "left" => arrow('D'),
        "home" => arrow('H'),
        "end" => arrow('F'),
        "page-up" => "\x1b[5~".into(),
        "page-down" => "\x1b[6~".into(),
        "shift-tab" => "\x1b[Z".into(),
        _ => function_key(key.strip_prefix('f')?.parse().ok()?)?.to_owned(),
    };
    Some(text.into_bytes())
}

fn control(letter: &str) -> Option<u8> {
    match letter.as_bytes() {
        [it @ (b'a'..=b'z' | b'@' | b'[' | b'\\' | b']' | b'^' | b'_')] => Some(it.to_ascii_uppercase() & 0x1f),
        _ if letter == "space" => Some(0),
        _ => None,
    }
}

fn function_key(number: usize) -> Option<&'static str> {
    const KEYS: [&str; 12] = [
        "\x1bOP", "\x1bOQ", "\x1bOR", "\x1bOS", "\x1b[15~", "\x1b[17~", "\x1b[18~", "\x1b[19~", "\x1b[20~", "\x1b[21~",
        "\x1b[23~", "\x1b[24~",
    ];
    KEYS.get(number.checked_sub(1)?).copied()
}

#[cfg(test)]
mod tests {
    use super::bytes_of;

    #[test]
    fn keys_send_the_bytes_of_a_terminal() {
        for (key, expected) in [
            ("enter", &b"\r"[..]),
            ("Ctrl-C", b"\x03"),
            ("ctrl-d", b"\x04"),
            ("ctrl-\\", b"\x1c"),
            ("alt-b", b"\x1bb"),
            ("alt-enter", b"\x1b\r"),
            ("up", b"\x1b[A"),
            ("f1", b"\x1bOP"),
            ("f12", b"\x1b[24~"),
        ] {
            assert_eq!(bytes_of(key, false).as_deref(), Some(expected), "{key}");
        }
        assert_eq!(bytes_of("up", true).unwrap(), b"\x1bOA");
        for key in ["", "f0", "f13", "ctrl-", "ctrl-enter", "hyper-x", "alt-", "a"] {
            assert_eq!(bytes_of(key, false), None, "{key}");
        }
    }
}
