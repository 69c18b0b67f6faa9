//! Resolves a path in a module to the module that defines the item.

use std::collections::BTreeMap;

use crate::facts::{Binding, Import};
use crate::load::Crate;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Target {
    /// Something that a module of this crate defines, or brings in from another crate.
    Item {
        module: usize,
        name: String,
    },
    Module(usize),
}

/// Visited names, so that imports in a circle end.
type Visited = Vec<(usize, String, bool)>;

pub(crate) struct Resolver<'a> {
    loaded: &'a Crate,
    /// Macros by name: those without an import are in scope by their place in the text.
    macros: BTreeMap<&'a str, usize>,
}

impl<'a> Resolver<'a> {
    pub(crate) fn new(loaded: &'a Crate) -> Self {
        let mut macros = BTreeMap::new();
        for (number, module) in loaded.modules.iter().enumerate() {
            let defined = module.facts.definitions.iter().filter(|it| it.is_macro);
            macros.extend(defined.map(|it| (it.name.as_str(), number)));
        }
        Self { loaded, macros }
    }

    /// The target of a path in a module; `None` outside of this crate.
    pub(crate) fn resolve(&self, module: usize, path: &[String]) -> Option<Target> {
        match path {
            [name] if name.ends_with('!') => {
                let name = name.trim_end_matches('!');
                let module = *self.macros.get(name)?;
                Some(Target::Item { module, name: name.to_owned() })
            }
            _ => self.walk(module, path, false, &mut vec![]),
        }
    }

    /// `wants_module` selects between a module and another item with the same name.
    fn walk(&self, module: usize, path: &[String], wants_module: bool, visited: &mut Visited) -> Option<Target> {
        let (mut current, rest) = self.start(module, path)?;
        let mut is_relative = rest.len() == path.len();
        for (at, name) in rest.iter().enumerate() {
            let is_last = at + 1 == rest.len();
            match self.find(current, name, wants_module || !is_last, visited) {
                Some(Target::Module(next)) => current = next,
                Some(item) => return Some(item),
                // What a macro defines has no definition here.
                None if !is_relative => return Some(Target::Item { module: current, name: name.clone() }),
                None => return None,
            }
            is_relative = false;
        }
        Some(Target::Module(current))
    }

    /// Follows `crate`, `self` and `super` at the start of a path.
    fn start<'p>(&self, module: usize, path: &'p [String]) -> Option<(usize, &'p [String])> {
        let (mut current, mut rest) = (module, path);
        while let Some((first, others)) = rest.split_first() {
            current = match first.as_str() {
                "crate" => 0,
                "self" => current,
                "super" => self.loaded.modules[current].parent?,
                _ => break,
            };
            rest = others;
        }
        Some((current, rest))
    }

    /// A name in a module: its own, imported by name, or by a glob.
    fn find(&self, module: usize, name: &str, wants_module: bool, visited: &mut Visited) -> Option<Target> {
        let key = (module, name.to_owned(), wants_module);
        if visited.contains(&key) {
            return None;
        }
        visited.push(key);
        let here = &self.loaded.modules[module];
        let child = || here.children.get(name).map(|it| Target::Module(*it));
        let is_defined = here.facts.definitions.iter().any(|it| it.name == name);
        let own = || is_defined.then(|| Target::Item { module, name: name.to_owned() });
        let found = if wants_module {
            child().or_else(|| self.imported(module, name, true, visited)).or_else(own)
        } else {
            own().or_else(|| self.imported(module, name, false, visited)).or_else(child)
        };
        let found = found.or_else(|| self.through_globs(module, name, wants_module, visited));
        visited.pop();
        found
    }

    fn imported(&self, module: usize, name: &str, wants_module: bool, visited: &mut Visited) -> Option<Target> {
        let imports = &self.loaded.modules[module].facts.imports;
        let mut found = imports.iter().filter(|it| matches!(&it.binding, Binding::Name(bound) if bound == name));
        let import: &Import = found.next()?;
        let outside = || Some(Target::Item { module, name: name.to_owned() });
        self.walk(module, &import.path, wants_module, visited).or_else(outside)
    }

    fn through_globs(&self, module: usize, name: &str, wants_module: bool, visited: &mut Visited) -> Option<Target> {
        let imports = &self.loaded.modules[module].facts.imports;
        imports.iter().filter(|it| it.binding == Binding::Glob).find_map(|it| {
            match self.walk(module, &it.path, true, visited)? {
                Target::Module(source) => self.find(source, name, wants_module, visited),
                Target::Item { .. } => None,
            }
        })
    }
}
