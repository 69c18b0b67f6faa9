//! Parses the list of commands in a push, which precedes its pack.

use globset::GlobSet;

/// Maximum size of the list.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// Maximum number of commands.
const MAX_COMMANDS: usize = 64;

/// The result of parsing a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CommandScan {
    /// The list is incomplete.
    More,
    /// All commands are allowed.
    Allowed,
    /// The reason of a refusal, as shown to the client.
    Refused(&'static str),
}

/// Checks the bytes received so far. All commands have to be complete before one is forwarded.
pub(crate) fn check_commands(bytes: &[u8], allowed: &GlobSet) -> CommandScan {
    let (mut rest, mut commands) = (bytes, 0);
    loop {
        let used = bytes.len() - rest.len();
        let line = match next(rest) {
            Ok(Some((PktLine::Flush, _))) => return CommandScan::Allowed,
            Ok(Some((PktLine::Text(line), after))) => {
                rest = after;
                line
            }
            Ok(None) if bytes.len() < MAX_BYTES && used < MAX_BYTES => return CommandScan::More,
            Ok(None) => return CommandScan::Refused("the list of commands is too long"),
            Err(()) => return CommandScan::Refused("this is not a list of commands"),
        };
        if bytes.len() - rest.len() > MAX_BYTES {
            return CommandScan::Refused("the list of commands is too long");
        }
        if line.starts_with(b"shallow ") && commands == 0 {
            continue;
        }
        commands += 1;
        if commands > MAX_COMMANDS {
            return CommandScan::Refused("too many refs at once");
        }
        if let Err(why) = command(line, commands == 1, allowed) {
            return CommandScan::Refused(why);
        }
    }
}

enum PktLine<'a> {
    Flush,
    Text(&'a [u8]),
}

/// Splits off one line; `None` if it is incomplete.
fn next(bytes: &[u8]) -> Result<Option<(PktLine<'_>, &[u8])>, ()> {
    let Some((digits, after)) = bytes.split_first_chunk::<4>() else { return Ok(None) };
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(());
    }
    let length = std::str::from_utf8(digits).ok().and_then(|it| usize::from_str_radix(it, 16).ok()).ok_or(())?;
    match length {
        0 => Ok(Some((PktLine::Flush, after))),
        // A push contains no delimiter packets.
        1..=4 => Err(()),
        _ => Ok(after.split_at_checked(length - 4).map(|(line, after)| (PktLine::Text(line), after))),
    }
}

fn command(line: &[u8], first: bool, allowed: &GlobSet) -> Result<(), &'static str> {
    const ODD: &str = "this is not a command of a push";
    if line.starts_with(b"push-cert") {
        return Err("signed pushes are not passed on");
    }
    let (command, capabilities) = match line.iter().position(|it| *it == 0) {
        Some(at) if first => (&line[..at], &line[at + 1..]),
        Some(_) => return Err(ODD),
        None => (line, &[][..]),
    };
    for capability in capabilities.split(u8::is_ascii_whitespace) {
        if capability == b"push-options" || capability.starts_with(b"push-cert") {
            return Err("push options and certificates are not passed on");
        }
    }
    let command = std::str::from_utf8(command).map_err(|_| ODD)?;
    let command = command.strip_suffix('\n').unwrap_or(command);
    let (old, rest) = command.split_once(' ').ok_or(ODD)?;
    let (new, name) = rest.split_once(' ').ok_or(ODD)?;
    if !is_oid(old) || !is_oid(new) || old.len() != new.len() || !is_ref(name) {
        return Err(ODD);
    }
    if new.bytes().all(|it| it == b'0') {
        return Err("a branch is not deleted from inside");
    }
    if allowed.is_match(name) { Ok(()) } else { Err("this ref may not be pushed to") }
}

fn is_oid(text: &str) -> bool {
    [40, 64].contains(&text.len()) && text.bytes().all(|it| it.is_ascii_hexdigit())
}

/// Whether a name is valid by the rules of `git check-ref-format`, and not in another's namespace.
fn is_ref(name: &str) -> bool {
    let plain = |it: char| !it.is_control() && !" ~^:?*[\\".contains(it);
    let part = |it: &str| !it.is_empty() && !it.starts_with('.') && !it.ends_with(".lock");
    name.starts_with("refs/")
        && name.chars().all(plain)
        && name.split('/').all(part)
        && !name.contains("..")
        && !name.contains("@{")
        && !name.ends_with('.')
}

#[cfg(test)]
mod tests {
    use globset::{GlobBuilder, GlobSetBuilder};
    use proptest::prelude::*;

