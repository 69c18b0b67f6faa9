//! The module tree of a crate, from its root file.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path as FilePath;
use std::sync::Mutex;
use std::thread;

use anyhow::{Context as _, Result};

use crate::extract::{extract, test_lines};
use crate::facts::{Body, Child, Lines, ModuleFacts};

#[derive(Debug)]
pub struct Crate {
    /// The directory below `crates`.
    pub name: String,
    /// The root comes first, and every module after its parent.
    pub modules: Vec<Module>,
    /// Files, the root file first; those for tests alone too.
    pub files: Vec<File>,
}

#[derive(Debug)]
pub struct Module {
    /// Path from the crate's root; empty for the root itself.
    pub path: Vec<String>,
    pub parent: Option<usize>,
    pub file: usize,
    pub facts: ModuleFacts,
    pub children: BTreeMap<String, usize>,
}

#[derive(Debug)]
pub struct File {
    /// Path from the project's root.
    pub path: String,
    /// The module that the file holds, also where that is for tests alone.
    pub module: Vec<String>,
    pub lines: Lines,
}

/// Name of the crate's root where modules are listed.
pub const ROOT: &str = "crate";

impl Crate {
    /// The first segment of a module's path.
    pub fn top(&self, module: usize) -> &str {
        top(&self.modules[module].path)
    }

    pub fn file_of(&self, module: usize) -> &str {
        &self.files[self.modules[module].file].path
    }

    pub fn lines(&self) -> Lines {
        total(self.files.iter())
    }

    /// Lines by top-level module.
    pub fn lines_by_module(&self) -> BTreeMap<&str, Lines> {
        let mut lines: BTreeMap<&str, Lines> = BTreeMap::new();
        for file in &self.files {
            *lines.entry(top(&file.module)).or_default() += file.lines;
        }
        lines
    }
}

pub fn top(path: &[String]) -> &str {
    path.first().map_or(ROOT, String::as_str)
}

pub fn total<'a>(files: impl Iterator<Item = &'a File>) -> Lines {
    files.fold(Lines::default(), |mut sum, it| {
        sum += it.lines;
        sum
    })
}

/// Lines of code of all crates.
pub fn total_code(crates: &[Crate]) -> usize {
    crates.iter().map(|loaded| loaded.lines().code).sum()
}

/// All crates below `crates`, by name.
///
/// Syntax trees cannot leave their thread, so each crate is read by one; the largest begin first.
pub fn workspace(root: &FilePath) -> Result<Vec<Crate>> {
    let mut names: Vec<String> = vec![];
    for entry in fs::read_dir(root.join("crates"))? {
        names.push(entry?.file_name().to_string_lossy().into_owned());
    }
    names.sort_by_key(|it| fs::read_dir(root.join("crates").join(it).join("src")).map_or(0, Iterator::count));
    let (queue, loaded) = (Mutex::new(names), Mutex::new(vec![]));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(name) = next(&queue) {
                    let result = from_disk(root, &name);
                    loaded.lock().expect("no thread panics").push(result);
                }
            });
        }
    });
    let mut crates = loaded.into_inner().expect("no thread panics").into_iter().collect::<Result<Vec<_>>>()?;
    crates.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(crates)
}

fn next(queue: &Mutex<Vec<String>>) -> Option<String> {
    queue.lock().expect("no thread panics").pop()
}

fn from_disk(root: &FilePath, name: &str) -> Result<Crate> {
    let folder = format!("crates/{name}/src");
    let library = format!("{folder}/lib.rs");
    let start = if root.join(&library).is_file() { library } else { format!("{folder}/main.rs") };
    load(name, &start, &|path| fs::read_to_string(root.join(path)).ok())
}

