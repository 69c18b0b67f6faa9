//! The hints of error codes, as the sources write them.
//!
//! A hint stands in a call of `hint` or one of its sisters. Its code is what the failure was made with, or that of the
//! match arm around it. A hint that is computed is left out; of a formatted one the texts between the values stay.

use std::collections::{BTreeMap, BTreeSet};

use syn::visit::{self, Visit};
use syn::{Arm, Expr, ExprCall, ExprMethodCall, File, ImplItemFn, ItemConst, ItemFn, ItemMod, Lit, Local, Macro, Pat};

/// Hints by the codes' variants.
pub(super) type Hints = BTreeMap<String, BTreeSet<String>>;

/// Constructors of failures that have a code of their own.
const CONSTRUCTORS: &[(&str, &str)] = &[
    ("cancelled", "Cancelled"),
    ("config", "ConfigInvalid"),
    ("conflicting", "ConflictingFields"),
    ("internal", "Internal"),
    ("invalid", "InvalidInput"),
    ("not_found", "NotFound"),
];

/// Adds the hints of a file.
pub(super) fn read(text: &str, hints: &mut Hints) -> syn::Result<()> {
    let file = syn::parse_file(text)?;
    let mut scan = HintScan { texts: constants(&file), codes: codes_of_errors(&file), ..HintScan::default() };
    scan.visit_file(&file);
    for (code, hint) in scan.found {
        hints.entry(code).or_default().insert(hint);
    }
    Ok(())
}

#[derive(Debug, Default)]
struct HintScan {
    /// Constants of the file.
    texts: BTreeMap<String, String>,
    /// Codes by the variants of an error, from the function `code`.
    codes: BTreeMap<String, String>,
    /// Variables that hold a failure, with its code.
    variables: BTreeMap<String, String>,
    /// Variants that the arms around this place match.
    arms: Vec<Vec<String>>,
    function: String,
    found: Vec<(String, String)>,
}

fn constants(file: &File) -> BTreeMap<String, String> {
    #[derive(Default)]
    struct Constants(BTreeMap<String, String>);
    impl Visit<'_> for Constants {
        fn visit_item_const(&mut self, item: &ItemConst) {
            if let Some(text) = literal(&item.expr) {
                self.0.insert(item.ident.to_string(), text);
            }
        }
    }
    let mut constants = Constants::default();
    constants.visit_file(file);
    constants.0
}

/// Which code each variant of an error has, by the function `code` of its file.
fn codes_of_errors(file: &File) -> BTreeMap<String, String> {
    #[derive(Default)]
    struct Arms(BTreeMap<String, String>);
    impl Visit<'_> for Arms {
        fn visit_arm(&mut self, arm: &Arm) {
            if let Some(code) = code_in(&arm.body) {
                self.0.extend(variants(&arm.pat).into_iter().map(|it| (it, code.clone())));
            }
        }
    }
    let mut arms = Arms::default();
    for item in &file.items {
        if let syn::Item::Fn(function) = item
            && function.sig.ident == "code"
        {
            arms.visit_block(&function.block);
        }
    }
    arms.0
}

/// `X` of the path `Code::X`.
fn code_in(expr: &Expr) -> Option<String> {
    let Expr::Path(path) = expr else { return None };
    let mut parts = path.path.segments.iter().rev().map(|it| it.ident.to_string());
    let (code, kind) = (parts.next()?, parts.next()?);
    (kind == "Code").then_some(code)
}

/// The last words of the paths, and the texts, that a pattern matches.
fn variants(pat: &Pat) -> Vec<String> {
    let last = |path: &syn::Path| path.segments.last().map(|it| it.ident.to_string()).into_iter().collect();
    match pat {
        Pat::Or(or) => or.cases.iter().flat_map(variants).collect(),
        Pat::Ident(ident) => ident.subpat.iter().flat_map(|it| variants(&it.1)).collect(),
        Pat::Path(path) => last(&path.path),
        Pat::Struct(fields) => last(&fields.path),
        Pat::TupleStruct(fields) => last(&fields.path),
        Pat::Lit(lit) => literal(&Expr::Lit(lit.clone())).into_iter().collect(),
        _ => Vec::new(),
    }
}

fn literal(expr: &Expr) -> Option<String> {
    match expr {
        Expr::Lit(lit) => match &lit.lit {
            Lit::Str(text) => Some(text.value()),
            _ => None,
        },
        _ => None,
    }
}

