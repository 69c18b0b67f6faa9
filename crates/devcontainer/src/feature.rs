//! Features: scripts that run as root while an image is built.

use std::collections::BTreeMap;

use coracle_types::SandboxWarning;
use coracle_types::failure::Result;
use serde_json::Value;

use crate::artifact::Artifact;
use crate::refusal::{DeniedProperty, ignored, invalid};
use crate::value::{line_of, variable};
use crate::variables::Variables;
use crate::{context, json};

/// A requested feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Feature {
    /// As written: `./x`, or `registry/namespace/id:tag`.
    pub name: String,
    /// Its options.
    pub options: BTreeMap<String, String>,
}

/// The location of a feature.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FeatureLocation {
    /// A directory of the repository.
    Repository(String),
    /// In a registry.
    Registry(Artifact),
}

/// The setting that allows features from registries.
pub const ALLOWED_FEATURES: &str = "sandbox.features_allow";

impl Feature {
    /// Parses options: an object, or a version.
    pub(super) fn read(name: &str, options: &Value) -> Result<Self, String> {
        let options = match options {
            Value::Object(all) => all
                .iter()
                .map(|(key, value)| Ok((option_name(key)?, option_of(value)?)))
                .collect::<Result<_, String>>()?,
            Value::String(version) => [("version".to_owned(), version.clone())].into(),
            Value::Bool(true) | Value::Null => BTreeMap::new(),
            _ => return Err(format!("has options of `{}` that are none", name.escape_debug())),
        };
        Ok(Self { name: name.to_owned(), options })
    }

    /// Returns its location. `dir` is the file's directory, and `is_allowed` checks the user's list of features from
    /// registries.
    ///
    /// # Errors
    /// A feature outside of the repository, or from a registry and not on the list.
    pub fn place(&self, dir: &str, is_allowed: impl Fn(&str) -> bool) -> Result<FeatureLocation, DeniedProperty> {
        let refuse = |message: &str| {
            let property = format!("features.{}", self.name);
            Err(DeniedProperty::new(property, "devcontainer.feature", message))
        };
        if self.name.starts_with("./") || self.name.starts_with("../") {
            return match context::relative(dir, &self.name) {
                Some(path) if !path.is_empty() && !context::is_excluded(&path) => Ok(FeatureLocation::Repository(path)),
                _ => refuse("it lies outside the repository"),
            };
        }
        if !is_allowed(&self.name) {
            return refuse("it is not on the list").map_err(|refusal| refusal.unless(ALLOWED_FEATURES));
        }
        Artifact::parse(&self.name).map(FeatureLocation::Registry).or_else(refuse)
    }

    /// Its name without a version.
    fn id(&self) -> &str {
        unversioned(&self.name)
    }
}

/// Removes tag and digest from a name.
fn unversioned(name: &str) -> &str {
    let name = name.split_once('@').map_or(name, |it| it.0);
    match name.rsplit_once(':') {
        Some((before, tag)) if !tag.contains('/') => before,
        _ => name,
    }
}

/// Returns the order in which features are installed, as indices: as given, but each after those that it has to follow,
/// if they are present.
///
/// # Errors
/// `devcontainer_invalid` for a circular order.
pub fn in_order(all: &[(&Feature, &FeatureFile)]) -> Result<Vec<usize>> {
    let mut left: Vec<usize> = (0..all.len()).collect();
    let mut ordered = Vec::new();
    while !left.is_empty() {
        let waits = |it: usize| {
            let after = all[it].1.after.iter().map(|it| unversioned(it));
            after.into_iter().any(|id| left.iter().any(|other| *other != it && all[*other].0.id() == id))
        };
        let Some(next) = left.iter().position(|it| !waits(*it)) else {
            let names: Vec<_> = left.iter().map(|it| all[*it].0.name.as_str()).collect();
            let message = format!("features come after each other in a circle: {}", names.join(", "));
            return Err(invalid(None, &message).detail("property", "features"));
        };
        ordered.push(left.remove(next));
    }
    Ok(ordered)
}

/// A parsed `devcontainer-feature.json`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FeatureFile {
    /// Default values of options.
    pub defaults: BTreeMap<String, String>,
    /// Variables that the image gets.
    pub env: BTreeMap<String, String>,
    /// Features that it has to follow, if they are present.
    pub after: Vec<String>,
    /// Properties without effect.
    pub warnings: Vec<SandboxWarning>,
}

