//! No value remains in a text, and no other text is changed.

use base64::Engine;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use proptest::prelude::*;

use super::Redactor;
use crate::Secret;

fn redactor(secrets: &[(&str, &str)]) -> Redactor {
    Redactor::new(secrets.iter().map(|(name, value)| ((*name).to_owned(), Secret::from(*value))).collect())
}

#[test]
fn a_value_becomes_its_name_in_every_form() {
    let it = redactor(&[("TOKEN", "pa ss/wörd\"+1\n")]);
    for (text, expected) in [
        ("is pa ss/wörd\"+1!", "is [redacted:TOKEN]!"),
        ("u=pa%20ss%2Fw%C3%B6rd%22%2B1&", "u=[redacted:TOKEN]&"),
        ("u=pa%20ss%2fw%c3%b6rd%22%2b1&", "u=[redacted:TOKEN]&"),
        ("u=pa+ss%2Fw%C3%B6rd%22%2B1&", "u=[redacted:TOKEN]&"),
        ("/pa%20ss/w%C3%B6rd%22+1/", "/[redacted:TOKEN]/"),
        (r#"{"a":"pa ss/wörd\"+1\n"}"#, r#"{"a":"[redacted:TOKEN]\n"}"#),
        (r#"{"a":"pa ss/w\u00f6rd\"+1"}"#, r#"{"a":"[redacted:TOKEN]"}"#),
        (r#"{"a":"pa ss\/w\u00f6rd\"+1"}"#, r#"{"a":"[redacted:TOKEN]"}"#),
        ("x 70612073732f77c3b67264222b31 y", "x [redacted:TOKEN] y"),
        ("70612073732F77C3B67264222B31", "[redacted:TOKEN]"),
    ] {
        assert_eq!(it.clean(text), expected, "{text}");
    }
    let encoded = BASE64_STANDARD.encode("user:pa ss/wörd\"+1");
    assert!(it.clean(&format!("Basic {encoded}")).contains("[redacted:TOKEN]"));
}

#[test]
fn overlapping_values_are_removed_completely() {
    let it =
        redactor(&[("LONG", "abcdefghijkl"), ("SHORT", "cdefghij"), ("NEXT", "ijklmnop"), ("AGAIN", "abcdefghijkl")]);
    assert_eq!(it.clean("xabcdefghijklx"), "x[redacted:LONG]x");
    assert_eq!(it.clean("xabcdefghijklmnopx cdefghij"), "x[redacted:LONG]x [redacted:SHORT]");
    assert_eq!(redactor(&[("A", "aaaaaaaa")]).clean("aaaaaaaaaaab aaaaaaa"), "[redacted:A]b aaaaaaa");
    assert_eq!(redactor(&[("A", "abcdefgh")]).clean("abcdefghabcdefgh"), "[redacted:A][redacted:A]");
}

#[test]
fn short_values_and_blanks_are_ignored() {
    let it = redactor(&[("SHORT", "1234567"), ("BLANK", "  yes   \n"), ("EMPTY", "")]);
    assert_eq!(it.clean("1234567 yes"), "1234567 yes");
    assert_eq!(redactor(&[("LINE", "12345678\n")]).clean("'12345678'"), "'[redacted:LINE]'");
}

#[test]
fn a_key_is_found_line_by_line_without_its_frame() {
    let key = format!("-----BEGIN KEY-----\n{}\n{}\n-----END KEY-----\n", "Ab1/".repeat(16), "Cd2+".repeat(16));
    let shown = key.lines().enumerate().map(|(n, line)| format!("{n}:   {line}\n")).collect::<String>();
    let cleaned = redactor(&[("KEY", &key)]).clean(&shown);
    assert_eq!(cleaned, "0:   -----BEGIN KEY-----\n1:   [redacted:KEY]\n2:   [redacted:KEY]\n3:   -----END KEY-----\n");
}

#[test]
fn user_parts_of_urls_are_removed_without_any_known_value() {
    let it = Redactor::default();
    for (text, expected) in [
        ("clone https://me:hunter2@e.com/x failed", "clone https://[redacted]@e.com/x failed"),
        ("ssh://git@e.com/x", "ssh://[redacted]@e.com/x"),
        ("http://a:b@c@e.com", "http://[redacted]@e.com"),
        ("'https://x@e.com' https://y@e.com", "'https://[redacted]@e.com' https://[redacted]@e.com"),
        ("https://registry.npmjs.org/@scope/x", "https://registry.npmjs.org/@scope/x"),
        ("https://e.com?q=a@b", "https://e.com?q=a@b"),
        ("https://e.com me@e.com git@e.com:x", "https://e.com me@e.com git@e.com:x"),
        ("https://[redacted]@e.com", "https://[redacted]@e.com"),
        ("://@x", "://@x"),
        ("://", "://"),
    ] {
        assert_eq!(it.clean(text), expected);
    }
}

#[test]
fn text_like_a_token_is_removed_on_request() {
    let it = Redactor::default();
    let long = "aB3dE6gH9j".repeat(6);
    for (before, token) in [
        ("x ", format!("ghp_{}", &long[..36])),
        ("\"", format!("github_pat_{}", &long[..30])),
        ("=", format!("glpat-{}", &long[..20])),
        ("x ", format!("npm_{}", &long[..36])),
        ("x ", format!("pypi-{}", &long[..55])),
        ("x ", format!("hf_{}", &long[..34])),
        ("key: ", format!("sk-ant-api03-{}", &long[..40])),
        ("x ", format!("sk_live_{}", &long[..24])),
        ("x ", "AKIAIOSFODNN7EXAMPLE".to_owned()),
        ("x ", format!("AIza{}", &long[..35])),
        ("x ", "xoxb-123456789012-abcdef".to_owned()),
        ("x ", format!("eyJ{0}.eyJ{0}.{0}", &long[..20])),
        ("Authorization: Bearer ", long.clone()),
        ("authorization: ", long.clone()),
        ("x\n", format!("-----BEGIN RSA PRIVATE KEY-----\n{long}\n-----END RSA PRIVATE KEY-----")),
    ] {
        assert_eq!(it.clean_strictly(&format!("{before}{token}\" y")), format!("{before}[redacted:token]\" y"));
        assert!(it.clean(&token).contains(&long[..8]) || token.starts_with("AK") || token.starts_with("xox"));
    }
    for fine in ["task-runner-for-something-long-enough", "sk-learn", "authorization: none", "AKIA", "a ghp_ b"] {
        assert_eq!(it.clean_strictly(fine), fine);
    }
}

#[test]
fn debug_shows_names_only() {
    let it = redactor(&[("TOKEN", "hunter2hunter2")]);
    assert_eq!(format!("{it:?}"), "Redactor([\"TOKEN\"])");
}

/// Letters that a placeholder does not contain, so that a value is never a part of one.
fn value() -> impl Strategy<Value = String> {
    "[A-Z0-9/+=\"\\\\ %ö€\u{1}\n]{1,6}[A-Z0-9]{8,20}[A-Z0-9/+=\"\\\\ %ö€\u{1}\n]{0,6}Z"
}

proptest! {
    #[test]
    fn no_form_of_a_value_remains(
        values in proptest::collection::vec(value(), 1..4),
        (before, after) in ("[a-z .]{0,9}", "[a-z .]{0,9}"),
    ) {
        let secrets = values.iter().map(|it| ("n".to_owned(), Secret::from(it.as_str()))).collect();
        let it = Redactor::new(secrets);
        for value in values.iter().map(|it| it.trim_ascii()) {
            let percent: String = value.bytes().map(|it| format!("%{it:02X}")).collect();
            let json = serde_json::to_string(value).unwrap();
            for form in [value.to_owned(), hex::encode(value), percent, json[1..json.len() - 1].to_owned()] {
                let cleaned = it.clean(&format!("{before}{form}{after}"));
                prop_assert!(!cleaned.contains(&form), "{} in {}", form, cleaned);
                prop_assert!(cleaned.starts_with(&before) && cleaned.ends_with(&after), "{}", cleaned);
            }
        }
    }

    #[test]
    fn no_place_in_base64_hides_a_value(value in value(), before in "[a-z]{0,7}", after in "[a-z]{0,7}") {
        let it = Redactor::new(vec![("n".to_owned(), Secret::from(value.as_str()))]);
        let value = value.trim_ascii();
        let whole = format!("{before}{value}{after}");
        let (first, last) = ((before.len() * 8).div_ceil(6), (before.len() + value.len()) * 8 / 6);
        for encoded in [BASE64_STANDARD.encode(&whole), BASE64_URL_SAFE_NO_PAD.encode(&whole)] {
            let cleaned = it.clean(&encoded);
            prop_assert_eq!(cleaned, format!("{}[redacted:n]{}", &encoded[..first], &encoded[last..]));
        }
    }

    #[test]
    fn a_text_without_values_is_not_changed(text in "[^:]{0,60}", value in "[0-9]{8,20}") {
        let it = Redactor::new(vec![("n".to_owned(), Secret::from(value.as_str()))]);
        prop_assume!(!text.contains(|it: char| it.is_ascii_digit()) && !text.contains(&value));
        prop_assert_eq!(it.clean(&text), text);
    }

    #[test]
    fn any_bytes_are_a_value_and_any_text_is_cleaned(
        value in proptest::collection::vec(any::<u8>(), 0..24),
        text in any::<String>(),
    ) {
        let shown = String::from_utf8_lossy(&value).into_owned();
        let it = Redactor::new(vec![("n".to_owned(), Secret::new(value))]);
        let _ = it.clean_strictly(&format!("{text}{shown}{text}"));
    }
}

mod edges {
    use proptest::prelude::*;

    use crate::{Redactor, Secret};

    fn redactor() -> Redactor {
        Redactor::new(vec![("KEY".to_owned(), Secret::from("hunter2hunter2"))])
    }

    fn in_pieces(text: &[u8], cuts: &[usize]) -> Vec<u8> {
        let mut sieve = redactor().sieve();
        let (mut out, mut from) = (vec![], 0);
        let mut cuts: Vec<_> = cuts.iter().map(|it| it % (text.len() + 1)).collect();
        cuts.sort_unstable();
        for cut in cuts.into_iter().chain([text.len()]) {
            out.extend(sieve.push(&text[from..cut]));
            from = cut;
        }
        out.extend(sieve.end());
        out
    }

    #[test]
    fn a_value_is_found_across_pieces() {
        let it = redactor();
        let text = b"the key is hunter2hunter2, twice: hunter2hunter2.";
        for cut in 0..text.len() {
            let (start, end) = (&text[..cut], &text[cut..]);
            let joined = [it.clean_between(&[], start, end), it.clean_between(start, end, &[])].concat();
            assert!(!joined.windows(7).any(|it| it == b"hunter2"), "{}", String::from_utf8_lossy(&joined));
        }
        assert_eq!(
            (it.unfinished(b"x hunter2hu"), it.unfinished(b"x hun"), it.unfinished(b"x hunter2hunter2")),
            (9, 0, 14)
        );
        assert_eq!((it.left_over(b"r2hunter2 x"), it.left_over(b"er2 x"), it.left_over(b"xx")), (9, 0, 0));
        assert!(Redactor::default().is_empty() && it.longest() >= 14);
    }

    proptest! {
        #[test]
        fn the_result_does_not_depend_on_how_a_stream_is_split(
            parts in proptest::collection::vec(prop_oneof!["hunter2hunter2", "hunter2", "[a-z ]{0,9}", "hunt"], 0..12),
            cuts in proptest::collection::vec(0usize..200, 0..8),
        ) {
            let text = parts.concat().into_bytes();
            prop_assert_eq!(in_pieces(&text, &cuts), redactor().clean_between(&[], &text, &[]));
        }
    }
}
