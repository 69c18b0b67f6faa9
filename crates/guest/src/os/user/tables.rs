//! The tables of users and groups, read and extended as bytes.

use crate::os::machine::{Ids, NewUser};

/// Longest field in bytes: it becomes a variable of every command, and part of responses.
const MAX_FIELD: usize = 4 << 10;

/// The kernel's limit of supplementary groups.
const MAX_GROUPS: usize = 65_536;

/// The used fields of a line of the passwd file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PasswdEntry {
    pub(crate) name: String,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) home: String,
    pub(crate) shell: String,
}

/// The content of both files. Invalid lines are skipped, as in the C library.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tables {
    pub(crate) passwd: Vec<u8>,
    pub(crate) group: Vec<u8>,
}

impl Tables {
    /// Users in the order of the file.
    pub(crate) fn users(&self) -> impl Iterator<Item = PasswdEntry> {
        lines(&self.passwd).filter_map(user)
    }

    /// The first entry with that uid.
    pub(crate) fn user(&self, uid: u32) -> Option<PasswdEntry> {
        self.users().find(|it| it.uid == uid)
    }

    /// The name of the first group with that gid.
    pub(crate) fn group_name(&self, gid: u32) -> Option<String> {
        lines(&self.group).filter_map(group).find(|it| it.gid == gid).and_then(|it| text(it.name))
    }

    /// The ids of a uid, with the groups of its entry's name. A missing gid is that of the entry, or else the number of the
    /// uid.
    pub(crate) fn numbers(&self, uid: u32, gid: Option<u32>) -> Ids {
        let entry = self.user(uid);
        let gid = gid.or(entry.as_ref().map(|it| it.gid)).unwrap_or(uid);
        Ids { uid, gid, groups: entry.map(|it| self.groups_of(&it.name)).unwrap_or_default() }
    }

    /// Uid, gid and groups of a name.
    pub(crate) fn named(&self, name: &str) -> Option<Ids> {
        let entry = self.users().find(|it| it.name == name)?;
        Some(Ids { uid: entry.uid, gid: entry.gid, groups: self.groups_of(name) })
    }

    /// Adds a user with a generated name.
    pub(crate) fn add_user(&mut self, uid: u32, gid: u32, shell: &str) -> PasswdEntry {
        let name = self.free_name(base(uid));
        let home = if name == "root" { "/root".to_owned() } else { format!("/home/{name}") };
        append(&mut self.passwd, &format!("{name}:x:{uid}:{gid}::{home}:{shell}"));
        PasswdEntry { name, uid, gid, home, shell: shell.to_owned() }
    }

    /// Adds a user under its name, or under that name with a number if it is taken.
    pub(crate) fn add_named(&mut self, user: &NewUser<'_>, shell: &str) {
        let NewUser { uid, gid, home, .. } = user;
        let name = self.free_name(user.name);
        append(&mut self.passwd, &format!("{name}:x:{uid}:{gid}::{home}:{shell}"));
    }

    fn free_name(&self, base: &str) -> String {
        free(base, |name| self.users().any(|it| it.name == name))
    }

    /// Adds a group with a generated name, unless one has that gid. Returns whether it was added.
    pub(crate) fn add_group(&mut self, gid: u32) -> bool {
        self.add_group_named(gid, base(gid))
    }

    /// As [`add_group`](Self::add_group), with this name, or with a number added if it is taken.
    pub(crate) fn add_group_named(&mut self, gid: u32, name: &str) -> bool {
        if lines(&self.group).filter_map(group).any(|it| it.gid == gid) {
            return false;
        }
        let name = free(name, |name| lines(&self.group).filter_map(group).any(|it| it.name == name.as_bytes()));
        append(&mut self.group, &format!("{name}:x:{gid}:"));
        true
    }

    fn groups_of(&self, name: &str) -> Vec<u32> {
        let live_process_with_limit =
            |it: &Group<'_>| it.members.split(|byte| *byte == b',').any(|it| it == name.as_bytes());
        let mut groups: Vec<u32> =
            lines(&self.group).filter_map(group).filter(live_process_with_limit).map(|it| it.gid).collect();
        groups.sort_unstable();
        groups.dedup();
        groups.truncate(MAX_GROUPS);
        groups
    }
}

struct Group<'a> {
    name: &'a [u8],
    gid: u32,
    members: &'a [u8],
}

fn lines(table: &[u8]) -> impl Iterator<Item = &[u8]> {
    table.split(|byte| *byte == b'\n')
}

fn user(line: &[u8]) -> Option<PasswdEntry> {
    let mut fields = line.split(|byte| *byte == b':');
    let name = text(fields.next()?)?;
    let (uid, gid) = (number(fields.nth(1)?)?, number(fields.next()?)?);
    let (home, shell) = (fields.nth(1).unwrap_or_default(), fields.next().unwrap_or_default());
    let is_invalid = name.is_empty() || name.starts_with(['#', '+', '-']);
    (!is_invalid).then_some(PasswdEntry { name, uid, gid, home: text(home)?, shell: text(shell)? })
}

fn group(line: &[u8]) -> Option<Group<'_>> {
    let mut fields = line.split(|byte| *byte == b':');
    let name = fields.next().filter(|it| !it.is_empty() && !b"#+-".contains(&it[0]))?;
    let gid = number(fields.nth(1)?)?;
    Some(Group { name, gid, members: fields.next().unwrap_or_default().trim_ascii_end() })
}

