//! What the programs of a release contain beside crates: the libraries that a linker adds, and scripts of the page.

use std::collections::BTreeSet;
use std::io::{BufRead as _, Read as _};
use std::iter;

use flate2::read::GzDecoder;
use serde_json::{Value, json};

use super::platform::Platform;

/// A work that is no crate.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) name: &'static str,
    /// An SPDX expression.
    pub(super) licence: &'static str,
    pub(super) address: &'static str,
    /// Where it is, and what its licence asks us to say.
    pub(super) note: &'static str,
    /// The files of this repository that have its texts.
    pub(super) files: &'static [&'static str],
}

/// A work in a program.
#[derive(Clone, Debug)]
pub(super) struct Component {
    pub(super) work: &'static Work,
    /// Its package URL without a version.
    package: String,
    /// None where no program tells it.
    pub(super) version: Option<String>,
}

const RUST: Work = Work {
    name: "Rust standard library",
    licence: "(MIT OR Apache-2.0) AND Unicode-3.0",
    address: "https://www.rust-lang.org",
    note: "In every program. Copyright: The Rust Project Developers (see https://thanks.rust-lang.org). The crates inside it \
           and its Unicode tables (Unicode-3.0) have their authors and licences in COPYRIGHT-library.html of each \
           release of Rust.",
    files: &[],
};

const GLIBC: Work = Work {
    name: "glibc",
    licence: "LGPL-2.1-or-later",
    address: "https://sourceware.org/glibc/",
    note: "The GNU C Library, linked statically into the guest and the worker, which `coracle` carries and runs in \
           containers. Its use is covered by the GNU Lesser General Public License, whose text is below. Its source is \
           that of the distribution's package `glibc` of this version. Coracle's source is public: `cargo xtask guest` \
           links both programs with the C library of the machine, also a changed one, and `cargo xtask dist` builds a \
           `coracle` that carries them.",
    files: &["packaging/notices/LGPL-2.1.txt", "packaging/notices/glibc.txt"],
};

const LIBGCC: Work = Work {
    name: "libgcc",
    licence: "GPL-3.0-or-later WITH GCC-exception-3.1",
    address: "https://gcc.gnu.org",
    note: "The runtime library of GCC, linked statically into the guest and the worker, which its exception permits under \
           terms of our choice.",
    files: &[],
};

const MUSL: Work = Work {
    name: "musl",
    licence: "MIT",
    address: "https://musl.libc.org",
    note: "The C library that Rust's target has, linked statically into `coracle`. Debian has collected its notices, which are \
           below.",
    files: &["packaging/notices/musl.txt"],
};

const LIBUNWIND: Work = Work {
    name: "LLVM libunwind",
    licence: "Apache-2.0 WITH LLVM-exception",
    address: "https://llvm.org",
    note: "The unwinder that Rust's target for musl has, linked statically into `coracle`.",
    files: &[],
};

const XTERM: Work = Work {
    name: "xterm.js",
    licence: "MIT",
    address: "https://github.com/xtermjs/xterm.js",
    note: "The terminal of the page, with its addon `fit`, in `coracle`.",
    files: &["crates/ui/page/vendor/xterm.LICENSE", "crates/ui/page/vendor/addon-fit.LICENSE"],
};

/// Those of a program. Versions are what it and the programs that it carries say about themselves.
pub(super) fn of(program: &[u8], platform: Platform) -> Vec<Component> {
    let carried = unpacked(program);
    let all = || carried.iter().map(Vec::as_slice).chain([program]);
    let mut components = glibc(&all().flat_map(|it| between(it, "GNU C Library (", ')')).collect());
    components.push(Component::new(&LIBGCC, "generic/libgcc"));
    if platform.is_linux {
        components.extend([Component::new(&MUSL, "generic/musl"), Component::new(&LIBUNWIND, "generic/libunwind")]);
    }
    let compilers: BTreeSet<String> = all().flat_map(|it| between(it, "rustc version ", ' ')).collect();
    components.extend(versions(&Component::new(&RUST, "generic/rust"), compilers));
    components.push(Component::new(&XTERM, "npm/%40xterm/xterm"));
    components.sort_by(|a, b| (a.work.name, &a.version).cmp(&(b.work.name, &b.version)));
    components
}

/// One for each version, or one without.
fn versions(component: &Component, versions: BTreeSet<String>) -> Vec<Component> {
    if versions.is_empty() {
        return vec![component.clone()];
    }
    versions.into_iter().map(|it| Component { version: Some(it), ..component.clone() }).collect()
}

