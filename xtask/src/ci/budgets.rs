//! Sizes of files, functions and traits beside the budgets of the house style. Printed, never a failure: a number above its
//! budget asks for a sentence, not for a split.

use std::fs;

use anyhow::{Context as _, Result};
use structure::load::workspace;
use syn::visit::{self, Visit};
use syn::{Attribute, Block, FnArg, Signature, TraitItem};

use crate::sh::root;

const FILE_LINES: usize = 300;
const FUNCTION_LINES: usize = 50;
const PARAMETERS: usize = 4;
const TRAIT_METHODS: usize = 16;

pub(super) fn print() -> Result<()> {
    let mut sizes = Sizes::default();
    for file in workspace(root())?.iter().flat_map(|it| &it.files).filter(|it| it.lines.code > 0) {
        let text = fs::read_to_string(root().join(&file.path))?;
        sizes.add_file(&file.path, &text, file.lines.code).with_context(|| format!("parse {}", file.path))?;
    }
    print!("{}", sizes.report());
    Ok(())
}

/// Sizes of all files, without their tests.
#[derive(Default)]
struct Sizes {
    files: Vec<usize>,
    functions: Vec<usize>,
    over: Vec<String>,
    path: String,
    is_code: Vec<bool>,
}

impl Sizes {
    fn add_file(&mut self, path: &str, text: &str, lines: usize) -> syn::Result<()> {
        path.clone_into(&mut self.path);
        self.is_code = text.lines().map(str::trim).map(|it| !it.is_empty() && !it.starts_with("//")).collect();
        self.files.push(lines);
        if lines > FILE_LINES {
            self.over.push(format!("{path}: {lines} lines"));
        }
        self.visit_file(&syn::parse_file(text)?);
        Ok(())
    }

    fn add_function(&mut self, signature: &Signature, block: &Block) {
        let braces = block.brace_token.span;
        let (open, close) = (braces.open().start().line, braces.close().start().line);
        let inside = self.is_code.get(open..close.saturating_sub(1)).unwrap_or_default();
        let lines = inside.iter().filter(|it| **it).count().max(1);
        let parameters = signature.inputs.iter().filter(|it| matches!(it, FnArg::Typed(_))).count();
        self.functions.push(lines);
        if lines > FUNCTION_LINES {
            self.over.push(format!("{}: `{}` has {lines} lines", self.path, signature.ident));
        }
        if parameters > PARAMETERS {
            self.over.push(format!("{}: `{}` takes {parameters} parameters", self.path, signature.ident));
        }
    }

    fn report(mut self) -> String {
        let line = |what: &str, budget: (usize, usize), numbers: &mut Vec<usize>| {
            numbers.sort_unstable();
            let (median, longest) = (numbers.get(numbers.len() / 2), numbers.last());
            let (median, longest) = (median.unwrap_or(&0), longest.unwrap_or(&0));
            format!("  {what}: median {median} lines ({}), longest {longest} ({})\n", budget.0, budget.1)
        };
        let files = line("files", (100, FILE_LINES), &mut self.files);
        let functions = line("functions", (8, FUNCTION_LINES), &mut self.functions);
        let over: String = self.over.iter().map(|it| format!("    {it}\n")).collect();
        format!("{files}{functions}  over budget: {}\n{over}", self.over.len())
    }
}

impl<'ast> Visit<'ast> for Sizes {
    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        if !is_test(&item.attrs) {
            self.add_function(&item.sig, &item.block);
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        if !is_test(&item.attrs) {
            self.add_function(&item.sig, &item.block);
            visit::visit_impl_item_fn(self, item);
        }
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        let methods = item.items.iter().filter(|it| matches!(it, TraitItem::Fn(_))).count();
        if methods > TRAIT_METHODS {
            self.over.push(format!("{}: trait `{}` has {methods} methods", self.path, item.ident));
        }
        visit::visit_item_trait(self, item);
    }
}

/// Whether an item has `#[cfg(test)]` or an attribute like `#[tokio::test]`.
fn is_test(attributes: &[Attribute]) -> bool {
    attributes.iter().any(|it| {
        let is_cfg = || it.path().is_ident("cfg") && it.parse_args::<syn::Path>().is_ok_and(|it| it.is_ident("test"));
        it.path().segments.last().is_some_and(|it| it.ident == "test") || is_cfg()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_measured_without_comments_and_tests() {
        let text = "\
async fn long<T>(a: Vec<(u8, u8)>, b: [u8; 2], c: impl Fn(u8, u8) -> u8, d: u8, e: T) -> u8
where
    T: Sized,
{
    // a comment

    let it = 1;
    it
}

impl It {
    fn short(&self, a: u8) -> u8 { 1 }
}

#[cfg(test)]
mod tests {
    fn other() {}
}
";
        let mut sizes = Sizes::default();
        sizes.add_file("x.rs", text, 301).unwrap();
        assert_eq!(sizes.functions, [2, 1]);
        assert_eq!(sizes.over, ["x.rs: 301 lines", "x.rs: `long` takes 5 parameters"]);
    }
}