    use super::*;

    const A: &str = "1111111111111111111111111111111111111111";
    const ZERO: &str = "0000000000000000000000000000000000000000";

    fn allowed() -> GlobSet {
        let glob = GlobBuilder::new("refs/heads/coracle/*").literal_separator(true).build().unwrap();
        GlobSetBuilder::new().add(glob).build().unwrap()
    }

    fn packed(lines: &[String]) -> Vec<u8> {
        let lines = lines.iter().map(|it| format!("{:04x}{it}", it.len() + 4));
        (lines.collect::<String>() + "0000PACKxyz").into_bytes()
    }

    fn line(old: &str, new: &str, name: &str) -> String {
        format!("{old} {new} {name}\0 report-status agent=git/2")
    }

    #[test]
    fn x57_only_allowed_refs_are_pushed_to_and_none_is_deleted() {
        let good = line(ZERO, A, "refs/heads/coracle/x");
        let bytes = packed(std::slice::from_ref(&good));
        assert_eq!(check_commands(&bytes, &allowed()), CommandScan::Allowed);
        assert_eq!(check_commands(b"0000", &allowed()), CommandScan::Allowed, "git's own first try");
        for end in 0..bytes.len() - "PACKxyz".len() {
            assert_eq!(check_commands(&bytes[..end], &allowed()), CommandScan::More, "{end}");
        }
        let second = |it: &str| vec![good.clone(), format!("{ZERO} {A} {it}")];
        assert_eq!(check_commands(&packed(&second("refs/heads/coracle/y")), &allowed()), CommandScan::Allowed);
        let shallow = vec![format!("shallow {A}"), good.clone()];
        assert_eq!(check_commands(&packed(&shallow), &allowed()), CommandScan::Allowed);
        for lines in [
            vec![line(ZERO, A, "refs/heads/main")],
            vec![line(A, ZERO, "refs/heads/coracle/x")],
            vec![line(ZERO, A, "refs/heads/coracle/x/y")],
            vec![line(ZERO, A, "refs/heads/coracle/../main")],
            vec![line(ZERO, A, "HEAD")],
            vec![line(ZERO, &A[1..], "refs/heads/coracle/x")],
            vec![format!("{ZERO} {A} refs/heads/coracle/x\0 report-status push-options")],
            vec![format!("{ZERO} {A} refs/heads/coracle/x\0 push-cert=nonce")],
            vec!["push-cert\0 report-status".to_owned(), good.clone()],
            second("refs/heads/main"),
            second("refs/heads/coracle/y\0push-options"),
            vec![good.clone(), format!("shallow {A}")],
            (0..=MAX_COMMANDS).map(|it| format!("{ZERO} {A} refs/heads/coracle/{it}")).collect(),
        ] {
            let judged = check_commands(&packed(&lines), &allowed());
            assert!(matches!(judged, CommandScan::Refused(_)), "{lines:?}: {judged:?}");
        }
        assert_eq!(
            check_commands(&packed(&[good]), &GlobSet::empty()),
            CommandScan::Refused("this ref may not be pushed to")
        );
    }

    #[test]
    fn a_list_without_end_is_refused() {
        let shallow: Vec<_> = (0..2000).map(|_| format!("shallow {A}")).collect();
        assert!(matches!(check_commands(&packed(&shallow), &allowed()), CommandScan::Refused(_)));
        assert!(matches!(
            check_commands(&[b"ffff", &[b'x'; MAX_BYTES][..]].concat(), &allowed()),
            CommandScan::Refused(_)
        ));
        for odd in [&b"PACK"[..], b"0001", b"0004", b"+123", b"zzzz"] {
            assert!(matches!(check_commands(odd, &allowed()), CommandScan::Refused(_)), "{odd:?}");
        }
    }

    proptest! {
        #[test]
        fn an_allowed_list_has_only_allowed_refs(names in proptest::collection::vec("[a-z/.]{0,6}", 1..5), cut in 0_usize..3) {
            let lines: Vec<_> = names.iter().map(|it| format!("{ZERO} {A} refs/heads/coracle/{it}")).collect();
            let bytes = packed(&lines);
            if check_commands(&bytes[cut..], &allowed()) == CommandScan::Allowed {
                prop_assert!(cut == 0 && names.iter().all(|it| !it.contains('/') && !it.is_empty()), "{:?}", names);
            }
        }

        #[test]
        fn any_bytes_are_parsed_without_panic(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            check_commands(&bytes, &allowed());
        }
    }
}
