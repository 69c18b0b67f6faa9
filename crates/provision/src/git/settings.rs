//! Selects the user's git settings to forward: a pure filter of the output of `git config --list -z`.

use std::collections::BTreeMap;
use std::fmt;

/// Sections that are forwarded, except for what [`withheld`] names.
const SECTIONS: &[&str] = &[
    "init", "pull", "push", "fetch", "rebase", "merge", "diff", "color", "column", "alias", "branch", "rerere", "log",
    "status", "tag", "advice", "format",
];

/// Settings that are forwarded from other sections.
const SINGLE: &[&str] = &[
    "user.name",
    "user.email",
    "user.useconfigonly",
    "core.autocrlf",
    "core.eol",
    "core.quotepath",
    "core.whitespace",
    "core.abbrev",
    "core.commentchar",
    "commit.verbose",
    "commit.cleanup",
];

/// Settings that sign, or that need a key for it.
const SIGNING: &[&str] = &["push.gpgsign", "tag.gpgsign", "tag.forcesignannotated", "log.showsignature"];

/// Last parts of settings that name a program, in any section.
const PROGRAMS: &[&str] = &[
    "external",
    "textconv",
    "command",
    "driver",
    "cmd",
    "tool",
    "guitool",
    "helper",
    "editor",
    "sequenceeditor",
    "pager",
    "sshcommand",
    "askpass",
    "fsmonitor",
    "program",
];

/// Schemes of URLs with a host; any other is a path or a program.
const SCHEMES: &[&str] = &["https://", "http://", "ssh://", "git://"];

/// One setting: the key as git writes it, and its value. One without a value means true.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Setting {
    pub(super) section: String,
    pub(super) sub: Option<Vec<u8>>,
    pub(super) name: String,
    pub(super) value: Option<Vec<u8>>,
}

/// Why a setting stays on the host.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Reason {
    Credentials,
    Proxy,
    Signing,
    Hooks,
    Program,
    HostPath,
    Control,
    Other,
}

impl Reason {
    fn word(self) -> &'static str {
        match self {
            Self::Credentials => "credentials",
            Self::Proxy => "proxies",
            Self::Signing => "signing",
            Self::Hooks => "hooks",
            Self::Program => "programs",
            Self::HostPath => "host paths",
            Self::Control => "control characters",
            Self::Other => "others",
        }
    }
}

/// The forwarded settings, and the number of those left out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settings {
    pub(super) forwarded: Vec<Setting>,
    left_out: BTreeMap<Reason, usize>,
}

impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (forwarded, left_out) = (self.forwarded.len(), self.left_out.values().sum::<usize>());
        write!(
            f,
            "{forwarded} {} forwarded, {left_out} left out",
            if forwarded == 1 { "setting" } else { "settings" }
        )?;
        if left_out > 0 {
            let parts: Vec<_> = self.left_out.iter().map(|(why, n)| format!("{n} {}", why.word())).collect();
            write!(f, " ({})", parts.join(", "))?;
        }
        Ok(())
    }
}

impl Settings {
    /// Parses the output of `git config --global --list --includes -z`, and selects the settings that a container may
    /// have. `git_keys` are configured by the user: they are always forwarded, unless they contain control characters.
    #[must_use]
    pub fn read(printed: &[u8], git_keys: &[String]) -> Self {
        let more: Vec<Setting> = git_keys.iter().filter_map(|it| setting(it.as_bytes())).collect();
        let mut settings = Self::default();
        for setting in printed.split(|it| *it == 0).filter_map(setting) {
            // The included file was read in its place.
            if matches!(setting.section.as_str(), "include" | "includeif") {
                continue;
            }
            match withheld(&setting, &more) {
                None => settings.forwarded.push(setting),
                Some(reason) => *settings.left_out.entry(reason).or_default() += 1,
            }
        }
        settings
    }

    /// Creates settings of these entries.
    pub(super) fn from_entries(forwarded: Vec<Setting>) -> Self {
        Self { forwarded, ..Self::default() }
    }

    /// Whether it contains no setting of the user.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.forwarded.is_empty() && self.left_out.is_empty()
    }

    /// The user's name as git would write it into a commit.
    pub(super) fn user_name(&self) -> Option<&[u8]> {
        self.forwarded.iter().rev().find(|it| it.key() == "user.name")?.value.as_deref()
    }
}

impl Setting {
    /// Section and name, in lower case.
    pub(super) fn key(&self) -> String {
        format!("{}.{}", self.section, self.name)
    }
}

