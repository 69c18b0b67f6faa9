//! The passwd and group files of an image, to which entries are only added.

use coracle_types::Ids;

/// An entry of the passwd file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PasswdEntry {
    pub(super) name: String,
    pub(super) home: String,
    pub(super) shell: String,
}

/// Finds the first entry with that uid.
pub(super) fn find_user(table: &[u8], uid: u32) -> Option<PasswdEntry> {
    let line = lines(table).find(|fields| fields.get(2).and_then(|it| it.parse().ok()) == Some(uid))?;
    let field = |at: usize| line.get(at).copied().unwrap_or_default().to_owned();
    let (name, home) = (field(0), field(5));
    let is_absolute = home.len() > 1 && home.starts_with('/');
    let home = if is_absolute { home } else { format!("/home/{name}") };
    Some(PasswdEntry { name, home, shell: field(6) })
}

/// Adds an entry, under a free name.
pub(super) fn add_user(table: &mut Vec<u8>, user: Ids, shell: &str) -> PasswdEntry {
    let is_taken = |name: &str| lines(table).any(|fields| fields.first() == Some(&name));
    let names = (1..).map(|number: u32| if number == 1 { "agent".to_owned() } else { format!("agent{number}") });
    let root = user.is_root().then(|| "root".to_owned());
    let name = root.into_iter().chain(names).find(|name| !is_taken(name)).unwrap_or_default();
    let home = if user.is_root() { "/root".to_owned() } else { format!("/home/{name}") };
    add_line(table, &format!("{name}:x:{}:{}::{home}:{shell}", user.uid, user.gid));
    PasswdEntry { name, home, shell: shell.to_owned() }
}

/// Adds a group under the name of its user, or under its number if that name is taken. Returns whether it was missing.
pub(super) fn add_group(table: &mut Vec<u8>, gid: u32, name: &str) -> bool {
    if lines(table).any(|fields| fields.get(2).and_then(|it| it.parse().ok()) == Some(gid)) {
        return false;
    }
    let is_taken = lines(table).any(|fields| fields.first() == Some(&name));
    let number = format!("group{gid}");
    add_line(table, &format!("{}:x:{gid}:", if is_taken { &number } else { name }));
    true
}

/// Returns the fields of each line that is valid UTF-8.
fn lines(table: &[u8]) -> impl Iterator<Item = Vec<&str>> {
    let lines = table.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter(|line| !line.is_empty()).map(|line| line.split(':').collect())
}

fn add_line(table: &mut Vec<u8>, line: &str) {
    if table.last().is_some_and(|byte| *byte != b'\n') {
        table.push(b'\n');
    }
    table.extend_from_slice(line.as_bytes());
    table.push(b'\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ids(uid: u32, gid: u32) -> Ids {
        Ids { uid, gid }
    }

    #[test]
    fn an_existing_entry_is_not_changed_and_a_new_one_gets_a_free_name() {
        let mut table = b"root:x:0:0::/root:/bin/sh\nagent:x:5:5::/home/agent:/bin/sh\n\xff\nme:x:7:7:::".to_vec();
        let before = table.clone();
        let me = PasswdEntry { name: "me".into(), home: "/home/me".into(), shell: String::new() };
        assert_eq!(find_user(&table, 7), Some(me));
        assert_eq!(find_user(&table, 0).unwrap().home, "/root");
        assert_eq!((find_user(&table, 9), &table), (None, &before));
        let added = add_user(&mut table, ids(9, 10), "/bin/sh");
        assert_eq!((added.name.as_str(), added.home.as_str()), ("agent2", "/home/agent2"));
        assert_eq!(table, [&before[..], b"\nagent2:x:9:10::/home/agent2:/bin/sh\n"].concat());
        assert_eq!(find_user(&table, 9), Some(added));
    }

    #[test]
    fn root_of_an_image_without_accounts_is_root() {
        let mut table = Vec::new();
        let root = add_user(&mut table, Ids::ROOT, "/bin/sh");
        assert_eq!((root.name.as_str(), root.home.as_str()), ("root", "/root"));
        assert_eq!(table, b"root:x:0:0::/root:/bin/sh\n");
    }

    #[test]
    fn a_group_is_added_once_and_takes_no_existing_name() {
        let mut table = b"agent:x:5:\n".to_vec();
        assert!(!add_group(&mut table, 5, "other"));
        assert!(add_group(&mut table, 9, "agent") && add_group(&mut table, 10, "me"));
        assert!(!add_group(&mut table, 9, "agent"));
        assert_eq!(table, b"agent:x:5:\ngroup9:x:9:\nme:x:10:\n");
    }
}
