//! Dependencies between the modules of a crate.

use std::collections::{BTreeMap, BTreeSet};

use crate::facts::{Binding, Import};
use crate::load::{Crate, ROOT};
use crate::resolve::{Resolver, Target};

/// A module's use of an item of another module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Dependency {
    pub from: usize,
    pub to: usize,
    pub item: String,
    pub line: usize,
    /// The import or path as it stands there.
    pub text: String,
}

/// Every place in a crate where a module names an item of another one, in the order of the sources.
///
/// A module that re-exports what is defined below it only passes it on: that is no use of it.
pub fn dependencies(loaded: &Crate) -> Vec<Dependency> {
    let resolver = Resolver::new(loaded);
    let mut found = vec![];
    for (from, module) in loaded.modules.iter().enumerate() {
        let mut add = |to: usize, item: String, line: usize, text: String| {
            if to != from {
                found.push(Dependency { from, to, item, line, text });
            }
        };
        for import in &module.facts.imports {
            let Some((to, item)) = used_by_import(&resolver.resolve(from, &import.path), import) else { continue };
            if !(import.is_reexport && loaded.modules[to].path.starts_with(&module.path)) {
                add(to, item, import.line, text_of(import));
            }
        }
        for (path, line) in &module.facts.mentions {
            let text = path.join("::");
            match resolver.resolve(from, path) {
                Some(Target::Item { module, name }) => add(module, name, *line, text),
                // A derive is given a module, and names what it needs of it.
                Some(Target::Module(module)) if path.len() > 1 => add(module, text.clone(), *line, text),
                _ => {}
            }
        }
    }
    found.sort_by(|a, b| (a.from, a.line, &a.text).cmp(&(b.from, b.line, &b.text)));
    found
}

/// An imported module is used where something in it is named. A re-export of it is a use by itself.
fn used_by_import(target: &Option<Target>, import: &Import) -> Option<(usize, String)> {
    match target.clone()? {
        Target::Item { module, name } => Some((module, name)),
        Target::Module(module) if import.is_reexport && import.binding != Binding::Glob => {
            Some((module, import.path.last().cloned().unwrap_or_default()))
        }
        Target::Module(_) => None,
    }
}

fn text_of(import: &Import) -> String {
    let keyword = if import.is_reexport { "pub use" } else { "use" };
    let path = import.path.join("::");
    match &import.binding {
        Binding::Glob => format!("{keyword} {path}::*"),
        Binding::Name(name) if import.path.last() != Some(name) => format!("{keyword} {path} as {name}"),
        _ => format!("{keyword} {path}"),
    }
}

/// A graph between top-level modules or files, with the dependencies that make each edge.
pub type Graph = BTreeMap<String, BTreeMap<String, Vec<Dependency>>>;

/// The top-level modules of a crate. The root is a node as far as it defines something.
pub fn between_modules(loaded: &Crate, found: &[Dependency]) -> Graph {
    graph(found, |module| loaded.top(module).to_owned())
}

/// The files of a crate, whatever their depth, by their paths below `src`.
pub fn between_files(loaded: &Crate, found: &[Dependency]) -> Graph {
    graph(found, |module| loaded.file_of(module).rsplit_once("src/").map_or("", |(_, path)| path).to_owned())
}

fn graph(found: &[Dependency], node: impl Fn(usize) -> String) -> Graph {
    let mut graph = Graph::new();
    for it in found {
        let (from, to) = (node(it.from), node(it.to));
        if from != to {
            graph.entry(to.clone()).or_default();
            graph.entry(from).or_default().entry(to).or_default().push(it.clone());
        }
    }
    graph
}

/// `crates/cli/src/call.rs:12  use crate::args::Seconds`, the plainest place of an edge: an import, if there is one.
pub fn witness(loaded: &Crate, edge: &[Dependency]) -> String {
    let plain = edge.iter().find(|it| it.text.contains("use ")).or(edge.first());
    plain.map_or_else(String::new, |it| format!("{}:{}  {}", loaded.file_of(it.from), it.line, it.text))
}

/// All top-level modules, also those that use nothing.
pub fn modules(loaded: &Crate) -> BTreeSet<&str> {
    (0..loaded.modules.len()).map(|it| loaded.top(it)).filter(|it| *it != ROOT).collect()
}
