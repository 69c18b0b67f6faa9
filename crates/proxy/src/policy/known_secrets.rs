//! Secrets of well-known services, by the variable that their programs read: their hosts, their place in a request, and the
//! shape of a value. From the services' own documentation of their APIs.

/// A secret of a well-known service.
#[derive(Clone, Copy, Debug)]
pub struct KnownSecret {
    /// The variable.
    pub variable: &'static str,
    /// The hosts of the service.
    pub hosts: &'static [&'static str],
    /// The place, as [`SecretPlace::parse_list`](super::SecretPlace::parse_list) reads it.
    pub place: &'static str,
    /// How its values begin, and their usual length. Some programs check both.
    shape: (&'static str, usize),
}

const fn known(
    variable: &'static str,
    hosts: &'static [&'static str],
    place: &'static str,
    shape: (&'static str, usize),
) -> KnownSecret {
    KnownSecret { variable, hosts, place, shape }
}

const GITHUB: &[&str] = &["api.github.com", "github.com", "uploads.github.com"];
const GITHUB_PLACES: &str = "bearer,basic";
const GOOGLE: &[&str] = &["generativelanguage.googleapis.com"];
const GOOGLE_PLACES: &str = "header:x-goog-api-key,query:key";

const KNOWN: &[KnownSecret] = &[
    known("OPENAI_API_KEY", &["api.openai.com"], "bearer", ("sk-proj-", 164)),
    known("ANTHROPIC_API_KEY", &["api.anthropic.com"], "header:x-api-key", ("sk-ant-api03-", 108)),
    known("ANTHROPIC_AUTH_TOKEN", &["api.anthropic.com"], "bearer", ("sk-ant-oat01-", 108)),
    known("GEMINI_API_KEY", GOOGLE, GOOGLE_PLACES, ("AIza", 39)),
    known("GOOGLE_API_KEY", GOOGLE, GOOGLE_PLACES, ("AIza", 39)),
    known("AZURE_OPENAI_API_KEY", &["*.openai.azure.com"], "header:api-key", ("", 32)),
    known("GITHUB_TOKEN", GITHUB, GITHUB_PLACES, ("ghp_", 40)),
    known("GH_TOKEN", GITHUB, GITHUB_PLACES, ("ghp_", 40)),
    known("GITLAB_TOKEN", &["gitlab.com"], "header:private-token,bearer,basic", ("glpat-", 26)),
    known("NPM_TOKEN", &["registry.npmjs.org"], "bearer", ("npm_", 40)),
    known("CARGO_REGISTRY_TOKEN", &["crates.io"], "header:authorization", ("cio", 35)),
    known("TWINE_PASSWORD", &["upload.pypi.org"], "basic", ("pypi-", 180)),
    known("HF_TOKEN", &["huggingface.co"], "bearer", ("hf_", 37)),
];

impl KnownSecret {
    /// Finds the service whose programs read that variable.
    #[must_use]
    pub fn find(variable: &str) -> Option<&'static Self> {
        KNOWN.iter().find(|it| it.variable == variable)
    }
}

/// Returns the start and the length of a placeholder for that variable.
pub(crate) fn shape(variable: &str) -> (&'static str, usize) {
    KnownSecret::find(variable).map_or(("", 40), |it| it.shape)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle_types::Secret;

    use super::*;
    use crate::Authority;
    use crate::policy::{FixedKey, SecretPlace, SecretRule};

    #[test]
    fn each_is_a_rule_and_its_placeholder_looks_like_a_value() {
        let authority = Authority::generate("box").unwrap();
        for it in KNOWN {
            let placeholder = authority.placeholder(it.variable);
            let key = Arc::new(FixedKey(Arc::new(Secret::from("k"))));
            let places = SecretPlace::parse_list(it.place).unwrap();
            SecretRule::new(it.variable, &placeholder, it.hosts, places, key).unwrap();
            assert!(placeholder.starts_with(it.shape.0) && placeholder.len() == it.shape.1, "{placeholder}");
        }
        let one = authority.placeholder("MY_KEY");
        assert_eq!((one.len(), &one), (40, &authority.placeholder("MY_KEY")), "each process knows the same");
        assert_ne!(one, Authority::generate("box").unwrap().placeholder("MY_KEY"), "each container has its own");
        assert_ne!(one, authority.placeholder("MY_KEY2"));
    }
}
