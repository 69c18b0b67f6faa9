//! Nothing of the place where it was written.

use super::project::{Source, files, source};

fn homely(source: &Source) -> Vec<String> {
    // Put together here, so that this file does not find itself.
    let words =
        [["/work", "/main"], ["/work", "/shared"], ["/work", "/.library"], [".lib", "rary/"]].map(|it| it.concat());
    let found = words.iter().filter(|it| source.text.contains(*it));
    found.map(|it| format!("{}: names `{it}`, a place on one machine", source.path)).collect()
}

#[test]
fn no_file_names_a_place_on_one_machine() {
    let all = files(&["rs", "md", "toml", "py", "sh", "json", "yml", "yaml", "snap", "txt", ""]);
    let faults: Vec<String> = all.iter().flat_map(homely).collect();
    assert_eq!(faults, Vec::<String>::new());
}

#[test]
fn a_place_on_one_machine_is_found() {
    assert_eq!(homely(&source("README.md", &["see /work", "/main/README"].concat())).len(), 1);
}