/// Of banners such as `Debian GLIBC 2.36-9+deb12u14`: a distribution fixes vulnerabilities without another version of the project's.
fn glibc(banners: &BTreeSet<String>) -> Vec<Component> {
    let known = banners.iter().filter_map(|it| it.split_once(" GLIBC "));
    let component = |(maker, version): (&str, &str)| {
        let package = match maker {
            "Debian" | "Ubuntu" => format!("deb/{}/glibc", maker.to_lowercase()),
            _ => "generic/glibc".to_owned(),
        };
        Component { version: Some(version.to_owned()), ..Component::new(&GLIBC, &package) }
    };
    let components: Vec<Component> = known.map(component).collect();
    if components.is_empty() { vec![Component::new(&GLIBC, "generic/glibc")] } else { components }
}

/// The programs inside a program, which are compressed without name and time.
fn unpacked(program: &[u8]) -> Vec<Vec<u8>> {
    let found = places(program, b"\x1f\x8b\x08\0\0\0\0\0");
    let unpack = |at: usize| {
        let mut content = vec![];
        GzDecoder::new(&program[at..]).read_to_end(&mut content).ok()?; // others begin with these bytes too
        content.starts_with(b"\x7fELF").then_some(content)
    };
    found.filter_map(unpack).collect()
}

/// What stands behind a mark, up to a character.
fn between<'a>(content: &'a [u8], mark: &'a str, end: char) -> impl Iterator<Item = String> + 'a {
    places(content, mark.as_bytes()).filter_map(move |at| {
        let rest = &content[at + mark.len()..];
        let length = rest.iter().take(80).position(|it| *it == end as u8)?;
        let word = std::str::from_utf8(&rest[..length]).ok()?;
        // The mark may stand in a message that a program prints.
        word.contains(|it: char| it.is_ascii_digit()).then(|| word.to_owned())
    })
}

fn places<'a>(content: &'a [u8], mark: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
    let mut rest = content;
    iter::from_fn(move || {
        // The library's search for a byte is fast in every build, and a program has tens of megabytes.
        while rest.skip_until(mark[0]).ok()? > 0 {
            let at = content.len() - rest.len() - 1;
            if content[at..].starts_with(mark) {
                return Some(at);
            }
        }
        None
    })
}

impl Component {
    fn new(work: &'static Work, package: &str) -> Self {
        Self { work, package: format!("pkg:{package}"), version: None }
    }

    /// Its package URL.
    pub(super) fn purl(&self) -> String {
        let version = self.version.as_ref().map(|it| format!("@{}", it.replace('+', "%2B")));
        format!("{}{}", self.package, version.unwrap_or_default())
    }

    /// As the bill of materials has it.
    pub(super) fn entry(&self) -> Value {
        let purl = self.purl();
        let mut entry = json!({
            "type": "library", "bom-ref": purl, "name": self.work.name, "purl": purl, "description": self.work.note,
            "licenses": [{ "expression": self.work.licence }],
            "externalReferences": [{ "type": "website", "url": self.work.address }],
        });
        if let Some(version) = &self.version {
            entry["version"] = version.clone().into();
        }
        entry
    }
}

#[cfg(test)]
mod tests {
    use super::super::platform::PLATFORMS;
    use super::*;
    use crate::archive::gzip;

    fn purls(program: &[u8], platform: Platform) -> Vec<String> {
        of(program, platform).iter().map(Component::purl).collect()
    }

    #[test]
    fn versions_are_read_from_the_programs_inside() {
        let guest = b"\x7fELF rustc version 1.95.0 (5980 2026) \0GNU C Library (Debian GLIBC 2.36-9+deb12u14) stable";
        let mut program = b"\x1f\x8b\x08\0\0\0\0\0 is no archive; rustc version of a message".to_vec();
        // As `gzip --fast` and zopfli begin: without flags for speed.
        let mut packed = gzip(guest).unwrap();
        packed[8] = 0;
        program.extend(packed);
        let purls = purls(&program, PLATFORMS[0]);
        assert!(purls.contains(&"pkg:deb/debian/glibc@2.36-9%2Bdeb12u14".to_owned()), "{purls:?}");
        assert!(purls.contains(&"pkg:generic/rust@1.95.0".to_owned()), "{purls:?}");
        assert!(purls.contains(&"pkg:generic/musl".to_owned()), "{purls:?}");
    }

    #[test]
    fn a_program_that_tells_no_version_has_each_of_them_once() {
        let mac = *PLATFORMS.iter().find(|it| !it.is_linux).unwrap();
        let all = ["deb", "generic/libgcc", "generic/glibc", "generic/rust", "npm/%40xterm/xterm"];
        let purls = purls(b"#!/bin/sh\n", mac);
        assert_eq!(purls.len(), 4, "{purls:?}"); // musl and its unwinder are of Linux alone
        assert!(purls.iter().all(|it| all.contains(&it.trim_start_matches("pkg:"))), "{purls:?}");
    }
}