/// Parses the description of a feature.
///
/// # Errors
/// `devcontainer_invalid`, or `devcontainer_refused` for properties that are never granted.
pub fn feature_file(name: &str, bytes: &[u8]) -> Result<FeatureFile> {
    let (_, all) = json::object(bytes)?;
    let mut file = FeatureFile::default();
    let mut refusals = Vec::new();
    let wrong = |why: String| invalid(None, &format!("the feature `{}` {why}", name.escape_debug()));
    for (property, value) in &all {
        match property.as_str() {
            "options" => {
                let defaults = value.as_object().into_iter().flatten();
                let defaults = defaults.filter_map(|(key, it)| Some((key, option_of(it.get("default")?).ok()?)));
                for (key, value) in defaults {
                    file.defaults.insert(option_name(key).map_err(wrong)?, value);
                }
            }
            "containerEnv" => {
                for (key, value) in value.as_object().into_iter().flatten().filter(|it| it.1.is_string()) {
                    let set = variable(key).and_then(|key| Ok((key, line_of(value)?)));
                    file.env.extend([set.map_err(wrong)?]);
                }
            }
            "privileged" | "capAdd" | "securityOpt" => {
                if !matches!(value, Value::Bool(false) | Value::Null)
                    && value.as_array().is_none_or(|it| !it.is_empty())
                {
                    let rule = match property.as_str() {
                        "privileged" => "devcontainer.privileged",
                        "capAdd" => "devcontainer.capabilities",
                        _ => "devcontainer.security_opt",
                    };
                    refusals.push(DeniedProperty::new(
                        format!("features.{name}.{property}"),
                        rule,
                        "no container of a sandbox has that",
                    ));
                }
            }
            "installsAfter" => {
                let names = value.as_array().into_iter().flatten().filter_map(Value::as_str);
                file.after = names.map(str::to_owned).collect();
            }
            "dependsOn" => {
                let names: Vec<_> = value.as_object().into_iter().flatten().map(|it| it.0.as_str()).collect();
                if !names.is_empty() {
                    let message = format!(
                        "it needs other features, which are put on no image by themselves: name {} in the file as well",
                        names.join(", ")
                    );
                    refusals.push(DeniedProperty::new(
                        format!("features.{name}.dependsOn"),
                        "devcontainer.feature",
                        message,
                    ));
                }
            }
            "id" | "version" | "name" | "description" | "documentationURL" | "licenseURL" | "keywords"
            | "customizations" | "legacyIds" | "deprecated" => {}
            other => file
                .warnings
                .push(ignored(format!("`{}` of the feature `{name}` has no effect here", other.escape_debug()))),
        }
    }
    if refusals.is_empty() { Ok(file) } else { Err(crate::refusal::refused(&refusals)) }
}

/// The name of the variable for an option of a feature's script.
#[must_use]
pub fn variable_of(option: &str) -> String {
    let word: String =
        option.chars().map(|it| if it.is_ascii_alphanumeric() { it.to_ascii_uppercase() } else { '_' }).collect();
    let rest = word.trim_start_matches(|it: char| it.is_ascii_digit() || it == '_');
    if rest.len() == word.len() { word } else { format!("_{rest}") }
}

/// Validates the name of an option, which becomes a variable.
fn option_name(option: &str) -> Result<String, String> {
    if option.contains(char::is_control) || variable(&variable_of(option)).is_err() {
        return Err(format!("has `{}`, which is no name of an option", option.escape_debug()));
    }
    Ok(option.to_owned())
}

fn option_of(value: &Value) -> Result<String, String> {
    match value {
        Value::String(text) if !text.contains('\0') => Ok(text.clone()),
        Value::Bool(it) => Ok(it.to_string()),
        Value::Number(it) => Ok(it.to_string()),
        _ => Err("has an option that is neither a string nor a boolean".into()),
    }
}