/// Refuses texts that are too long or contain control characters.
fn text(field: &[u8]) -> Option<String> {
    let text = str::from_utf8(field).ok().filter(|it| it.len() <= MAX_FIELD)?;
    (!text.chars().any(char::is_control)).then(|| text.to_owned())
}

/// To the kernel the highest number means "no change", so no account has it.
fn number(field: &[u8]) -> Option<u32> {
    let digits = str::from_utf8(field).ok().filter(|it| it.bytes().all(|byte| byte.is_ascii_digit()))?;
    digits.parse().ok().filter(|it| *it != u32::MAX)
}

fn base(id: u32) -> &'static str {
    if id == 0 { "root" } else { "agent" }
}

fn free(base: &str, taken: impl Fn(&str) -> bool) -> String {
    let numbered = (2u32..).map(|it| format!("{base}{it}"));
    std::iter::once(base.to_owned()).chain(numbered).find(|it| !taken(it)).expect("a table cannot contain all names")
}

fn append(table: &mut Vec<u8>, line: &str) {
    if table.last().is_some_and(|it| *it != b'\n') {
        table.push(b'\n');
    }
    table.extend_from_slice(line.as_bytes());
    table.push(b'\n');
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PASSWD: &str = "root:x:0:0:root:/root:/bin/bash\n\
        # a remark\n\n:x:7:7::/:\nodd\nbad:x:one:1::/:\nmany:x:99999999999:1::/:\n+nis::::::\n\
        node:x:1000:1001:J\u{f6}rg,,,:/home/node:/bin/sh\ntwin:x:1000:5::/twin:/bin/sh\nshort:x:8:9";
    const GROUP: &str = "root:x:0:\nwheel:x:10:root,node\ndocker:x:12:nodes\nrubbish\nagain:x:10:node\nlast:x:11:node";

    fn tables(passwd: &str, group: &str) -> Tables {
        Tables { passwd: passwd.into(), group: group.into() }
    }

    fn text_of(table: &[u8]) -> &str {
        str::from_utf8(table).unwrap()
    }

    #[test]
    fn a_user_is_found_among_invalid_lines() {
        let tables = tables(PASSWD, GROUP);
        let names: Vec<_> = tables.users().map(|user| user.name).collect();
        assert_eq!(names, ["root", "node", "twin", "short"]);
        let node = tables.user(1000).unwrap();
        assert_eq!((node.gid, &*node.home, &*node.shell), (1001, "/home/node", "/bin/sh"));
        assert_eq!(tables.user(8).unwrap().home, "");
        assert_eq!(tables.user(7), None);
    }

    #[test]
    fn numeric_ids_need_no_entry() {
        let tables = tables(PASSWD, GROUP);
        for (uid, gid, expected, groups) in [
            (1000, None, 1001, vec![10, 11]),
            (1000, Some(5), 5, vec![10, 11]),
            (4242, None, 4242, vec![]),
            (4242, Some(1), 1, vec![]),
            (0, None, 0, vec![10]),
        ] {
            assert_eq!(tables.numbers(uid, gid), Ids { uid, gid: expected, groups }, "{uid} {gid:?}");
        }
    }

    #[test]
    fn names_are_resolved_to_ids() {
        let tables = tables(PASSWD, GROUP);
        assert_eq!(tables.named("node"), Some(tables.numbers(1000, None)));
        assert_eq!((tables.named("nobody"), tables.named("")), (None, None));
    }

    #[test]
    fn an_added_user_gets_a_free_name_and_a_separate_line() {
        let mut tables = tables("root:x:0:0::/root:/bin/sh\nagent:x:5:5::/:", "agent:x:5:\n");
        assert_eq!(tables.add_user(1000, 1000, "/bin/sh").home, "/home/agent2");
        assert!(tables.add_group(1000) && !tables.add_group(1000));
        assert!(text_of(&tables.passwd).ends_with(":/:\nagent2:x:1000:1000::/home/agent2:/bin/sh\n"));
        assert_eq!(text_of(&tables.group), "agent:x:5:\nagent2:x:1000:\n");
    }

    #[test]
    fn root_is_added_to_an_image_without_tables() {
        let mut tables = Tables::default();
        assert_eq!(tables.add_user(0, 0, "/bin/sh").name, "root");
        tables.add_group(0);
        assert_eq!((text_of(&tables.passwd), text_of(&tables.group)), ("root:x:0:0::/root:/bin/sh\n", "root:x:0:\n"));
    }

    proptest! {
        #[test]
        fn any_table_can_be_extended(passwd in "[a-c0-9:\n\0,+\u{e9}]{0,80}", group in "[a-c0-9:\n,]{0,80}", uid in 0u32..12) {
            let mut tables = tables(&passwd, &group);
            let entry = tables.user(uid).unwrap_or_else(|| tables.add_user(uid, 7, "/bin/sh"));
            tables.add_group(7);
            prop_assert_eq!(tables.user(uid), Some(entry.clone()));
            prop_assert!(tables.named(&entry.name).is_some());
        }
    }

    #[test]
    fn invalid_fields_make_no_entry() {
        let long = "x".repeat(MAX_FIELD + 1);
        for line in [format!("{long}:x:1:1::/:/bin/sh"), format!("a:x:1:1::/{long}:"), "a:x:1:1::/\u{1b}[2J:".into()] {
            assert_eq!(tables(&line, "").user(1), None, "{line:.40}");
        }
        assert!(tables(&format!("{}:x:1:1::/:", &long[1..]), "").user(1).is_some());
    }
}