/// A crate whose root is the file `start`. `read` gives the text of a file, or nothing if there is none.
pub fn load(name: &str, start: &str, read: &dyn Fn(&str) -> Option<String>) -> Result<Crate> {
    let mut loader = Loader { loaded: Crate { name: name.to_owned(), modules: vec![], files: vec![] }, read };
    let text = read(start).with_context(|| format!("{start} is missing"))?;
    loader.file(start, &text, Place { path: vec![], parent: None, is_root: true })?;
    Ok(loader.loaded)
}

struct Loader<'a> {
    loaded: Crate,
    read: &'a dyn Fn(&str) -> Option<String>,
}

/// The position of a module in the tree.
struct Place {
    path: Vec<String>,
    parent: Option<usize>,
    is_root: bool,
}

impl Loader<'_> {
    fn file(&mut self, file: &str, text: &str, place: Place) -> Result<()> {
        let facts = extract(text).with_context(|| format!("{file} cannot be parsed"))?;
        let folder = folder_of_children(file, place.is_root);
        self.loaded.files.push(File { path: file.to_owned(), module: place.path.clone(), lines: facts.lines });
        let number = self.loaded.files.len() - 1;
        self.module(facts.module, number, &folder, place)
    }

    fn module(&mut self, mut facts: ModuleFacts, file: usize, folder: &str, place: Place) -> Result<()> {
        let children = std::mem::take(&mut facts.children);
        let Place { path, parent, .. } = place;
        let number = self.loaded.modules.len();
        if let (Some(parent), Some(name)) = (parent, path.last()) {
            self.loaded.modules[parent].children.insert(name.clone(), number);
        }
        self.loaded.modules.push(Module { path, parent, file, facts, children: BTreeMap::new() });
        for child in children {
            self.child(child, number, folder)?;
        }
        Ok(())
    }

    fn child(&mut self, child: Child, parent: usize, folder: &str) -> Result<()> {
        let (file, path) = (self.loaded.modules[parent].file, self.loaded.modules[parent].path.clone());
        let place = Place { path: [path, vec![child.name.clone()]].concat(), parent: Some(parent), is_root: false };
        let given = match child.body {
            Body::Inline(facts) => return self.module(facts, file, &format!("{folder}/{}", child.name), place),
            Body::File { path } => path,
        };
        let beside = self.loaded.files[file].path.rsplit_once('/').map_or("", |it| it.0).to_owned();
        let candidates =
            given.map_or_else(|| usual_files(folder, &child.name).to_vec(), |it| vec![format!("{beside}/{it}")]);
        let found = candidates.iter().find_map(|it| Some((it, (self.read)(it)?)));
        let (file, text) =
            found.with_context(|| format!("no file for `mod {}`: {}", child.name, candidates.join(", ")))?;
        if !child.is_test {
            return self.file(file, &text, place);
        }
        self.test_file(file, &text, &place.path);
        Ok(())
    }

    /// A file for tests alone: nothing but its lines counts, and those of the files that it declares.
    fn test_file(&mut self, file: &str, text: &str, path: &[String]) {
        let folder = folder_of_children(file, false);
        self.loaded.files.push(File { path: file.to_owned(), module: path.to_vec(), lines: test_lines(text) });
        for name in text.lines().filter_map(|it| it.trim().strip_prefix("mod ")?.strip_suffix(';')) {
            let candidates = usual_files(&folder, name);
            if let Some((file, text)) = candidates.iter().find_map(|it| Some((it, (self.read)(it)?))) {
                self.test_file(file, &text, &[path, &[name.to_owned()]].concat());
            }
        }
    }
}

/// The usual paths of a module's file.
fn usual_files(folder: &str, name: &str) -> [String; 2] {
    [format!("{folder}/{name}.rs"), format!("{folder}/{name}/mod.rs")]
}

/// The folder of the files of a file's modules.
fn folder_of_children(file: &str, is_root: bool) -> String {
    let (folder, name) = file.rsplit_once('/').unwrap_or(("", file));
    if is_root || name == "mod.rs" { folder.to_owned() } else { format!("{folder}/{}", name.trim_end_matches(".rs")) }
}
