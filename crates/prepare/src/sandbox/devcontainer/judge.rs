//! Validates a `devcontainer.json`: finds everything that is not granted, before an image is built.

use std::collections::BTreeMap;
use std::path::Path;

use coracle_context::config::Config;
use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_devcontainer::file::{
    Devcontainer, DevcontainerSearch, HostRequirements, MAX_BYTES, Variables, find, read,
};
use coracle_devcontainer::mounts::MountKind;
use coracle_devcontainer::refusal::DeniedProperty;
use coracle_host::fs::HostPath;
use coracle_runtime::{Limits, Mount, Policy, Problem};
use coracle_types::ImageRef;
use coracle_worktrees::commit_files::CommitFileKind;

use super::build_files::BuildFiles;
use super::image::{DevcontainerImage, ImageContext, Recipe, build, missing, recipe};
use super::refusal::refused;
use crate::resolve::protected;
use crate::sandbox::plan::{Bind, bind};

/// A file without refused properties.
#[derive(Debug)]
pub struct JudgedFile {
    /// Its text.
    pub bytes: Vec<u8>,
    pub file: Devcontainer,
    /// How its image is built.
    pub recipe: Recipe,
}

/// Returns the path of the file, if it is in one of the usual places.
pub async fn searched(files: BuildFiles<'_>, hint: &str) -> Result<Option<String>, Failure> {
    let mut names = files.list(".devcontainer").await?;
    names.extend(files.list(".devcontainer.json").await?);
    match find(names.iter().filter(|it| it.kind != CommitFileKind::Link).map(|it| it.path.as_str())) {
        DevcontainerSearch::Nothing => Ok(None),
        DevcontainerSearch::One(path) => Ok(Some(path)),
        DevcontainerSearch::Several(paths) => {
            let message = format!("there are several, and none is the usual one: {}", paths.join(", "));
            Err(Failure::new(Code::DevcontainerInvalid, message).detail("found", paths).hint(hint))
        }
    }
}

/// Reads the file at a path, and refuses what is not granted. `usual` is the image for a file that names none.
pub async fn judge(
    cx: &Context,
    files: BuildFiles<'_>,
    path: &str,
    variables: &Variables,
    usual: Option<&ImageRef>,
) -> Result<JudgedFile, Failure> {
    let found = files.list(path).await?;
    let found = found.iter().find(|it| it.path == path && it.kind != CommitFileKind::Link);
    let found = found.ok_or_else(|| missing(path, "is no file of the repository"))?;
    let bytes = files.content(found, MAX_BYTES).await.map_err(|err| missing(path, &err.into_inner().message))?;
    let file = read(&bytes, variables).map_err(|err| err.detail("file", path))?;
    let mut refusals = mount_problems(&file, &cx.policy()?);
    refusals.extend(protected_problems(&file, &cx.config));
    let none = BTreeMap::new();
    let context = ImageContext { cx, files, path, variables, remote_user: file.user.as_deref(), digests: &none };
    let recipe = recipe(context, &file, usual, &mut refusals).await?;
    if !refusals.is_empty() {
        return Err(refused(cx, &refusals).detail("file", path));
    }
    Ok(JudgedFile { bytes, file, recipe })
}

impl JudgedFile {
    /// Builds the image, or finds one that was built before. The arguments are those of `judge`.
    pub async fn build(
        &self,
        cx: &Context,
        files: BuildFiles<'_>,
        path: &str,
        variables: &Variables,
        ready: &Ready,
    ) -> Result<DevcontainerImage, Failure> {
        let none = BTreeMap::new();
        let remote_user = self.file.user.as_deref();
        build(ImageContext { cx, files, path, variables, remote_user, digests: &none }, ready, &self.recipe).await
    }
}

/// Mounts of host directories need the same grant as any other mount.
fn mount_problems(file: &Devcontainer, policy: &Policy) -> Vec<DeniedProperty> {
    let binds = file.mounts.iter().filter_map(|it| match &it.kind {
        MountKind::Bind(source) => Some(source),
        _ => None,
    });
    let problem = |source: &String| {
        if !source.starts_with('/') {
            let message = format!("`{}` is no absolute path of this host", source.escape_debug());
            return Some(DeniedProperty::new("mounts", "mount.root", message));
        }
        match HostPath::open(Path::new(source)) {
            Err(err) => Some(DeniedProperty::new("mounts", "mount.root", err.to_string())),
            Ok(host) => policy.host_path_problem("mount", host.real()).map(refusal_of),
        }
    };
    binds.filter_map(problem).collect()
}

/// Finds mounts that would circumvent the protected paths of a host directory.
fn protected_problems(file: &Devcontainer, config: &Config) -> Vec<DeniedProperty> {
    let names = &config.workspace.protected;
    let open = |(path, at, access): Bind| HostPath::open(&path).ok().map(|host| Mount { host, at, access });
    // A directory that cannot be opened is refused elsewhere.
    let mounts: Vec<_> = file.mounts.iter().filter_map(|it| open(bind(config, it)?)).collect();
    let around = protected::ways_around(&mounts, names).into_iter().map(refusal_of);
    let covering = protected::in_place_of(&mounts, names);
    let covering =
        covering.map(|it| DeniedProperty::new("mounts", "files.protected", it).unless("workspace.protected"));
    around.chain(covering).collect()
}

fn refusal_of(problem: Problem) -> DeniedProperty {
    let Problem { rule, setting, message, .. } = problem;
    DeniedProperty { property: "mounts".into(), rule, setting, message }
}

/// Lists the requirements of the file that the container does not meet.
pub fn unmet(needs: &HostRequirements, limits: &Limits, gpu: bool) -> Vec<String> {
    let cpus = needs.cpus.zip(limits.cpus).filter(|(required, has)| required > has);
    let memory = needs.memory.zip(limits.memory).filter(|(required, has)| *required > has.0);
    [
        cpus.map(|(required, has)| format!("it asks for {required} cores, and has {has}")),
        memory.map(|(required, has)| format!("it asks for {required} bytes of memory, and has {has}")),
        (needs.gpu && !gpu).then(|| "it asks for a GPU, and has none".to_owned()),
    ]
    .into_iter()
    .flatten()
    .collect()
}