/// Options as given, merged with the defaults.
impl FeatureFile {
    /// The environment of the script.
    #[must_use]
    pub fn environment(&self, feature: &Feature, variables: &Variables) -> BTreeMap<String, String> {
        let mut options = self.defaults.clone();
        options.extend(feature.options.clone());
        let mut unseen = Vec::new();
        options.into_iter().map(|(name, value)| (variable_of(&name), variables.filled(&value, &mut unseen))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(name: &str) -> Feature {
        Feature { name: name.into(), options: BTreeMap::new() }
    }

    #[test]
    fn features_are_in_the_repository_or_on_the_list() {
        let allowed = |name: &str| name.starts_with("ghcr.io/devcontainers/features/go") || name.starts_with("go");
        let located = |name: &str| named(name).place(".devcontainer", allowed).map_err(|it| it.message);
        assert_eq!(located("./tool"), Ok(FeatureLocation::Repository(".devcontainer/tool".into())));
        assert_eq!(located("../shared/tool"), Ok(FeatureLocation::Repository("shared/tool".into())));
        for version in ["", ":1", &format!("@sha256:{}", "a".repeat(64))] {
            let name = format!("ghcr.io/devcontainers/features/go{version}");
            assert_eq!(located(&name), Ok(FeatureLocation::Registry(Artifact::parse(&name).unwrap())), "{name}");
        }
        assert!(located("ghcr.io/devcontainers/features/node:1").unwrap_err().contains("list"));
        assert!(located("../../outside").unwrap_err().contains("outside"));
        assert!(located("go").unwrap_err().contains("registry"));
    }

    #[test]
    fn each_feature_follows_those_that_it_names_and_a_circle_is_reported() {
        let file = |after: &[&str]| {
            let after = after.iter().map(|it| (*it).to_owned()).collect();
            FeatureFile { after, ..FeatureFile::default() }
        };
        let order = |all: &[(&str, &[&str])]| {
            let all: Vec<_> = all.iter().map(|(name, after)| (named(name), file(after))).collect();
            let all: Vec<_> = all.iter().map(|(feature, file)| (feature, file)).collect();
            in_order(&all)
        };
        assert_eq!(order(&[("./a", &[]), ("./b", &[])]).unwrap(), [0, 1]);
        let last = [
            ("r.io/a:1", &["r.io/c", "r.io/nowhere"][..]),
            ("r.io/b@sha256:x", &[]),
            ("r.io:80/c", &[]),
            ("r.io/c:2", &[]),
        ];
        assert_eq!(order(&last).unwrap(), [1, 2, 3, 0]);
        let circle = order(&[("r.io/a", &["r.io/b:1"][..]), ("r.io/b", &["r.io/a"])]).unwrap_err();
        assert_eq!(circle.code, coracle_types::failure::Code::DevcontainerInvalid);
        assert!(circle.message.contains("circle"), "{}", circle.message);
        let needs = feature_file("./t", br#"{ "dependsOn": { "r.io/a:1": {} } }"#).unwrap_err();
        assert_eq!(
            (needs.code, &needs.details["property"]),
            (coracle_types::failure::Code::DevcontainerRefused, &"features../t.dependsOn".into())
        );
        assert_eq!(
            feature_file("./t", br#"{ "installsAfter": ["r.io/a"], "dependsOn": {} }"#).unwrap().after,
            ["r.io/a"]
        );
    }

    #[test]
    fn no_name_or_value_of_a_feature_becomes_another_line_of_a_build() {
        for text in [
            r#"{ "containerEnv": { "A=1\nUSER 0\nENV B": "1" } }"#,
            r#"{ "containerEnv": { "A B": "1" } }"#,
            r#"{ "containerEnv": { "": "1" } }"#,
            r#"{ "containerEnv": { "A": "1\nRUN evil" } }"#,
            r#"{ "options": { "": { "default": "1" } } }"#,
            r#"{ "options": { "a\nb": { "default": "1" } } }"#,
        ] {
            let failure = feature_file("./t", text.as_bytes()).unwrap_err();
            assert_eq!(failure.code, coracle_types::failure::Code::DevcontainerInvalid, "{text}");
        }
        assert!(Feature::read("./t", &serde_json::json!({ "a\nb": "1" })).is_err());
        assert!(Feature::read("./t", &serde_json::json!({ "install-tools": "a\nb" })).is_ok());
    }

    #[test]
    fn options_are_passed_as_variables_over_their_defaults() {
        assert_eq!(["version", "install-tools", "1x"].map(variable_of), ["VERSION", "INSTALL_TOOLS", "_X"]);
        let file = br#"{ "id": "t", "options": { "version": { "type": "string", "default": "1" }, "fast": { "default": false } },
            "containerEnv": { "T": "1" }, "entrypoint": "/x" }"#;
        let file = feature_file("./t", file).unwrap();
        let feature = Feature::read("./t", &serde_json::json!({ "version": "2" })).unwrap();
        let env = file.environment(&feature, &Variables::default());
        assert_eq!(env, BTreeMap::from([("FAST".into(), "false".into()), ("VERSION".into(), "2".into())]));
        assert_eq!((file.env["T"].as_str(), file.warnings.len()), ("1", 1));
        assert!(feature_file("./t", br#"{ "privileged": true }"#).is_err());
    }
}
