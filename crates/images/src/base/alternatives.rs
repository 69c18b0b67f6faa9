//! The alternatives system: generic names such as `awk`, for the programs that are packed. Pure.

use std::path::Path;

use super::tree::{Node, Tree};

/// One generic name, from its file in `/var/lib/dpkg/alternatives`.
#[derive(Debug, PartialEq, Eq)]
struct Alternative<'a> {
    link: &'a str,
    /// Name and link of each slave.
    slaves: Vec<(&'a str, &'a str)>,
    choices: Vec<Choice<'a>>,
}

#[derive(Debug, PartialEq, Eq)]
struct Choice<'a> {
    path: &'a str,
    priority: i32,
    /// One path per slave; empty where this choice has none.
    slaves: Vec<&'a str>,
}

/// Adds the links of one generic name, and its record with the choices that are packed. `place` resolves a path of
/// dpkg's. The host's manual choices are ignored: the base is in automatic mode.
pub(super) fn add(tree: &mut Tree, name: &str, record: &str, place: impl Fn(&str) -> std::path::PathBuf) {
    let Some(mut it) = read(record) else { return };
    it.choices.retain(|choice| tree.has(place(choice.path)));
    let Some(best) = it.choices.iter().max_by_key(|choice| choice.priority) else { return };
    let masters = [(name, it.link, best.path)];
    let slaves = it.slaves.iter().zip(&best.slaves).map(|((name, link), path)| (*name, *link, *path));
    for (name, link, path) in masters.into_iter().chain(slaves) {
        if path.is_empty() || !tree.has(place(path)) {
            continue;
        }
        let middle = Path::new("/etc/alternatives").join(name);
        tree.put(&middle, Node::Link(path.into()));
        tree.put_new(place(link), Node::Link(middle));
    }
    tree.put(Path::new("var/lib/dpkg/alternatives").join(name), Node::text(write(&it)));
}

fn read(record: &str) -> Option<Alternative<'_>> {
    let mut lines = record.lines();
    let (_mode, link) = (lines.next()?, lines.next()?);
    let mut slaves = Vec::new();
    while let Some(name) = lines.next().filter(|it| !it.is_empty()) {
        slaves.push((name, lines.next()?));
    }
    let mut choices = Vec::new();
    while let Some(path) = lines.next().filter(|it| !it.is_empty()) {
        let priority = lines.next()?.parse().ok()?;
        choices.push(Choice { path, priority, slaves: lines.by_ref().take(slaves.len()).collect() });
    }
    Some(Alternative { link, slaves, choices })
}

fn write(it: &Alternative<'_>) -> String {
    let mut text = format!("auto\n{}\n", it.link);
    text.extend(it.slaves.iter().map(|(name, link)| format!("{name}\n{link}\n")));
    text.push('\n');
    for choice in &it.choices {
        text += &format!("{}\n{}\n", choice.path, choice.priority);
        text.extend(choice.slaves.iter().map(|path| format!("{path}\n")));
    }
    text + "\n"
}

#[cfg(test)]
mod tests {
    use insta::assert_snapshot;

    use super::*;

    const EDITOR: &str = "manual\n/usr/bin/editor\neditor.1.gz\n/usr/share/man/man1/editor.1.gz\nview\n/usr/bin/view\n\n\
                          /bin/ed\n-100\n/usr/share/man/man1/ed.1.gz\n\n/usr/bin/vim\n30\n\n/usr/bin/vim\n\
                          /usr/bin/nano\n40\n\n\n\n";

    fn links(packed: &[&str]) -> String {
        let mut tree = Tree::default();
        packed.iter().for_each(|it| tree.put(it, Node::text("")));
        add(&mut tree, "editor", EDITOR, |path| {
            path.replace("/bin/ed", "/usr/bin/ed").replace("/usr/usr", "/usr").into()
        });
        let shown = tree.iter().filter_map(|(path, node)| match node {
            Node::Link(target) => Some(format!("{} -> {}", path.display(), target.display())),
            Node::File { bytes, .. } if !bytes.is_empty() => {
                Some(format!("{}\n{}", path.display(), String::from_utf8_lossy(bytes)))
            }
            _ => None,
        });
        shown.collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn the_best_packed_choice_is_linked_with_its_slaves() {
        assert_snapshot!(links(&["usr/bin/ed", "usr/bin/vim"]), @r"
        etc/alternatives/editor -> /usr/bin/vim
        etc/alternatives/view -> /usr/bin/vim
        usr/bin/editor -> /etc/alternatives/editor
        usr/bin/view -> /etc/alternatives/view
        var/lib/dpkg/alternatives/editor
        auto
        /usr/bin/editor
        editor.1.gz
        /usr/share/man/man1/editor.1.gz
        view
        /usr/bin/view

        /bin/ed
        -100
        /usr/share/man/man1/ed.1.gz

        /usr/bin/vim
        30

        /usr/bin/vim
        ");
    }

    #[test]
    fn a_name_without_a_packed_program_is_left_out() {
        assert_eq!(links(&["usr/bin/other"]), "");
    }

    #[test]
    fn a_record_survives_reading_and_writing() {
        assert_eq!(write(&read(EDITOR).unwrap()), EDITOR.replace("manual", "auto"));
        assert_eq!(read("auto\n/usr/bin/x\n\n/bin/y\nno number\n"), None);
    }
}
