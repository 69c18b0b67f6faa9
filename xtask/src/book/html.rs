//! What is wrong with the built book: what it loads from another host, and links that lead nowhere.

use std::collections::BTreeSet;

/// A file of the built book.
#[derive(Debug)]
pub(super) struct BuiltFile {
    /// From the book's root.
    pub(super) path: String,
    pub(super) text: String,
}

/// All faults, one sentence each. `files` are the paths of everything that was built.
pub(super) fn faults(built: &[BuiltFile], files: &BTreeSet<String>) -> Vec<String> {
    let mut faults = Vec::new();
    for file in built {
        faults.extend(loads(file).into_iter().map(|it| format!("{}: loads `{it}`", file.path)));
        let missing = targets(file).into_iter().filter(|it| !files.contains(&resolved(&file.path, it)));
        faults.extend(missing.map(|it| format!("{}: `{it}` is not there", file.path)));
    }
    faults
}

/// The values of an attribute, or of `url(…)` in a style sheet.
fn values<'a>(text: &'a str, before: &str, end: char) -> Vec<&'a str> {
    text.split(before).skip(1).filter_map(|it| it.split_once(end)).map(|it| it.0).collect()
}

fn is_elsewhere(target: &str) -> bool {
    let target = target.trim_matches(['"', '\'']);
    // Data within the page may name a namespace.
    !target.starts_with("data:") && (target.starts_with("//") || target.contains("://"))
}

/// What a browser fetches from another host to show it. A link that a reader follows is none.
fn loads(file: &BuiltFile) -> Vec<&str> {
    let text = file.text.as_str();
    let mut loaded = match file.path.ends_with(".css") {
        true => [values(text, "url(", ')'), values(text, "@import ", ';')].concat(),
        false => values(text, " src=\"", '"'),
    };
    loaded.extend(values(text, "<link ", '>').into_iter().flat_map(|it| values(it, "href=\"", '"')));
    loaded.retain(|it| is_elsewhere(it));
    loaded
}

/// Pages and images of the book that a page names. Scripts and style sheets are mdBook's own: Debian's lacks some.
fn targets(file: &BuiltFile) -> Vec<&str> {
    if !file.path.ends_with(".html") {
        return Vec::new();
    }
    let mut targets = [values(&file.text, " href=\"", '"'), values(&file.text, " src=\"", '"')].concat();
    let is_of_mdbook = |it: &str| it.ends_with(".css") || it.ends_with(".js");
    targets.retain(|it| !is_elsewhere(it) && !it.starts_with(['#', '/']) && !it.starts_with("mailto:"));
    targets.retain(|it| !is_of_mdbook(it));
    targets
}

fn resolved(page: &str, target: &str) -> String {
    let target = target.split(['#', '?']).next().unwrap_or_default();
    let mut parts: Vec<&str> = page.split('/').collect();
    parts.pop();
    for part in target.split('/').filter(|it| *it != ".") {
        match part {
            ".." => parts.truncate(parts.len().saturating_sub(1)),
            part => parts.push(part),
        }
    }
    let path = parts.join("/");
    if path.is_empty() || path.ends_with('/') { format!("{path}index.html") } else { path }
}

#[cfg(test)]
mod tests {
    use super::{BuiltFile, faults};

    #[test]
    fn what_is_loaded_from_elsewhere_and_what_is_not_there_is_found() {
        let file = |path: &str, text: &str| BuiltFile { path: path.to_owned(), text: text.to_owned() };
        let built = [
            file("index.html", "<a href=\"https://x\"> <script src=\"a.js\"></script> <a href=\"sub/b.html#c\">"),
            file(
                "sub/b.html",
                "<link rel=\"x\" href=\"https://fonts/x.css\"><img src=\"//x/y.png\"><a href=\"../c.html\">",
            ),
            file(
                "a.css",
                "x { background: url(\"https://x/y\"); } y { background: url('data:image/svg+xml,http://w3') }",
            ),
        ];
        let files = ["index.html", "sub/b.html", "a.js"].map(str::to_owned).into();
        assert_eq!(
            faults(&built, &files),
            [
                "sub/b.html: loads `//x/y.png`",
                "sub/b.html: loads `https://fonts/x.css`",
                "sub/b.html: `../c.html` is not there",
                "a.css: loads `\"https://x/y\"`",
            ]
        );
    }
}