/// Parses `section.name` or `section.subsection.name`, then a newline and the value, if there is one.
fn setting(line: &[u8]) -> Option<Setting> {
    let (key, value) = match line.iter().position(|it| *it == b'\n') {
        Some(at) => (&line[..at], Some(line[at + 1..].to_vec())),
        None => (line, None),
    };
    let first = key.iter().position(|it| *it == b'.')?;
    let last = key.iter().rposition(|it| *it == b'.')?;
    let sub = (first < last).then(|| key[first + 1..last].to_vec());
    let word = |bytes: &[u8], more: &[u8]| {
        let fits = !bytes.is_empty() && bytes.iter().all(|it| it.is_ascii_alphanumeric() || more.contains(it));
        fits.then(|| String::from_utf8_lossy(bytes).to_ascii_lowercase())
    };
    let name = word(&key[last + 1..], b"-").filter(|it| it.starts_with(|c: char| c.is_ascii_alphabetic()))?;
    Some(Setting { section: word(&key[..first], b"-")?, sub, name, value })
}

/// Returns why a setting stays on the host; none if it is forwarded.
fn withheld(setting: &Setting, more: &[Setting]) -> Option<Reason> {
    let value = setting.value.as_deref().unwrap_or_default();
    if has_control(value) || setting.sub.as_deref().is_some_and(has_control) {
        return Some(Reason::Control);
    }
    let same = |it: &Setting| (&it.section, &it.sub, &it.name) == (&setting.section, &setting.sub, &setting.name);
    if more.iter().any(same) {
        return None;
    }
    if setting.section == "url" {
        return rewriting(setting, value);
    }
    let known = SINGLE.contains(&setting.key().as_str()) && setting.sub.is_none();
    if !known && !SECTIONS.contains(&setting.section.as_str()) {
        return Some(of_others(setting));
    }
    // An alias may have any name, and `color.pager` names no program.
    let free = matches!(setting.section.as_str(), "alias" | "color");
    let names_program = PROGRAMS.contains(&setting.name.as_str()) && !free;
    let is_path = value.starts_with(b"/") || value.starts_with(b"~") || setting.name == "templatedir";
    match () {
        () if SIGNING.contains(&setting.key().as_str()) => Some(Reason::Signing),
        () if names_program => Some(Reason::Program),
        () if is_path && !known => Some(Reason::HostPath),
        () => None,
    }
}

/// In `url.<base>.insteadOf`, both URLs need a host and no user, which may come with a password.
fn rewriting(setting: &Setting, value: &[u8]) -> Option<Reason> {
    let base = setting.sub.as_deref().unwrap_or_default();
    if !["insteadof", "pushinsteadof"].contains(&setting.name.as_str()) {
        return Some(Reason::Other);
    }
    if base.contains(&b'@') || value.contains(&b'@') {
        return Some(Reason::Credentials);
    }
    (!SCHEMES.iter().any(|it| base.starts_with(it.as_bytes()))).then_some(Reason::HostPath)
}

/// Returns the reason for a setting that no rule allows.
fn of_others(setting: &Setting) -> Reason {
    let name = setting.name.as_str();
    let secret = ["pass", "token", "secret", "extraheader", "cookie", "username"].iter().any(|it| name.contains(it));
    match setting.section.as_str() {
        "credential" => Reason::Credentials,
        _ if secret => Reason::Credentials,
        _ if name.contains("proxy") => Reason::Proxy,
        "gpg" => Reason::Signing,
        _ if name.contains("sign") => Reason::Signing,
        "hook" => Reason::Hooks,
        _ if name == "hookspath" => Reason::Hooks,
        "filter" | "difftool" | "mergetool" => Reason::Program,
        _ if PROGRAMS.contains(&name) => Reason::Program,
        _ if setting.value.as_ref().is_some_and(|it| it.starts_with(b"/") || it.starts_with(b"~")) => Reason::HostPath,
        _ => Reason::Other,
    }
}