/// The text of `format!`, with `…` for its values.
fn formatted(mac: &Macro) -> Option<String> {
    if !mac.path.is_ident("format") {
        return None;
    }
    let text = mac.parse_body_with(|input: syn::parse::ParseStream<'_>| {
        let text: syn::LitStr = input.parse()?;
        input.parse::<proc_macro2::TokenStream>()?;
        Ok(text.value())
    });
    let mut parts = text.ok()?.replace("{{", "\u{1}").replace("}}", "\u{2}");
    while let (Some(start), Some(end)) = (parts.find('{'), parts.find('}')) {
        parts.replace_range(start..=end, "…");
    }
    Some(parts.replace('\u{1}', "{").replace('\u{2}', "}"))
}

impl HintScan {
    /// The texts that an expression may be.
    fn texts_of(&self, expr: &Expr) -> Vec<String> {
        match expr {
            Expr::Lit(_) => literal(expr).into_iter().collect(),
            Expr::Path(path) => {
                let name = path.path.segments.last().map(|it| it.ident.to_string()).unwrap_or_default();
                self.texts.get(&name).cloned().into_iter().collect()
            }
            Expr::Macro(mac) => formatted(&mac.mac).into_iter().collect(),
            Expr::Reference(it) => self.texts_of(&it.expr),
            Expr::Paren(it) => self.texts_of(&it.expr),
            Expr::Block(it) => last(&it.block).map(|it| self.texts_of(it)).unwrap_or_default(),
            Expr::Match(it) => it.arms.iter().flat_map(|it| self.texts_of(&it.body)).collect(),
            Expr::If(it) => {
                let first = last(&it.then_branch).map(|it| self.texts_of(it)).unwrap_or_default();
                let other = it.else_branch.iter().flat_map(|it| self.texts_of(&it.1));
                first.into_iter().chain(other).collect()
            }
            _ => Vec::new(),
        }
    }

    /// The code of the failure that a chain of calls begins with.
    fn code_of(&self, expr: &Expr) -> Option<String> {
        match expr {
            Expr::MethodCall(call) if call.method == "with_code" => call.args.first().and_then(code_in),
            Expr::MethodCall(call) => self.code_of(&call.receiver),
            Expr::Call(call) => code_of_call(call),
            Expr::Path(path) => self.variables.get(&path.path.get_ident()?.to_string()).cloned(),
            _ => None,
        }
    }

    fn code_of_arm(&self) -> Option<String> {
        self.arms.iter().rev().flatten().find_map(|it| self.codes.get(it)).cloned()
    }

    fn hints_of(&self, call: &ExprMethodCall) -> Vec<String> {
        let args: Vec<&Expr> = call.args.iter().collect();
        let texts = args.first().map(|it| self.texts_of(it)).unwrap_or_default();
        let setting = || args.get(1).map(|it| self.texts_of(it)).unwrap_or_default().into_iter().next();
        match call.method.to_string().as_str() {
            "hint" => texts,
            "hint_for" => {
                let person = args.get(1).map(|it| self.texts_of(it)).unwrap_or_default();
                texts.into_iter().chain(person.into_iter().map(|it| format!("at the command line: {it}"))).collect()
            }
            "hint_setting" => {
                let key = setting().map_or("the setting that `details` names".to_owned(), |it| format!("`{it}`"));
                texts.into_iter().map(|it| format!("{it}, or change {key} in the configuration")).collect()
            }
            "hint_only_setting" => {
                let key = setting().map_or("the setting that `details` names".to_owned(), |it| format!("`{it}`"));
                texts.into_iter().map(|it| format!("{it} {key} in the configuration")).collect()
            }
            _ => Vec::new(),
        }
    }
}

fn last(block: &syn::Block) -> Option<&Expr> {
    match block.stmts.last()? {
        syn::Stmt::Expr(expr, None) => Some(expr),
        _ => None,
    }
}

fn code_of_call(call: &ExprCall) -> Option<String> {
    if let Some(code) = call.args.first().and_then(code_in) {
        return Some(code);
    }
    let Expr::Path(path) = &*call.func else { return None };
    let mut parts = path.path.segments.iter().rev().map(|it| it.ident.to_string());
    let (name, kind) = (parts.next()?, parts.next()?);
    let known = CONSTRUCTORS.iter().find(|it| it.0 == name).filter(|_| ["Self", "Failure"].contains(&kind.as_str()));
    known.map(|it| it.1.to_owned())
}

