//! Sizes of files, functions and traits beside what the house style aims at. Printed, never a failure: a number that
//! is over its budget asks for a sentence, not for a split.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::sh::root;

const FILE_LINES: usize = 300;
const FUNCTION_LINES: usize = 50;
const ARGUMENTS: usize = 4;
const TRAIT_METHODS: usize = 16;

pub(super) fn print() -> Result<()> {
    let (mut files, mut functions, mut over) = (vec![], vec![], vec![]);
    for path in sources()? {
        let name = path.strip_prefix(root()).unwrap_or(&path).display().to_string();
        let text = fs::read_to_string(&path)?;
        let text = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
        let lines = text.lines().filter(|it| is_code(it)).count();
        if lines > FILE_LINES {
            over.push(format!("{name}: {lines} lines"));
        }
        files.push(lines);
        for block in blocks(text) {
            match block {
                Block::Function { name: function, lines, arguments } => {
                    functions.push(lines);
                    if lines > FUNCTION_LINES {
                        over.push(format!("{name}: `{function}` has {lines} lines"));
                    }
                    if arguments > ARGUMENTS {
                        over.push(format!("{name}: `{function}` takes {arguments} arguments"));
                    }
                }
                Block::Trait { name: this, methods } if methods > TRAIT_METHODS => {
                    over.push(format!("{name}: trait `{this}` has {methods} methods"));
                }
                Block::Trait { .. } => {}
            }
        }
    }
    println!(
        "  files: median {} lines (100), longest {} ({FILE_LINES})",
        median(&mut files),
        files.last().unwrap_or(&0)
    );
    println!(
        "  functions: median {} lines (8), longest {} ({FUNCTION_LINES})",
        median(&mut functions),
        functions.last().unwrap_or(&0)
    );
    println!("  over budget: {}", if over.is_empty() { "none" } else { "" });
    for line in over {
        println!("    {line}");
    }
    Ok(())
}

fn sources() -> Result<Vec<PathBuf>> {
    let mut folders: Vec<PathBuf> = vec![root().join("xtask/src")];
    folders.extend(
        fs::read_dir(root().join("crates"))?.flatten().map(|it| it.path().join("src")).filter(|it| it.is_dir()),
    );
    let mut files = vec![];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(&folder)?.flatten().map(|it| it.path()) {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|it| it == "rs")
                && path.file_name() != Path::new("tests.rs").file_name()
            {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

#[derive(Debug, PartialEq, Eq)]
enum Block {
    Function { name: String, lines: usize, arguments: usize },
    Trait { name: String, methods: usize },
}

/// Functions with a body, and traits. Formatted code ends a block at the indentation where it began.
fn blocks(text: &str) -> Vec<Block> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = vec![];
    for (at, line) in lines.iter().enumerate() {
        let indent = &line[..line.len() - line.trim_start().len()];
        let (Some(kind), Some(name)) = declared(line) else { continue };
        let closing = format!("{indent}}}");
        let body = |it: &&&str| !it.starts_with(&closing);
        if kind == "trait" {
            let methods = lines[at + 1..]
                .iter()
                .take_while(body)
                .filter(|it| declared(it).0 == Some("fn") && it.len() - it.trim_start().len() == indent.len() + 4);
            found.push(Block::Trait { name, methods: methods.count() });
        } else if let Some(signature) = signature(&lines[at..]) {
            let one_line = signature.lines == 1 && line.trim_end().ends_with('}');
            let inside = lines[at + signature.lines..].iter().take_while(body).filter(|it| is_code(it)).count();
            found.push(Block::Function {
                name,
                lines: if one_line { 1 } else { inside },
                arguments: signature.arguments,
            });
        }
    }
    found
}

/// The keyword and the name of a declaration.
fn declared(line: &str) -> (Option<&'static str>, Option<String>) {
    let words: Vec<&str> = line.split_whitespace().take(6).collect();
    let leading = |it: &&str| it.starts_with("pub") || ["async", "const", "unsafe", "extern", "\"C\""].contains(it);
    let at = words.iter().take_while(|it| leading(it)).count();
    let kind = match words.get(at) {
        Some(&"fn") => Some("fn"),
        Some(&"trait") => Some("trait"),
        _ => None,
    };
    let name = words.get(at + 1).and_then(|it| it.split(|c: char| !c.is_alphanumeric() && c != '_').next());
    (kind, kind.and(name).map(str::to_owned))
}

struct Signature {
    lines: usize,
    arguments: usize,
}

/// From `fn` to the `{` of its body, the receiver not counted; none where a `;` comes first.
fn signature(lines: &[&str]) -> Option<Signature> {
    let (mut depth, mut arguments, mut text, mut inside) = (0_i32, 0_usize, false, false);
    for (number, line) in lines.iter().enumerate() {
        let line = if number == 0 { line.split_once("fn ")?.1 } else { line };
        for c in line.replace("->", "  ").chars() {
            match c {
                '(' | '[' | '<' => {
                    inside |= c == '(' && depth == 0;
                    depth += 1;
                }
                ')' | ']' | '>' if depth > 0 => {
                    depth -= 1;
                    if depth == 0 && inside {
                        arguments += usize::from(text);
                        (inside, text) = (false, false);
                    }
                }
                ',' if depth == 1 && inside => {
                    arguments += usize::from(text);
                    text = false;
                }
                '{' if depth == 0 => {
                    let words = lines[..=number].concat();
                    let receiver = ["self,", "self)"].iter().any(|it| words.contains(it));
                    return Some(Signature { lines: number + 1, arguments: arguments - usize::from(receiver) });
                }
                ';' if depth == 0 => return None,
                _ => text |= inside && !c.is_whitespace(),
            }
        }
    }
    None
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

fn median(numbers: &mut [usize]) -> usize {
    numbers.sort_unstable();
    numbers.get(numbers.len() / 2).copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_and_traits_are_measured() {
        let text = "\
pub(crate) trait Engine {
    fn one(&self);
    async fn two(&self, name: &str) -> Result<()>;
}

pub(crate) async fn long<T>(a: Vec<(u8, u8)>, b: [u8; 2], c: impl Fn(u8, u8) -> u8) -> u8
where
    T: Sized,
{
    // a remark

    let it = 1;
    it
}

fn short(&self, a: u8) -> u8 { 1 }
";
        let function = |name: &str, lines, arguments| Block::Function { name: name.to_owned(), lines, arguments };
        assert_eq!(
            blocks(text),
            [Block::Trait { name: "Engine".to_owned(), methods: 2 }, function("long", 2, 3), function("short", 1, 1)]
        );
    }
}