fn has_control(bytes: &[u8]) -> bool {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.chars().any(char::is_control),
        Err(_) => bytes.iter().any(u8::is_ascii_control),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(lines: &[&str], keys: &[&str]) -> Settings {
        let keys: Vec<String> = keys.iter().map(|it| (*it).to_owned()).collect();
        Settings::read(lines.join("\0").as_bytes(), &keys)
    }

    #[test]
    fn identity_and_preferences_are_forwarded() {
        for setting in [
            "user.name\nA. \"B\" Ö",
            "user.email\na@b.example",
            "user.useconfigonly",
            "init.defaultbranch\nmain",
            "pull.rebase\ntrue",
            "push.autosetupremote",
            "alias.lg\nlog --graph",
            "alias.up\n!git pull && git push",
            "alias.tool\n!x",
            "color.pager\nfalse",
            "branch.a.b.c.rebase\ntrue",
            "diff.lock.binary\ntrue",
            "color.ui\n",
            "core.abbrev\n12",
            "core.commentchar\n~",
            "commit.verbose\ntrue",
            "url.https://mirror.example/a.b/.insteadof\nhttps://github.com/",
            "url.https://github.com/.pushinsteadof\ngh:",
        ] {
            let it = read(&[setting], &[]);
            assert_eq!(it.to_string(), "1 setting forwarded, 0 left out", "{setting}");
        }
    }

    #[test]
    fn secrets_and_settings_of_the_host_are_not_forwarded() {
        for (left, why) in [
            ("credential.helper\nstore", "credentials"),
            ("credential.https://x.example.username\nme", "credentials"),
            ("http.extraheader\nAuthorization: x", "credentials"),
            ("http.https://x.example/.cookiefile\n/c", "credentials"),
            ("sendemail.smtppass\nx", "credentials"),
            ("url.https://me:pw@github.com/.insteadof\nhttps://github.com/", "credentials"),
            ("url.git@github.com:.insteadof\nhttps://github.com/", "credentials"),
            ("url.https://github.com/.insteadof\nssh://git@github.com/", "credentials"),
            ("http.proxy\nhttp://proxy", "proxies"),
            ("remote.origin.proxy\nhttp://proxy", "proxies"),
            ("user.signingkey\nABC", "signing"),
            ("commit.gpgsign\ntrue", "signing"),
            ("tag.gpgsign\ntrue", "signing"),
            ("gpg.ssh.allowedsignersfile\n~/.s", "signing"),
            ("core.hookspath\n/hooks", "hooks"),
            ("core.editor\nvi", "programs"),
            ("core.sshcommand\nssh -i x", "programs"),
            ("filter.lfs.clean\ngit-lfs", "programs"),
            ("diff.external\ndifft", "programs"),
            ("diff.x.textconv\ncat", "programs"),
            ("merge.x.driver\nx", "programs"),
            ("init.templatedir\ntemplate", "host paths"),
            ("diff.orderfile\n/home/me/order", "host paths"),
            ("format.signaturefile\n~/signature", "host paths"),
            ("core.excludesfile\n~/.ignore", "host paths"),
            ("url./home/me/mirror/.insteadof\nhttps://github.com/", "host paths"),
            ("url.ext::sh -c x.insteadof\nhttps://github.com/", "host paths"),
            ("alias.x\na\nb", "control characters"),
            ("user.name\na\u{1b}b", "control characters"),
            ("branch.a\u{7}b.rebase\ntrue", "control characters"),
            ("core.bare\ntrue", "others"),
            ("user.other\nx", "others"),
            ("user.sub.name\nx", "others"),
            ("url.https://a.example/.other\nx", "others"),
        ] {
            assert_eq!(read(&[left], &[]).to_string(), format!("0 settings forwarded, 1 left out (1 {why})"), "{left}");
        }
    }

    #[test]
    fn the_user_can_add_keys_but_no_control_characters() {
        let keys = ["Core.Editor", "http.https://X.example/.proxy"];
        let printed =
            ["core.editor\nvi", "http.https://X.example/.proxy\np", "http.https://x.example/.proxy\np", "a.b\nc"];
        assert_eq!(read(&printed, &keys).to_string(), "2 settings forwarded, 2 left out (1 proxies, 1 others)");
        assert_eq!(read(&["core.editor\nv\ti"], &keys).forwarded, []);
    }

    #[test]
    fn subsections_keep_their_dots_and_included_files_count() {
        let it = read(
            &["include.path\n~/x", "includeif.gitdir:~/w/.path\n~/y", "url.https://a.b/c.d/.insteadof\nx:", ""],
            &[],
        );
        let sub = Some(b"https://a.b/c.d/".to_vec());
        let value = Some(b"x:".to_vec());
        assert_eq!(it.forwarded, [Setting { section: "url".into(), sub, name: "insteadof".into(), value }]);
        assert_eq!(it.left_out.len(), 0);
        assert!(read(&["", "garbage", ".x\ny", "a.\nb"], &[]).is_empty());
    }
}