fn is_test(attrs: &[syn::Attribute]) -> bool {
    attrs.iter().any(|it| match &it.meta {
        syn::Meta::List(list) => list.path.is_ident("cfg") && list.tokens.to_string().contains("test"),
        _ => it.path().is_ident("test"),
    })
}

impl<'a> Visit<'a> for HintScan {
    fn visit_item_mod(&mut self, item: &'a ItemMod) {
        if !is_test(&item.attrs) {
            visit::visit_item_mod(self, item);
        }
    }

    fn visit_item_fn(&mut self, item: &'a ItemFn) {
        self.function = item.sig.ident.to_string();
        self.variables.clear();
        if !is_test(&item.attrs) {
            visit::visit_item_fn(self, item);
        }
    }

    fn visit_impl_item_fn(&mut self, item: &'a ImplItemFn) {
        self.function = item.sig.ident.to_string();
        self.variables.clear();
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_local(&mut self, local: &'a Local) {
        visit::visit_local(self, local);
        if let (Pat::Ident(name), Some(init)) = (&local.pat, &local.init)
            && let Some(code) = self.code_of(&init.expr)
        {
            self.variables.insert(name.ident.to_string(), code);
        }
    }

    fn visit_arm(&mut self, arm: &'a Arm) {
        let matched = variants(&arm.pat);
        // Tables of hints by code, and by the word of a code.
        if ["hint", "tool_hint"].contains(&self.function.as_str()) {
            let texts = self.texts_of(&arm.body);
            let pairs = matched.iter().flat_map(|code| texts.iter().map(|it| (variant_of(code), it.clone())));
            self.found.extend(pairs);
        }
        self.arms.push(matched);
        visit::visit_arm(self, arm);
        self.arms.pop();
    }

    fn visit_expr_method_call(&mut self, call: &'a ExprMethodCall) {
        visit::visit_expr_method_call(self, call);
        let hints = self.hints_of(call);
        if !hints.is_empty()
            && let Some(code) = self.code_of(&call.receiver).or_else(|| self.code_of_arm())
        {
            self.found.extend(hints.into_iter().map(|it| (code.clone(), it)));
        }
    }
}

/// `PathEmpty` of `path_empty`.
fn variant_of(word: &str) -> String {
    if word.contains(char::is_uppercase) { word.to_owned() } else { super::document::pascal(word) }
}

#[cfg(test)]
mod tests {
    use super::{Hints, read};

    #[test]
    fn hints_are_read_where_they_stand() {
        let source = r#"
            const DOWN: &str = "start it";
            fn from(err: Error) -> Failure {
                let failure = Failure::new(code(&err), "x");
                match err {
                    Error::Down { .. } => failure.detail("a", 1).hint(DOWN),
                    Error::Full => failure.hint_setting("use less", "max"),
                    Error::Gone => Failure::new(Code::NotFound, "y").hint_for("look", format!("see {name:?} there")),
                }
            }
            fn code(err: &Error) -> Code {
                match err {
                    Error::Down { .. } | Error::Late => Code::EngineDown,
                    Error::Full => Code::DiskFull,
                }
            }
            fn tool_hint(code: &str) -> Option<&str> {
                Some(match code { "path_empty" | "busy" => "wait", _ => return None })
            }
            fn other() { Failure::invalid("a", "b").hint(if x { "one" } else { "two" }); }
            #[cfg(test)]
            mod tests { fn no() { Failure::new(Code::Busy, "").hint("never"); } }
        "#;
        let mut hints = Hints::new();
        read(source, &mut hints).unwrap();
        let lines: Vec<String> = hints.iter().map(|(code, it)| format!("{code}: {it:?}")).collect();
        assert_eq!(
            lines,
            [
                "Busy: {\"wait\"}",
                "DiskFull: {\"use less, or change `max` in the configuration\"}",
                "EngineDown: {\"start it\"}",
                "InvalidInput: {\"one\", \"two\"}",
                "NotFound: {\"at the command line: see … there\", \"look\"}",
                "PathEmpty: {\"wait\"}",
            ]
        );
    }
}
