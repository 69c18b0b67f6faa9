//! Linux-only names in crates of the host, which would not compile for macOS, where Apple's engine runs.
//!
//! No target for macOS is at hand, so this reads what a compiler would: names that libraries have on Linux alone stand in
//! modules and items that are marked for Linux, and nowhere else. Lines of unit tests do not count.

use std::collections::{BTreeMap, BTreeSet};

use proc_macro2::{TokenStream, TokenTree};
use serde_json::Value;
use structure::tokens::{attributes_at, declared_module, end_of_item, is_punct};
use syn::punctuated::Punctuated;
use syn::{Attribute, Meta, Token};

use crate::project::{Source, metadata, rust_files, source};

/// Crates whose programs run beside the engine's client. The others are only built for the inside of a container, or for tests.
const HOST_CRATES: [&str; 32] = [
    "apple",
    "archive",
    "audit",
    "cli",
    "client",
    "compose",
    "context",
    "devcontainer",
    "docker",
    "e2b",
    "engine-program",
    "host",
    "http",
    "images",
    "jobs",
    "lifecycle",
    "mcp",
    "prepare",
    "protocol",
    "provision",
    "proxy",
    "runtime",
    "sandbox",
    "serve",
    "ssh",
    "telemetry",
    "tool",
    "transport",
    "types",
    "ui",
    "workspace",
    "worktrees",
];

/// Names of `rustix`, `std` and `tokio` that do not exist on macOS.
const LINUX_ONLY: [&str; 17] = [
    "Boottime",
    "EMPTY_PATH",
    "FakeRuntime",
    "PATH",
    "PidfdFlags",
    "RDHUP",
    "ResolveFlags",
    "SocketFlags",
    "StatxFlags",
    "TMPFILE",
    "coracle_guest",
    "memfd_create",
    "openat2",
    "pidfd_open",
    "prctl",
    "prlimit",
    "statx",
];

/// Of these, names with another meaning unless their type stands before them.
const QUALIFIED: [(&str, &str); 3] = [("PATH", "OFlags"), ("TMPFILE", "OFlags"), ("Boottime", "ClockId")];

/// Reads one file as a compiler for macOS would.
#[derive(Default)]
struct MacOsReader {
    linux_only: BTreeSet<String>,
    /// Modules in files of their own that are marked for Linux.
    marked: Vec<String>,
}

impl MacOsReader {
    /// `outer` is the name before a group, as in `os::{linux, unix}`.
    fn read(&mut self, tokens: &[TokenTree], outer: Option<&str>) {
        let mut at = 0;
        while at < tokens.len() {
            let (attributes, start) = attributes_at(tokens, at);
            if !attributes.iter().all(compiles_for_macos) {
                let end = end_of_item(tokens, start);
                self.marked.extend(declared_module(&tokens[start..=end]));
                at = end + 1;
                continue;
            }
            at = start;
            let before = name_before(tokens, at);
            match tokens.get(at) {
                Some(TokenTree::Ident(name)) if !at.checked_sub(1).is_some_and(|it| is_punct(&tokens[it], '.')) => {
                    self.name(
                        &name.to_string(),
                        before.as_deref().or(outer.filter(|_| at == 0 || is_punct(&tokens[at - 1], ','))),
                    );
                }
                Some(TokenTree::Group(group)) => {
                    self.read(&group.stream().into_iter().collect::<Vec<_>>(), before.as_deref());
                }
                _ => {}
            }
            at += 1;
        }
    }

    fn name(&mut self, name: &str, before: Option<&str>) {
        let qualified = QUALIFIED.iter().find(|(it, _)| *it == name);
        let is_listed = LINUX_ONLY.contains(&name) && qualified.is_none_or(|(_, by)| before == Some(*by));
        if is_listed || (name == "linux" && before == Some("os")) {
            self.linux_only.insert(name.to_owned());
        }
    }
}

/// `a` where `a::` stands before a token.
fn name_before(tokens: &[TokenTree], at: usize) -> Option<String> {
    let [TokenTree::Ident(name), one, two] = tokens.get(at.checked_sub(3)?..at)? else { return None };
    (is_punct(one, ':') && is_punct(two, ':')).then(|| name.to_string())
}

/// Whether an attribute lets a library for macOS have what it stands at.
fn compiles_for_macos(attribute: &Attribute) -> bool {
    if !attribute.path().is_ident("cfg") {
        return true;
    }
    attribute.parse_args::<Meta>().map_or(true, |it| holds(&it))
}

/// A condition for a library of macOS with all its features but `fake`, which runs a guest.
fn holds(condition: &Meta) -> bool {
    match condition {
        Meta::Path(path) => !path.is_ident("test"),
        Meta::NameValue(it) => {
            let is = |name: &str, value: &str| {
                let syn::Expr::Lit(syn::ExprLit { lit: syn::Lit::Str(text), .. }) = &it.value else { return false };
                it.path.is_ident(name) && text.value() == value
            };
            is("target_os", "macos")
                || (it.path.is_ident("feature") && !is("feature", "fake") && !is("feature", "programs"))
        }
        Meta::List(list) => {
            let parse = list.parse_args_with(Punctuated::<Meta, Token![,]>::parse_terminated);
            let parts: Vec<bool> = parse.iter().flatten().map(holds).collect();
            match list.path.get_ident().map(ToString::to_string).as_deref() {
                Some("not") => !parts.contains(&true),
                Some("any") => parts.contains(&true),
                _ => !parts.contains(&false),
            }
        }
    }
}

