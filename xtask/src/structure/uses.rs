//! The leaves of a `use` item.

use syn::{Ident, ItemUse, UseTree};

use crate::facts::{Binding, Import, Path};

/// The imports of each name or glob of `use a::{b, c::*}`. Paths that begin with `::` lead to other crates and are left
/// out.
pub(crate) fn imports(item: &ItemUse, is_reexport: bool) -> Vec<Import> {
    let mut leaves = Leaves { is_reexport, found: vec![] };
    if item.leading_colon.is_none() {
        let line = item.use_token.span.start().line;
        leaves.walk(&item.tree, &[], line);
    }
    leaves.found
}

struct Leaves {
    is_reexport: bool,
    found: Vec<Import>,
}

impl Leaves {
    fn walk(&mut self, tree: &UseTree, prefix: &[String], line: usize) {
        match tree {
            UseTree::Path(it) => self.walk(&it.tree, &joined(prefix, &it.ident), line_of(&it.ident)),
            UseTree::Name(it) => self.push(prefix, &it.ident, &it.ident),
            UseTree::Rename(it) => self.push(prefix, &it.ident, &it.rename),
            UseTree::Glob(_) => self.add(prefix.to_vec(), Binding::Glob, line),
            UseTree::Group(it) => it.items.iter().for_each(|it| self.walk(it, prefix, line)),
        }
    }

    /// `self` at the end of a path means the module before it.
    fn push(&mut self, prefix: &[String], name: &Ident, bound: &Ident) {
        let is_self = name == "self" && !prefix.is_empty();
        let path = if is_self { prefix.to_vec() } else { joined(prefix, name) };
        let bound = if bound == "self" { path.last().cloned().unwrap_or_default() } else { bound.to_string() };
        let binding = if bound == "_" { Binding::Nothing } else { Binding::Name(bound) };
        self.add(path, binding, line_of(name));
    }

    fn add(&mut self, path: Path, binding: Binding, line: usize) {
        self.found.push(Import { path, binding, line, is_reexport: self.is_reexport });
    }
}

fn joined(prefix: &[String], name: &Ident) -> Path {
    prefix.iter().cloned().chain([name.to_string()]).collect()
}

fn line_of(name: &Ident) -> usize {
    name.span().start().line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_leaf_of_an_import_is_found() {
        let item: ItemUse = syn::parse_str("use crate::a::{self, b::{C, D as E}, f::*, G as _};").expect("an import");
        let found: Vec<String> = imports(&item, false)
            .iter()
            .map(|it| match &it.binding {
                Binding::Name(name) => format!("{} as {name}", it.path.join("::")),
                Binding::Glob => format!("{}::*", it.path.join("::")),
                Binding::Nothing => format!("{} as _", it.path.join("::")),
            })
            .collect();
        let expected =
            ["crate::a as a", "crate::a::b::C as C", "crate::a::b::D as E", "crate::a::f::*", "crate::a::G as _"];
        assert_eq!(found, expected);
    }
}
