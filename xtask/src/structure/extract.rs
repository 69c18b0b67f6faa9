//! Extracts facts from the text of a file.

use std::collections::BTreeMap;
use std::mem;

use syn::visit::{self, Visit};
use syn::{Attribute, Block, Expr, ImplItem, Item, Meta, Stmt, Type, Visibility};

use crate::conditions::{attributes, is_test_only};
use crate::facts::{Binding, Body, Child, Definition, FileFacts, Lines, Method, ModuleFacts, Path};
use crate::{tokens, uses};

pub(crate) fn extract(text: &str) -> syn::Result<FileFacts> {
    let file = syn::parse_file(text)?;
    let mut extractor = Extractor::default();
    if is_test_only(&file.attrs) {
        return Ok(FileFacts { lines: test_lines(text), ..FileFacts::default() });
    }
    file.items.iter().for_each(|it| extractor.visit_item(it));
    Ok(FileFacts { lines: count(text, &extractor.test_ranges), module: extractor.module })
}

/// The lines of a file that is compiled for tests alone.
pub(crate) fn test_lines(text: &str) -> Lines {
    Lines { code: 0, tests: text.lines().filter(|it| is_code(it)).count() }
}

fn count(text: &str, tests: &[(usize, usize)]) -> Lines {
    let mut lines = Lines::default();
    for (at, _) in text.lines().enumerate().filter(|(_, line)| is_code(line)) {
        let is_test = tests.iter().any(|(first, last)| (*first..=*last).contains(&(at + 1)));
        *(if is_test { &mut lines.tests } else { &mut lines.code }) += 1;
    }
    lines
}

fn is_code(line: &str) -> bool {
    let line = line.trim();
    !line.is_empty() && !line.starts_with("//")
}

#[derive(Default)]
struct Extractor {
    module: ModuleFacts,
    /// Names that the blocks around this place import (with the path) or define (without), the innermost last.
    blocks: Vec<BTreeMap<String, Option<Path>>>,
    /// First and last lines of what is compiled for tests alone.
    test_ranges: Vec<(usize, usize)>,
    is_trait_impl: bool,
}

impl Extractor {
    fn mention(&mut self, mut path: Path, line: usize) {
        if path[0] == "Self" || path == ["self"] {
            return;
        }
        let local = self.blocks.iter().rev().find_map(|it| it.get(&path[0]));
        match local {
            Some(None) => return,
            Some(Some(import)) => path = import.iter().chain(&path[1..]).cloned().collect(),
            None => {}
        }
        self.module.mentions.entry(path).or_insert(line);
    }

    fn mention_path(&mut self, path: &syn::Path) {
        if path.leading_colon.is_none() {
            let names = path.segments.iter().map(|it| it.ident.to_string()).collect();
            self.mention(names, path.segments[0].ident.span().start().line);
        }
    }

    fn mention_tokens(&mut self, tokens: &proc_macro2::TokenStream) {
        tokens::paths(tokens, &mut |path, line| self.mention(path, line));
    }

    fn define(&mut self, item: &Item) {
        let name = match item {
            Item::Enum(it) => &it.ident,
            Item::Struct(it) => &it.ident,
            Item::Type(it) => &it.ident,
            Item::Union(it) => &it.ident,
            Item::Trait(it) => &it.ident,
            Item::TraitAlias(it) => &it.ident,
            Item::Fn(it) => &it.sig.ident,
            Item::Const(it) => &it.ident,
            Item::Static(it) => &it.ident,
            Item::Macro(syn::ItemMacro { ident: Some(name), .. }) => name,
            _ => return,
        };
        match self.blocks.last_mut() {
            Some(block) => drop(block.insert(name.to_string(), None)),
            None => {
                let is_macro = matches!(item, Item::Macro(_));
                self.module.definitions.push(Definition { name: name.to_string(), is_macro });
            }
        }
    }

    fn import(&mut self, item: &syn::ItemUse) {
        for mut import in uses::imports(item) {
            if let Some(block) = self.blocks.last_mut() {
                let bound = mem::replace(&mut import.binding, Binding::Nothing);
                match bound {
                    Binding::Name(name) => drop(block.insert(name, Some(import.path.clone()))),
                    other => import.binding = other,
                }
            }
            self.module.imports.push(import);
        }
    }

    fn child(&mut self, item: &syn::ItemMod, is_test: bool) {
        let (name, line) = (item.ident.to_string(), item.ident.span().start().line);
        let body = match &item.content {
            Some((_, items)) if !is_test => Body::Inline(self.inline(items)),
            Some(_) => return,
            None => Body::File { path: path_attribute(&item.attrs) },
        };
        self.module.children.push(Child { name, line, is_test, body });
    }