/// Linux-only names, by file.
fn linux_only(files: &[Source]) -> BTreeMap<String, BTreeSet<String>> {
    let readers: Vec<(&Source, MacOsReader)> = files
        .iter()
        .map(|file| {
            let mut reader = MacOsReader::default();
            let tokens: TokenStream = file.text.parse().expect("the project parses");
            reader.read(&tokens.into_iter().collect::<Vec<_>>(), None);
            (file, reader)
        })
        .collect();
    let marked: Vec<String> =
        readers.iter().flat_map(|(file, it)| it.marked.iter().map(|name| below(&file.path, name))).collect();
    let is_marked = |path: &str| {
        marked
            .iter()
            .any(|it| path.strip_prefix(it.as_str()).is_some_and(|rest| rest == ".rs" || rest.starts_with('/')))
    };
    let found = readers.into_iter().filter(|(file, it)| !it.linux_only.is_empty() && !is_marked(&file.path));
    found.map(|(file, it)| (file.path.clone(), it.linux_only)).collect()
}

/// The path of a file's module, without its ending.
fn below(file: &str, module: &str) -> String {
    let (dir, name) = file.rsplit_once('/').unwrap_or(("", file));
    match name {
        "lib.rs" | "main.rs" | "mod.rs" => format!("{dir}/{module}"),
        _ => format!("{}/{module}", file.trim_end_matches(".rs")),
    }
}

fn host_files() -> Vec<Source> {
    let is_of_host = |path: &str| HOST_CRATES.iter().any(|it| path.starts_with(&format!("crates/{it}/src/")));
    let is_test = |path: &str| path.ends_with("/tests.rs") || path.contains("/tests/");
    rust_files().into_iter().filter(|it| is_of_host(&it.path) && !is_test(&it.path)).collect()
}

#[test]
fn names_of_linux_stand_in_modules_that_are_marked_for_it() {
    let found = linux_only(&host_files());
    assert!(found.is_empty(), "not on macOS; mark the module with `#[cfg(target_os = \"linux\")]`: {found:#?}");
}

/// Unconditional dependencies of the host's crates. `coracle-guest` starts processes by system calls of Linux.
#[test]
fn no_crate_of_the_host_needs_the_guest_on_macos() {
    let metadata = metadata("");
    let packages = metadata["packages"].as_array().expect("cargo lists packages");
    let is_of_host = |it: &Value| {
        let manifest = it["manifest_path"].as_str().unwrap_or_default();
        HOST_CRATES.iter().any(|name| manifest.ends_with(&format!("crates/{name}/Cargo.toml")))
    };
    let needs_guest = |it: &Value| {
        it["dependencies"].as_array().is_some_and(|all| {
            all.iter().any(|it| {
                it["name"] == "coracle-guest"
                    && it["kind"].is_null()
                    && it["optional"] == false
                    && it["target"].is_null()
            })
        })
    };
    let hosts: Vec<&Value> = packages.iter().filter(|it| is_of_host(it)).collect();
    assert_eq!(hosts.len(), HOST_CRATES.len(), "each crate of the list exists");
    let found: Vec<&Value> = hosts.into_iter().filter(|it| needs_guest(it)).map(|it| &it["name"]).collect();
    assert!(found.is_empty(), "these need the guest on every platform: {found:?}");
}

#[test]
fn planted_names_of_linux_are_found() {
    let planted = [
        source("crates/x/src/lib.rs", "mod a; #[cfg(target_os = \"linux\")] mod b; #[cfg(unix)] mod c;"),
        source("crates/x/src/a.rs", "use rustix::fs::{open, openat2}; fn f() { OFlags::PATH; Path::PATH; }"),
        source("crates/x/src/b.rs", "use rustix::fs::statx; mod c;"),
        source("crates/x/src/b/c.rs", "use std::os::linux::fs::MetadataExt;"),
        source(
            "crates/x/src/c.rs",
            "fn f() { #[cfg(target_os = \"linux\")] { prlimit(); } #[cfg(not(target_os = \"linux\"))] { pidfd_open(); } }",
        ),
        source(
            "crates/x/src/d.rs",
            "#[cfg(test)] mod tests { use rustix::fs::openat2; } #[cfg(feature = \"fake\")] use coracle_guest::X;",
        ),
    ];
    let names = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect::<BTreeSet<_>>();
    let expected = BTreeMap::from([
        ("crates/x/src/a.rs".to_owned(), names(&["PATH", "openat2"])),
        ("crates/x/src/c.rs".to_owned(), names(&["pidfd_open"])),
    ]);
    assert_eq!(linux_only(&planted), expected);
}
