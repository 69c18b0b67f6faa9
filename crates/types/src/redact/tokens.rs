//! Credentials that are recognisable by their format.

use std::sync::LazyLock;

use regex::{Captures, Regex};

/// The group `keep` is not removed.
const PATTERNS: &[&str] = &[
    // GitHub, GitLab, npm, PyPI, Docker, Hugging Face
    r"gh[pousr]_[A-Za-z0-9]{30,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    r"glpat-[A-Za-z0-9_-]{20,}",
    r"npm_[A-Za-z0-9]{36,}",
    r"pypi-[A-Za-z0-9_-]{50,}",
    r"dckr_pat_[A-Za-z0-9_-]{20,}",
    r"hf_[A-Za-z0-9]{30,}",
    // OpenAI, Anthropic and those like them; Stripe
    r"sk-[A-Za-z0-9_-]{20,}",
    r"[rs]k_(?:live|test)_[A-Za-z0-9]{20,}",
    // AWS, Google, Slack
    r"(?:AKIA|ASIA)[A-Z0-9]{16}",
    r"AIza[A-Za-z0-9_-]{35}",
    r"xox[a-z]-[A-Za-z0-9-]{10,}",
    // JSON web tokens, headers
    r"eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
    r#"(?P<keep>(?i-u:authorization): *(?:[A-Za-z]+ +)?)[^ \t\r\n"'\[]{8,}"#,
];

const KEY: &str = r"-----BEGIN [A-Z ]{0,40}PRIVATE KEY-----(?s:.)*?(?:-----END [A-Z ]{0,40}PRIVATE KEY-----|\z)";

static TOKENS: LazyLock<Regex> = LazyLock::new(|| {
    let any = format!(r"(?-u:\b)(?:{})|{KEY}", PATTERNS.join("|"));
    Regex::new(&any).expect("the patterns are constants, and tried by the tests")
});

pub(super) fn without(text: &str) -> String {
    let replaced = |found: &Captures<'_>| {
        let keep = found.name("keep").map_or("", |it| it.as_str());
        format!("{keep}[redacted:token]")
    };
    TOKENS.replace_all(text, replaced).into_owned()
}
