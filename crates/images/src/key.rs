//! The key of a cached image. Pure.

use coracle_types::EngineKind;
use serde::Serialize;
use serde_json::Value;

pub use crate::digest::Sha256Hex;
use crate::digest::{canonical, hashed};
use crate::recipe::Recipe;

/// Increased if images with earlier keys must not be found any longer.
pub(crate) const SCHEMA: u32 = 1;

/// Everything that determines the content of a cached image.
#[derive(Clone, Debug, Serialize)]
pub struct KeyOf<'a> {
    /// The complete recipe.
    pub recipe: &'a Recipe,
    /// The registry's digest of the base, or its image id.
    pub base_digest: &'a str,
    /// The hash of the installed certificates.
    pub ca: Option<&'a str>,
    /// OCI's name of the architecture.
    pub arch: &'a str,
    /// The engine that stores it.
    pub engine: EngineKind,
    /// Coracle's version, `major.minor`.
    pub tool: &'a str,
}

impl KeyOf<'_> {
    /// Computes the key.
    #[must_use]
    pub fn sum(&self) -> Sha256Hex {
        let mut parts = canonical(self);
        if let Value::Object(parts) = &mut parts {
            parts.insert("schema".into(), SCHEMA.into());
            parts.insert("os".into(), "linux".into());
        }
        hashed(&parts)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::packages::PackageName;
    use crate::recipe::Setup;

    fn recipe(packages: &[String], setup: Vec<String>, env: Vec<(String, String)>) -> Recipe {
        let packages = packages.iter().map(|it| PackageName::parse(it).unwrap()).collect();
        let setup = setup.into_iter().map(Setup::from).collect();
        Recipe { packages, setup, env: env.into_iter().collect(), owned: Vec::new() }
    }

    fn key_of<'a>(recipe: &'a Recipe, digest: &'a str, ca: Option<&'a str>) -> KeyOf<'a> {
        KeyOf { recipe, base_digest: digest, ca, arch: "amd64", engine: EngineKind::Docker, tool: "0.1" }
    }

    fn any_recipe() -> impl Strategy<Value = Recipe> {
        let text = "[ -~]{0,8}";
        (
            proptest::collection::vec("[a-z][a-z0-9-]{0,3}", 0..3),
            proptest::collection::vec(text, 0..3),
            proptest::collection::vec(("[A-Z]{1,2}", text), 0..3),
        )
            .prop_map(|(packages, setup, env)| recipe(&packages, setup, env))
    }

    proptest! {
        #[test]
        fn equal_inputs_have_equal_keys_and_others_have_others(
            a in any_recipe(), b in any_recipe(), digests in ("[ab]", "[ab]"),
            cas in (proptest::option::of("[ab]"), proptest::option::of("[ab]")),
        ) {
            let same = a == b && digests.0 == digests.1 && cas.0 == cas.1;
            let (left, right) = (key_of(&a, &digests.0, cas.0.as_deref()), key_of(&b, &digests.1, cas.1.as_deref()));
            prop_assert_eq!(same, left.sum() == right.sum());
            prop_assert_eq!(left.sum(), left.clone().sum());
            prop_assert_eq!(a == b, a.sum() == b.sum());
        }
    }

    #[test]
    fn every_part_changes_the_key() {
        let plain = Recipe::default();
        let jq = recipe(&["jq".into()], vec![], vec![]);
        let setup = recipe(&[], vec!["jq".into()], vec![]);
        let env = recipe(&[], vec![], vec![("jq".into(), String::new())]);
        let base = key_of(&plain, "sha256:a", None);
        let keys = [
            base.clone(),
            KeyOf { recipe: &jq, ..base.clone() },
            KeyOf { recipe: &setup, ..base.clone() },
            KeyOf { recipe: &env, ..base.clone() },
            KeyOf { base_digest: "sha256:b", ..base.clone() },
            KeyOf { ca: Some("sha256:a"), ..base.clone() },
            KeyOf { arch: "arm64", ..base.clone() },
            KeyOf { engine: EngineKind::Podman, ..base.clone() },
            KeyOf { tool: "0.2", ..base.clone() },
        ];
        let sums: std::collections::BTreeSet<_> = keys.iter().map(KeyOf::sum).collect();
        assert_eq!(sums.len(), keys.len());
    }

    #[test]
    fn descriptions_and_the_order_of_packages_do_not_change_a_recipe() {
        let named = |what| Recipe { setup: vec![Setup::fixed(what, "x", &[], &[])], ..Recipe::default() };
        assert_eq!(named("a").sum(), named("b").sum());
        let listed = |names: [&str; 2]| recipe(&names.map(str::to_owned), vec![], vec![]).sum();
        assert_eq!(listed(["a", "b"]), listed(["b", "a"]));
    }
}