    fn methods(&mut self, item: &syn::ItemImpl) {
        let Type::Path(of) = &*item.self_ty else { return };
        let of: Path = of.path.segments.iter().map(|it| it.ident.to_string()).collect();
        for it in &item.items {
            if let ImplItem::Fn(it) = it
                && !is_test_only(&it.attrs)
            {
                let is_shared = !matches!(it.vis, Visibility::Inherited);
                self.module.methods.push(Method { of: of.clone(), name: it.sig.ident.to_string(), is_shared });
            }
        }
    }

    fn inline(&mut self, items: &[Item]) -> ModuleFacts {
        let outer = (mem::take(&mut self.module), mem::take(&mut self.blocks));
        items.iter().for_each(|it| self.visit_item(it));
        let inner = mem::take(&mut self.module);
        (self.module, self.blocks) = outer;
        inner
    }

    /// Whether something is for tests alone; its lines are noted if so.
    fn is_test(&mut self, attributes: &[Attribute], item: &dyn syn::spanned::Spanned) -> bool {
        let is_test = is_test_only(attributes);
        if is_test {
            let span = item.span();
            self.test_ranges.push((span.start().line, span.end().line));
        }
        is_test
    }
}

/// Skips test-only items below a module's own items.
macro_rules! skip_tests {
    ($($visit:ident: $node:ident),*) => {
        $(fn $visit(&mut self, node: &'ast syn::$node) {
            if !self.is_test(&node.attrs, node) {
                visit::$visit(self, node);
            }
        })*
    };
}

impl<'ast> Visit<'ast> for Extractor {
    fn visit_item(&mut self, item: &'ast Item) {
        let is_test = self.is_test(attributes(item), item);
        match item {
            Item::Mod(it) => return self.child(it, is_test),
            _ if is_test => return,
            Item::Use(it) => return self.import(it),
            _ => {}
        }
        if self.blocks.is_empty() {
            self.define(item);
        }
        visit::visit_item(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        if item.trait_.is_none() {
            self.methods(item);
        }
        let outer = mem::replace(&mut self.is_trait_impl, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        self.is_trait_impl = outer;
    }

    fn visit_signature(&mut self, signature: &'ast syn::Signature) {
        if !self.is_trait_impl {
            self.module.functions.push(signature.ident.to_string());
        }
        visit::visit_signature(self, signature);
    }

    fn visit_block(&mut self, block: &'ast Block) {
        self.blocks.push(BTreeMap::new());
        let items = || block.stmts.iter().filter_map(|it| if let Stmt::Item(it) = it { Some(it) } else { None });
        for item in items().filter(|it| !is_test_only(attributes(it))) {
            match item {
                Item::Use(it) => self.import(it),
                _ => self.define(item),
            }
        }
        for statement in &block.stmts {
            if !matches!(statement, Stmt::Item(Item::Use(_))) {
                self.visit_stmt(statement);
            }
        }
        self.blocks.pop();
    }

    /// A single name in lower case is a variable, or imported by name, but for one that is called.
    fn visit_path(&mut self, path: &'ast syn::Path) {
        let is_lower = || path.segments[0].ident.to_string().starts_with(|it: char| !it.is_uppercase());
        if path.segments.len() > 1 || !is_lower() {
            self.mention_path(path);
        }
        visit::visit_path(self, path);
    }

    fn visit_expr_call(&mut self, call: &'ast syn::ExprCall) {
        if let Expr::Path(function) = &*call.func {
            self.mention_path(&function.path);
        }
        visit::visit_expr_call(self, call);
    }

    fn visit_expr_method_call(&mut self, call: &'ast syn::ExprMethodCall) {
        self.module.calls.entry(call.method.to_string()).or_insert_with(|| call.method.span().start().line);
        visit::visit_expr_method_call(self, call);
    }

    fn visit_macro(&mut self, macro_call: &'ast syn::Macro) {
        match macro_call.path.get_ident() {
            Some(name) => self.mention(vec![format!("{name}!")], name.span().start().line),
            None => self.visit_path(&macro_call.path),
        }
        self.mention_tokens(&macro_call.tokens);
    }

    fn visit_attribute(&mut self, attribute: &'ast Attribute) {
        match &attribute.meta {
            Meta::List(list) => self.mention_tokens(&list.tokens),
            Meta::Path(path) => self.visit_path(path),
            Meta::NameValue(_) => {}
        }
    }

    /// `pub(in crate::a)` is no use of `a`.
    fn visit_visibility(&mut self, _: &'ast syn::Visibility) {}

    skip_tests!(
        visit_impl_item_fn: ImplItemFn,
        visit_impl_item_const: ImplItemConst,
        visit_trait_item_fn: TraitItemFn,
        visit_field: Field,
        visit_variant: Variant,
        visit_arm: Arm,
        visit_local: Local,
        visit_field_value: FieldValue,
        visit_expr_block: ExprBlock
    );
}

fn path_attribute(attributes: &[Attribute]) -> Option<String> {
    let attribute = attributes.iter().find(|it| it.path().is_ident("path"))?;
    let Meta::NameValue(it) = &attribute.meta else { return None };
    let Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(path), .. }) = &it.value else { return None };
    Some(path.value())
}
