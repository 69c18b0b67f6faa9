//! Facts of one source file after parsing: plain data, without syntax trees.

use std::collections::BTreeMap;

/// A path as it stands in the source, without generic arguments: `["super", "records", "Record"]`.
pub type Path = Vec<String>;

#[derive(Debug, Default)]
pub struct FileFacts {
    pub module: ModuleFacts,
    pub lines: Lines,
}

/// Lines that are neither empty nor comments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lines {
    pub code: usize,
    pub tests: usize,
}

impl std::ops::AddAssign for Lines {
    fn add_assign(&mut self, other: Self) {
        self.code += other.code;
        self.tests += other.tests;
    }
}

/// A module without its tests. Modules declared inside another one in the same file are [`Body::Inline`].
#[derive(Debug, Default)]
pub struct ModuleFacts {
    pub children: Vec<Child>,
    pub imports: Vec<Import>,
    pub definitions: Vec<Definition>,
    /// Paths outside of `use`, each with the first line where it stands.
    pub mentions: BTreeMap<Path, usize>,
}

#[derive(Debug)]
pub struct Child {
    pub name: String,
    pub is_test: bool,
    pub body: Body,
}

#[derive(Debug)]
pub enum Body {
    /// In a file of its own, at the path of a `#[path]` attribute or at the usual one.
    File {
        path: Option<String>,
    },
    Inline(ModuleFacts),
}

#[derive(Debug)]
pub struct Import {
    pub path: Path,
    pub binding: Binding,
    pub line: usize,
    /// Whether other modules may import it from here.
    pub is_reexport: bool,
}

#[derive(Debug, PartialEq, Eq)]
pub enum Binding {
    Name(String),
    Glob,
    /// `as _`: it is a dependency, but binds no name in the module.
    Nothing,
}

/// An item of a module that other modules can name.
#[derive(Debug)]
pub struct Definition {
    pub name: String,
    pub is_macro: bool,
}
