//! Debian packages. The mirror is always the one that the machine's own apt sources name.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use crate::sh::{Sh, sh, which};

/// The operating system, by `/etc/os-release`.
#[derive(Debug, Default)]
pub(crate) struct Os {
    pub(crate) id: String,
    pub(crate) codename: String,
}

impl Os {
    pub(crate) fn here() -> Self {
        let text = fs::read_to_string("/etc/os-release").unwrap_or_default();
        let field = |name: &str| {
            let line = text.lines().find_map(|it| it.strip_prefix(name)?.strip_prefix('='));
            line.unwrap_or_default().trim_matches('"').to_owned()
        };
        Self { id: field("ID"), codename: field("VERSION_CODENAME") }
    }
}

/// Installs those packages (`name` or `name/suite`) that are missing, without what they merely recommend: the newer
/// Compose recommends a newer Docker client, and that one removes the daemon.
pub(crate) fn ensure(packages: &[&str]) -> Result<()> {
    if which("apt-get").is_none() {
        println!("  no apt on this system: {} are expected to be there", packages.join(", "));
        return Ok(());
    }
    let missing = missing(packages)?;
    if missing.is_empty() { Ok(()) } else { install(&missing) }
}

/// Installs them, whichever version is there.
pub(crate) fn install(packages: &[&str]) -> Result<()> {
    if !is_root() {
        bail!("only root may install: apt-get install --no-install-recommends {}", packages.join(" "));
    }
    if lists_are_old() {
        update()?;
    }
    let install = || apt(["install", "--no-install-recommends"].into_iter().chain(packages.iter().copied())).run();
    install().or_else(|_| update().and_then(|()| install())) // an old list names versions that the mirror no longer has
}

/// Adds a newer suite from the mirror in use, pinned so low that nothing comes from it unasked.
pub(crate) fn also(suite: &str) -> Result<()> {
    let sources = sources();
    if sources.iter().any(|it| it.suites.iter().any(|has| has == suite)) {
        return Ok(());
    }
    let here = Os::here().codename;
    let source = sources.iter().find(|it| it.suites.contains(&here));
    let source = source.with_context(|| format!("no apt source on this machine has the suite `{here}`"))?;
    write(&format!("/etc/apt/sources.list.d/{suite}.sources"), &source.stanza(suite))?;
    write(
        &format!("/etc/apt/preferences.d/{suite}"),
        &format!("Package: *\nPin: release n={suite}\nPin-Priority: 100\n"),
    )?;
    update()
}

/// Where this machine's own packages come from, as a URI that debootstrap knows, too.
pub(crate) fn mirror() -> Option<String> {
    let here = Os::here().codename;
    let read = |file: &str| fs::read_to_string(file).unwrap_or_default();
    sources().into_iter().filter(|it| it.suites.contains(&here)).find_map(|it| plain_uri(&it.uri, read))
}

/// A URI without apt's own schemes. `mirror+file:` names a file with one mirror a line.
fn plain_uri(uri: &str, read: impl Fn(&str) -> String) -> Option<String> {
    let is_plain = |it: &&str| ["http://", "https://", "file:"].iter().any(|scheme| it.starts_with(scheme));
    match uri.strip_prefix("mirror+file:") {
        Some(file) => {
            let list = read(file.strip_prefix("//").unwrap_or(file));
            list.lines().filter_map(|it| it.split_whitespace().next()).find(is_plain).map(str::to_owned)
        }
        None => Some(uri).filter(is_plain).map(str::to_owned),
    }
}

/// Downloads packages into `dir` without installing them: the packages of servers start these where there is systemd.
pub(crate) fn download(packages: &[&str], dir: &Path) -> Result<()> {
    let download = || apt(["download", "-o", AS_ROOT].into_iter().chain(packages.iter().copied())).dir(dir).run();
    download().or_else(|_| update().and_then(|()| download()))
}

