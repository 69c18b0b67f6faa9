//! Lists submodules in git's index, which git enters by itself.
//!
//! Git's `index-format`: a header (`DIRC`, version, count), then entries of 62 bytes and a name. Only mode and name are
//! read.

use std::ffi::OsStr;
use std::io::Read;
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

/// Maximum size of an index.
const MAX_INDEX: u64 = 64 << 20;

/// Maximum length of a file name. In version 4 a name extends the previous one, so without this limit a small file
/// could expand to many long names.
const MAX_NAME: usize = 4096;

/// Size of the fields before the name.
const FIXED: usize = 62;
const MODE: usize = 24;
const FLAGS: usize = 60;

/// The flag of an entry with two more bytes of flags.
const EXTENDED: u16 = 0x4000;

const GITLINK: u32 = 0o160_000;

/// Returns the paths of at most so many submodules, and whether there are more; nothing if the index cannot be parsed.
#[must_use]
pub fn submodules(index: impl Read, most: usize) -> Option<(Vec<PathBuf>, bool)> {
    let mut bytes = Vec::new();
    index.take(MAX_INDEX + 1).read_to_end(&mut bytes).ok()?;
    (bytes.len() as u64 <= MAX_INDEX).then(|| parse(&bytes, most)).flatten()
}

fn parse(bytes: &[u8], most: usize) -> Option<(Vec<PathBuf>, bool)> {
    let number = |at: usize| bytes.get(at..at + 4)?.try_into().ok().map(u32::from_be_bytes);
    let (version, count) = (number(4)?, number(8)?);
    if !bytes.starts_with(b"DIRC") || !(2..=4).contains(&version) {
        return None;
    }
    let (mut found, mut at, mut name) = (Vec::new(), 12, Vec::new());
    for _ in 0..count {
        let mode = number(at + MODE)?;
        let flags = u16::from_be_bytes(bytes.get(at + FLAGS..at + FIXED)?.try_into().ok()?);
        let begins = at + FIXED + if flags & EXTENDED == 0 { 0 } else { 2 };
        let begins = if version == 4 {
            // The number of bytes to drop from the end of the previous name.
            let (drop, after) = varint(bytes, begins)?;
            name.truncate(name.len().checked_sub(drop)?);
            after
        } else {
            name.clear();
            begins
        };
        let length = bytes.get(begins..)?.iter().position(|it| *it == 0)?;
        if name.len() + length > MAX_NAME {
            return None;
        }
        name.extend_from_slice(&bytes[begins..begins + length]);
        at = match version {
            4 => begins + length + 1,
            // Padded to eight bytes, with one NUL at least.
            _ => at + ((begins - at + length) / 8 + 1) * 8,
        };
        if mode == GITLINK {
            if found.len() == most {
                return Some((found, true));
            }
            found.push(PathBuf::from(OsStr::from_bytes(&name)));
        }
    }
    Some((found, false))
}

/// Parses git's encoding of a length: each byte but the first adds one.
fn varint(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)?.checked_add(usize::from(byte & 0x7f))?;
    }
    Some((value, at + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(mode: u32, name: &str, version: u32, drop: u8) -> Vec<u8> {
        let mut entry = vec![0; FIXED];
        entry[MODE..MODE + 4].copy_from_slice(&mode.to_be_bytes());
        if version == 4 {
            entry.push(drop);
        }
        entry.extend_from_slice(name.as_bytes());
        let end = if version == 4 { entry.len() + 1 } else { (entry.len() / 8 + 1) * 8 };
        entry.resize(end, 0);
        entry
    }

    fn index(version: u32, entries: &[Vec<u8>]) -> Vec<u8> {
        let count = u32::try_from(entries.len()).unwrap();
        [b"DIRC", &version.to_be_bytes()[..], &count.to_be_bytes(), &entries.concat()].concat()
    }

    #[test]
    fn submodules_are_read_from_each_version() {
        let of = |version: u32, names: [(&str, u8); 3]| {
            let modes = [0o100_644, GITLINK, GITLINK];
            let entries: Vec<_> = modes.iter().zip(names).map(|(m, (n, d))| entry(*m, n, version, d)).collect();
            parse(&index(version, &entries), 50)
        };
        let expected = Some((vec![PathBuf::from("lib/one"), PathBuf::from("lib/two")], false));
        for version in [2, 3] {
            assert_eq!(of(version, [("a", 0), ("lib/one", 0), ("lib/two", 0)]), expected);
        }
        assert_eq!(of(4, [("a", 0), ("lib/one", 1), ("two", 3)]), expected);
    }

    #[test]
    fn a_truncated_or_invalid_index_is_refused() {
        let whole = index(2, &[entry(GITLINK, "lib", 2, 0)]);
        assert_eq!(parse(&whole, 50).map(|it| it.0.len()), Some(1));
        for end in 0..12 + FIXED + 4 {
            assert!(
                parse(&whole[..end.min(whole.len())], 50).is_none_or(|it| it.0.is_empty() || end > 12 + FIXED + 2),
                "{end}"
            );
        }
        let mut many = whole;
        many[8..12].copy_from_slice(&u32::MAX.to_be_bytes());
        assert_eq!(parse(&many, 50), None);
        assert_eq!(parse(&index(4, &[entry(GITLINK, "lib", 4, 9)]), 50), None);
    }

    #[test]
    fn a_small_file_cannot_expand_to_many_or_long_names() {
        let of_length = |length: usize| entry(GITLINK, &"x".repeat(length), 4, 0);
        let same = || std::iter::repeat_n(entry(GITLINK, "", 4, 0), 1000);
        let crafted: Vec<_> = std::iter::once(of_length(1 << 20)).chain(same()).collect();
        assert_eq!(parse(&index(4, &crafted), 50), None);
        // A name that grows with every entry.
        let growing = vec![of_length(1000); 5];
        assert_eq!(parse(&index(4, &growing), 50), None);
        let many: Vec<_> = std::iter::once(of_length(MAX_NAME)).chain(same()).collect();
        assert_eq!(parse(&index(4, &many), 50).map(|it| (it.0.len(), it.1)), Some((50, true)));
    }
}
