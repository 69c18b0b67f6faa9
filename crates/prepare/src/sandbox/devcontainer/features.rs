//! Adds features to an image: their files, their options, and the build that runs their scripts.

use std::collections::BTreeMap;

use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_devcontainer::features::{Artifact, Feature, FeatureFile, feature_file};
use coracle_devcontainer::file::is_excluded;
use coracle_runtime::Image;
use coracle_types::SandboxWarning;
use coracle_worktrees::commit_files::CommitFile;
use serde_json::json;

use super::fetch::{FetchedFeature, fetch};
use super::image::{DevcontainerImage, DockerfileRequest, ImageContext, by_key, content, files_of, missing};

/// Runs a feature's script. Its options are in a file with quoted values, so the shell never interprets a value.
/// Only the image knows the home directories of the users.
const INSTALL: &str = "set -a && . \"$PWD.env\" && home() { awk -F: -v who=\"${1%%:*}\" \
    '$1 == who || $3 == who { print $6; exit }' /etc/passwd 2>/dev/null || true; } && \
    _REMOTE_USER_HOME=\"$(home \"$_REMOTE_USER\")\" && _CONTAINER_USER_HOME=\"$(home \"$_CONTAINER_USER\")\" && set +a && \
    chmod 755 install.sh && ./install.sh && cd / && rm -rf";

/// A feature, with what is needed to install it in an image.
#[derive(Debug)]
pub(super) struct FeatureInstall {
    pub(super) feature: Feature,
    pub(super) files: FeatureSource,
    pub(super) file: FeatureFile,
    env: BTreeMap<String, String>,
}

/// The files of a feature.
#[derive(Debug)]
pub(super) enum FeatureSource {
    /// Below a directory of the repository.
    Repository(String, Vec<CommitFile>),
    /// In a directory of Coracle, downloaded from a registry.
    Registry(FetchedFeature),
}

pub(super) async fn tool(
    it: ImageContext<'_>,
    feature: &Feature,
    below: String,
    warnings: &mut Vec<SandboxWarning>,
) -> Result<FeatureInstall, Failure> {
    let mut files = it.files.list(&below).await?;
    files.retain(|it| !is_excluded(&it.path));
    content(it, &format!("{below}/install.sh")).await?;
    let about = format!("{below}/devcontainer-feature.json");
    let mut file = feature_file(&feature.name, &content(it, &about).await?)?;
    warnings.append(&mut file.warnings);
    let env = file.environment(feature, it.variables);
    Ok(FeatureInstall { feature: feature.clone(), files: FeatureSource::Repository(below, files), file, env })
}

pub(super) async fn of_registry(
    it: ImageContext<'_>,
    feature: &Feature,
    artifact: &Artifact,
    warnings: &mut Vec<SandboxWarning>,
) -> Result<FeatureInstall, Failure> {
    let fetched = fetch(it.cx, &feature.name, artifact, it.digests.get(&feature.name)).await?;
    let mut file = feature_file(&feature.name, &fetched.about()?)?;
    warnings.append(&mut file.warnings);
    let env = file.environment(feature, it.variables);
    Ok(FeatureInstall { feature: feature.clone(), files: FeatureSource::Registry(fetched), file, env })
}

/// Builds an image with the features installed in order, as root, and sets the image's own user again.
pub(super) async fn with_features(
    it: ImageContext<'_>,
    ready: &Ready,
    base: DevcontainerImage,
    tools: &[FeatureInstall],
) -> Result<DevcontainerImage, Failure> {
    let mut text = format!("FROM {}\nUSER 0:0\n", base.reference);
    let mut parts = Vec::new();
    let (mut trees, mut dirs, mut more) = (Vec::new(), Vec::new(), Vec::new());
    let container = user_of(&base.image)?;
    for (number, tool) in tools.iter().enumerate() {
        let place = format!("/tmp/coracle-feature-{number}");
        text += &format!(
            "COPY {number} {place}\nCOPY {number}.env {place}.env\nRUN cd {place} && {INSTALL} {place} {place}.env\n"
        );
        for (name, value) in &tool.file.env {
            // Names are variable names, values have one line, and in quotes both engines read these escapes as JSON
            // does.
            text += &format!("ENV {name}={}\n", json!(value));
        }
        let lines = tool.env.iter().map(|(name, value)| {
            let value = shlex::try_quote(value).map_err(|_| missing(&tool.feature.name, "has an option with a NUL"))?;
            Ok(format!("{name}={value}\n"))
        });
        let mut env = lines.collect::<Result<String, Failure>>()?;
        // The image's user: the container's, or the one that the file names.
        let user = match container {
            "0:0" => "root",
            user => user,
        };
        for (name, user) in [("_CONTAINER_USER", user), ("_REMOTE_USER", it.remote_user.unwrap_or(user))] {
            let user = shlex::try_quote(user).map_err(|_| missing(&tool.feature.name, "is for a user with a NUL"))?;
            env += &format!("{name}={user}\n");
        }
        let sums = match &tool.files {
            FeatureSource::Repository(below, files) => {
                trees.push((format!("context/{number}"), below.as_str(), files.as_slice()));
                files_of(files, below)
            }
            FeatureSource::Registry(fetched) => {
                dirs.push((format!("context/{number}"), fetched.dir.as_path()));
                json!(fetched.digest)
            }
        };
        parts.push(json!([tool.feature.name, env, tool.file.env, sums]));
        more.push((format!("context/{number}.env"), env));
    }
    text += &format!("USER {container}\n");
    let parts = json!({ "base": base.image.id, "features": parts, "dockerfile": text });
    by_key(it, ready, DockerfileRequest { parts, text, args: Vec::new(), target: None, trees, dirs, more }).await
}

/// Returns the user of an image, if the name needs no quotes in a Dockerfile.
fn user_of(image: &Image) -> Result<&str, Failure> {
    let is_unsupported = |c: char| c.is_control() || c.is_whitespace() || "$\\\"'".contains(c);
    match image.config.user.as_str() {
        "" => Ok("0:0"),
        user if user.contains(is_unsupported) => {
            let message = format!("the image is for the user `{}`, which is no name of one", user.escape_debug());
            Err(Failure::new(Code::DevcontainerInvalid, message).detail("property", "features"))
        }
        user => Ok(user),
    }
}