/// Unpacks a source package with its patches in `dir`. Its suite gets a file of its own among apt's sources.
pub(crate) fn unpack_source(package: &str, dir: &Path) -> Result<()> {
    if !sh("apt-get", ["source", "--print-uris", "-qq", package]).succeeds() {
        let here = Os::here().codename;
        let source = sources().into_iter().find(|it| it.suites.contains(&here));
        let source = source.with_context(|| format!("no apt source on this machine has the suite `{here}`"))?;
        write(
            "/etc/apt/sources.list.d/coracle-source.sources",
            &source.stanza(&here).replace("Types: deb\n", "Types: deb-src\n"),
        )?;
        update()?;
    }
    apt(["source", "-o", AS_ROOT, package]).dir(dir).run()
}

/// apt's own account cannot write into directories of ours.
const AS_ROOT: &str = "APT::Sandbox::User=root";

fn update() -> Result<()> {
    apt(["update"]).run()
}

fn apt<'a>(words: impl IntoIterator<Item = &'a str>) -> Sh {
    let always = ["-y", "-qq", "-o", "DPkg::Lock::Timeout=300", "-o", "Dpkg::Options::=--force-confold"];
    sh("apt-get", always.into_iter().chain(words)).env("DEBIAN_FRONTEND", "noninteractive")
}

fn missing<'a>(packages: &[&'a str]) -> Result<Vec<&'a str>> {
    let format = "--showformat=${Package} ${db:Status-Status}\n";
    let names = packages.iter().map(|it| name(it));
    let output = sh("dpkg-query", ["--show", format].into_iter().chain(names)).output()?;
    let known = String::from_utf8_lossy(&output.stdout).into_owned(); // exit code 1 means that some packages are unknown
    let there = |package: &str| known.lines().any(|it| it.strip_prefix(name(package)) == Some(" installed"));
    Ok(packages.iter().copied().filter(|it| !there(it)).collect())
}

fn name(package: &str) -> &str {
    package.split('/').next().unwrap_or(package)
}

/// Whether this process may change the machine.
pub(crate) fn is_root() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    status.lines().any(|it| it.starts_with("Uid:") && it.split_whitespace().nth(2) == Some("0"))
}

/// Whether the package lists are absent or were last looked after more than a day ago. The lists themselves bear the
/// mirror's times, the directory for half-fetched ones bears ours.
fn lists_are_old() -> bool {
    let lists = Path::new("/var/lib/apt/lists");
    let some = fs::read_dir(lists)
        .is_ok_and(|dir| dir.flatten().any(|it| it.file_name().to_string_lossy().contains("_Packages")));
    let age = fs::metadata(lists.join("partial")).and_then(|it| it.modified()).ok().and_then(|it| it.elapsed().ok());
    !some || age.is_none_or(|it| it > Duration::from_hours(24))
}

/// An entry of apt's sources, in either notation.
#[derive(Debug, Default, PartialEq, Eq)]
struct Source {
    uri: String,
    suites: Vec<String>,
    /// Options that make the mirror trusted, in deb822's notation: a newer suite of the same mirror needs the same.
    options: Vec<(String, String)>,
}

impl Source {
    fn stanza(&self, suite: &str) -> String {
        let mut text = format!("Types: deb\nURIs: {}\nSuites: {suite}\nComponents: main\n", self.uri);
        for (key, value) in &self.options {
            text.push_str(&format!("{key}: {value}\n"));
        }
        text
    }
}

const OPTIONS: &[&str] = &["Signed-By", "Trusted", "Check-Valid-Until", "Architectures"];

fn sources() -> Vec<Source> {
    let mut files = vec!["/etc/apt/sources.list".into()];
    files.extend(fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten().map(|it| it.path()));
    files.sort();
    let mut found = vec![];
    for file in files {
        let text = fs::read_to_string(&file).unwrap_or_default();
        match file.extension().and_then(|it| it.to_str()) {
            Some("sources") => found.extend(deb822(&text)),
            Some("list") => found.extend(text.lines().filter_map(one_line)),
            _ => {}
        }
    }
    found
}

/// `Key: value` paragraphs. A value goes on in lines that begin with a space.
fn deb822(text: &str) -> Vec<Source> {
    let text: String = text.lines().filter(|it| !it.starts_with('#')).flat_map(|it| [it.trim_end(), "\n"]).collect();
    text.split("\n\n").filter_map(|it| paragraph(&it.replace("\n ", " "))).collect()
}

fn paragraph(text: &str) -> Option<Source> {
    let value = |key: &str| {
        text.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case(key).then(|| value.trim().to_owned())
        })
    };
    if value("Enabled").is_some_and(|it| it == "no") || !value("Types")?.split_whitespace().any(|it| it == "deb") {
        return None;
    }
    Some(Source {
        uri: value("URIs")?.split_whitespace().next()?.to_owned(),
        suites: value("Suites")?.split_whitespace().map(str::to_owned).collect(),
        options: OPTIONS.iter().filter_map(|key| Some(((*key).to_owned(), value(key)?))).collect(),
    })
}

/// `deb [option=value …] URI suite component…`
fn one_line(line: &str) -> Option<Source> {
    let rest = line.strip_prefix("deb ")?.trim_start();
    let (options, rest) = match rest.strip_prefix('[') {
        Some(inside) => inside.split_once(']')?,
        None => ("", rest),
    };
    let short = |key: &str| key.to_ascii_lowercase().replace("architectures", "arch");
    let option = |key: &str| options.split_whitespace().find_map(|it| it.strip_prefix(&short(key))?.strip_prefix('='));
    let mut words = rest.split_whitespace();
    Some(Source {
        uri: words.next()?.to_owned(),
        suites: vec![words.next()?.to_owned()],
        options: OPTIONS.iter().filter_map(|key| Some(((*key).to_owned(), option(key)?.replace(',', " ")))).collect(),
    })
}

fn write(path: &str, text: &str) -> Result<()> {
    println!("  writes {path}");
    fs::write(path, text).with_context(|| format!("write {path}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const STANZAS: &str = "\
Types: deb
# a remark
URIs: http://mirror.example/debian
Suites: bookworm
 bookworm-updates
Components: main
Signed-By: /keys/debian.gpg

Types: deb-src
URIs: http://mirror.example/debian
Suites: bookworm

Enabled: no
Types: deb
URIs: http://other.example/debian
Suites: bookworm
";

    #[test]
    fn paragraphs_give_mirror_suites_and_key() {
        let found = deb822(STANZAS);
        assert_eq!(found.len(), 1, "{found:?}");
        assert_eq!(found[0].uri, "http://mirror.example/debian");
        assert_eq!(found[0].suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(
            found[0].stanza("trixie"),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\nSigned-By: /keys/debian.gpg\n"
        );
    }

    #[test]
    fn a_line_says_the_same_as_a_paragraph() {
        let line =
            "deb [arch=amd64,arm64 signed-by=/keys/debian.gpg] http://mirror.example/debian bookworm main contrib";
        let source = one_line(line).expect("a source");
        assert_eq!(source.suites, ["bookworm"]);
        assert_eq!(
            source.stanza("trixie"),
            "Types: deb\nURIs: http://mirror.example/debian\nSuites: trixie\nComponents: main\n\
             Signed-By: /keys/debian.gpg\nArchitectures: amd64 arm64\n"
        );
        assert_eq!(one_line("deb http://mirror.example/debian bookworm main").expect("a source").options, []);
    }

    #[test]
    fn a_list_of_mirrors_gives_the_first_that_debootstrap_knows() {
        let list = |file: &str| match file {
            "/etc/apt/mirrors.txt" => {
                "# ours\nhttp://near.example/ubuntu/\tpriority:1\nhttp://far.example/\n".to_owned()
            }
            _ => String::new(),
        };
        let near = Some("http://near.example/ubuntu/".to_owned());
        assert_eq!(plain_uri("mirror+file:/etc/apt/mirrors.txt", list), near);
        assert_eq!(plain_uri("mirror+file:///etc/apt/mirrors.txt", list), near);
        assert_eq!(plain_uri("http://near.example/ubuntu/", list), near);
        assert_eq!(plain_uri("mirror+file:/none", list), None);
        assert_eq!(plain_uri("mirror://far.example/list", list), None);
    }

    #[test]
    fn remarks_and_source_packages_are_no_sources() {
        assert_eq!(one_line("# deb http://mirror.example/debian bookworm main"), None);
        assert_eq!(one_line("deb-src http://mirror.example/debian bookworm main"), None);
    }
}
