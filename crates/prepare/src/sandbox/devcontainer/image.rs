//! The image of a `devcontainer.json`: the one that it names, or one that is built from the repository's commit.
//!
//! **Invariant:** a build reads only the commit that the host fetched, or the directory that `create` names, without
//! files that are
//! named like a key.
//! **Invariant:** a built image is used again only under the id that this host recorded.

use std::collections::BTreeMap;
use std::path::Path;

use coracle_archive::transfer::{Limits, Writer, unpack};
use coracle_context::config::BuildNetwork;
use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_devcontainer::dockerfile::{Dockerfile, dockerfile};
use coracle_devcontainer::features::{FeatureLocation, in_order};
use coracle_devcontainer::file::{Build, Devcontainer, Variables, is_excluded, relative};
use coracle_devcontainer::refusal::DeniedProperty;
use coracle_host::fs::HostPath;
use coracle_images::{DockerfileImages, digest_of};
use coracle_runtime::{Image, ImageBuild, PatternSet, Policy};
use coracle_sandbox::devcontainer_state::DevcontainerState;
use coracle_types::{Ids, ImageRef, SandboxWarning};
use coracle_worktrees::commit_files::{CommitFile, CommitFileKind, PackPaths};
use serde_json::{Value, json};

use super::build_files::BuildFiles;
use super::features::{FeatureInstall, FeatureSource, of_registry, tool, with_features};
use super::local_env;
use crate::image_build::{NamedImage, sandbox_image};

/// Maximum size of a Dockerfile, and of a feature's description.
const MAX_TEXT: usize = 1 << 20;

/// Maximum size of a build context.
pub(super) const MAX_CONTEXT: Limits = Limits { max_bytes: 1 << 30, max_entries: 100_000 };

/// How to create an image. Everything that can be refused is checked before this exists.
#[derive(Debug)]
pub struct Recipe {
    base: BaseSource,
    features: Vec<FeatureInstall>,
    /// Files that are excluded from the build.
    pub excluded: Vec<String>,
    pub warnings: Vec<SandboxWarning>,
}

#[derive(Debug)]
enum BaseSource {
    /// An existing image: the file's, or that of the profile.
    Image(Option<ImageRef>),
    Built(Box<DockerfilePlan>),
}

#[derive(Debug)]
struct DockerfilePlan {
    text: String,
    needs: Dockerfile,
    build: Build,
    /// The directory of the repository that is the build context.
    below: String,
    files: Vec<CommitFile>,
}

impl Recipe {
    /// The digests of features from registries, by name.
    pub(super) fn digests(&self) -> BTreeMap<String, String> {
        let all = self.features.iter().filter_map(|it| match &it.files {
            FeatureSource::Registry(fetched) => Some((it.feature.name.clone(), fetched.digest.clone())),
            FeatureSource::Repository(..) => None,
        });
        all.collect()
    }
}

/// What an image is created for, and from which files.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageContext<'a> {
    pub(super) cx: &'a Context,
    pub(super) files: BuildFiles<'a>,
    /// The file's path.
    pub(super) path: &'a str,
    pub(super) variables: &'a Variables,
    /// The exec user, as the file sets it.
    pub(super) remote_user: Option<&'a str>,
    /// The digests of features that were downloaded before, which pin their versions.
    pub(super) digests: &'a BTreeMap<String, String>,
}

impl ImageContext<'_> {
    /// The directory of the file.
    fn dir(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |it| it.0)
    }
}

/// An image that exists.
#[derive(Debug)]
pub struct DevcontainerImage {
    pub image: Image,
    pub reference: ImageRef,
    pub built: bool,
}

/// Returns the image of an existing sandbox, built again if it was removed.
pub(crate) async fn image_of(cx: &Context, ready: &Ready, state: &DevcontainerState) -> Result<NamedImage, Failure> {
    let record = &state.record;
    if !record.built {
        let named = state.file.image.as_ref().or(state.default_image.as_ref());
        return sandbox_image(cx, ready, named).await;
    }
    if let Some((image, reference)) = images(cx)?.find(&*ready.runtime, &record.image).await? {
        return Ok(NamedImage { image, reference: reference.to_string() });
    }
    let worktrees = crate::sandbox::worktrees(cx)?;
    let seen = worktrees.see_again(&record.source, &record.commit).await?;
    let variables = record.variables(&state.key, local_env(cx));
    let (digests, remote_user) = (&record.features, state.file.user.as_deref());
    let context = ImageContext {
        cx,
        files: BuildFiles::Commit { worktrees: &worktrees, seen: &seen },
        path: &record.path,
        variables: &variables,
        remote_user,
        digests,
    };
    // It was granted before. A list that has become shorter still applies.
    let mut refusals = Vec::new();
    let recipe = recipe(context, &state.file, state.default_image.as_ref(), &mut refusals).await?;
    if !refusals.is_empty() {
        return Err(super::refusal::refused(cx, &refusals));
    }
    let made = build(context, ready, &recipe).await?;
    Ok(NamedImage { reference: made.reference.to_string(), image: made.image })
}

/// Reads everything that an image is built from. What is not granted is added to `refusals`.
pub(super) async fn recipe(
    it: ImageContext<'_>,
    file: &Devcontainer,
    usual: Option<&ImageRef>,
    refusals: &mut Vec<DeniedProperty>,
) -> Result<Recipe, Failure> {
    let policy = it.cx.policy()?;
    let dir = it.dir();
    let (mut excluded, mut warnings) = (Vec::new(), Vec::new());
    let base = match &file.build {
        Some(build) => plan(it, build, refusals, &mut excluded).await?,
        None => Some(BaseSource::Image(file.image.as_ref().or(usual).cloned())),
    };
    let named: Vec<(&str, &ImageRef)> = match &base {
        Some(BaseSource::Built(plan)) => plan.needs.bases.iter().map(|it| ("build.dockerfile", it)).collect(),
        _ => file.image.iter().map(|it| ("image", it)).collect(),
    };
    refusals.extend(named.into_iter().filter_map(|(property, image)| image_problem(property, image, &policy)));
    let allowed = PatternSet::new(&it.cx.config.sandbox.features_allow).unwrap_or_default();
    let mut features = Vec::new();
    let mut places = Vec::new();
    for feature in &file.features {
        match feature.place(dir, |name| allowed.matches(name)) {
            Err(refusal) => refusals.push(refusal),
            Ok(place) => places.push((feature, place)),
        }
    }
    for (feature, place) in places {
        match place {
            FeatureLocation::Repository(below) => features.push(tool(it, feature, below, &mut warnings).await?),
            // A refused image is not built, so its features are not fetched.
            FeatureLocation::Registry(_) if !refusals.is_empty() => {}
            FeatureLocation::Registry(artifact) => {
                features.push(of_registry(it, feature, &artifact, &mut warnings).await?);
            }
        }
    }
    let files: Vec<_> = features.iter().map(|it| (&it.feature, &it.file)).collect();
    let order = in_order(&files)?;
    let mut unordered: Vec<_> = features.into_iter().map(Some).collect();
    let features = order.into_iter().filter_map(|it| unordered[it].take()).collect();
    // With refusals no image is built, so the base does not matter.
    let base = base.unwrap_or(BaseSource::Image(None));
    Ok(Recipe { base, features, excluded, warnings })
}

fn image_problem(property: &str, image: &ImageRef, policy: &Policy) -> Option<DeniedProperty> {
    let allowed = policy.images.matches(image.as_str()) || policy.images.matches(image.completed().as_str());
    let refusal = || {
        DeniedProperty::new(property, "image", format!("image `{image}` is not on the list")).unless("security.images")
    };
    (!allowed).then(refusal)
}

/// Reads the Dockerfile and its build context; none if they are refused.
async fn plan(
    it: ImageContext<'_>,
    build: &Build,
    refusals: &mut Vec<DeniedProperty>,
    excluded: &mut Vec<String>,
) -> Result<Option<BaseSource>, Failure> {
    let dir = it.dir();
    let mut outside = |property: &str| {
        let message = "it lies outside the repository, or is named like a key";
        refusals.push(DeniedProperty::new(property, "devcontainer.context", message));
    };
    let Some(at) = relative(dir, &build.dockerfile).filter(|it| !is_excluded(it)) else {
        outside("build.dockerfile");
        return Ok(None);
    };
    let Some(below) = relative(dir, &build.context).filter(|it| it.is_empty() || !is_excluded(it)) else {
        outside("build.context");
        return Ok(None);
    };
    let text = text(it, &at).await?;
    let needs = match dockerfile(&text, &build.args) {
        Ok(needs) => needs,
        Err(more) => {
            refusals.extend(more);
            return Ok(None);
        }
    };
    let (excluded_files, files) = it.files.list(&below).await?.into_iter().partition(|it| is_excluded(&it.path));
    let excluded_files: Vec<CommitFile> = excluded_files;
    excluded.extend(excluded_files.into_iter().map(|it| it.path).take(100));
    Ok(Some(BaseSource::Built(Box::new(DockerfilePlan { text, needs, build: build.clone(), below, files }))))
}

async fn text(it: ImageContext<'_>, path: &str) -> Result<String, Failure> {
    let bytes = content(it, path).await?;
    String::from_utf8(bytes).map_err(|_| missing(path, "is no text"))
}

pub(super) async fn content(it: ImageContext<'_>, path: &str) -> Result<Vec<u8>, Failure> {
    let files = it.files.list(path).await?;
    let file = files.into_iter().find(|it| it.path == path && it.kind != CommitFileKind::Link);
    let file = file.ok_or_else(|| missing(path, "is no file of the repository"))?;
    it.files.content(&file, MAX_TEXT).await
}

pub(super) fn missing(path: &str, why: &str) -> Failure {
    Failure::new(Code::DevcontainerInvalid, format!("`{}` {why}", path.escape_debug())).detail("path", path)
}

/// Builds the image, or finds one that was built before.
pub(super) async fn build(it: ImageContext<'_>, ready: &Ready, recipe: &Recipe) -> Result<DevcontainerImage, Failure> {
    let base = match &recipe.base {
        BaseSource::Image(named) => {
            let NamedImage { image, reference } = sandbox_image(it.cx, ready, named.as_ref()).await?;
            DevcontainerImage { image, reference: ImageRef::parse(&reference)?, built: false }
        }
        BaseSource::Built(plan) => built(it, ready, plan).await?,
    };
    if recipe.features.is_empty() { Ok(base) } else { with_features(it, ready, base, &recipe.features).await }
}

async fn built(it: ImageContext<'_>, ready: &Ready, plan: &DockerfilePlan) -> Result<DevcontainerImage, Failure> {
    let mut bases = Vec::new();
    let mut arch = String::new();
    for base in &plan.needs.bases {
        let image = sandbox_image(it.cx, ready, Some(base)).await?.image;
        bases.push(json!([base, digest_of(&image)]));
        arch.clone_from(&image.arch);
    }
    let Build { args, target, .. } = &plan.build;
    let parts = json!({ "bases": bases, "arch": arch, "dockerfile": plan.text, "args": args, "target": target,
        "files": files_of(&plan.files, &plan.below) });
    let trees = vec![("context".to_owned(), plan.below.as_str(), plan.files.as_slice())];
    let args = args.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
    let target = target.clone();
    by_key(
        it,
        ready,
        DockerfileRequest { parts, text: plan.text.clone(), args, target, trees, dirs: Vec::new(), more: Vec::new() },
    )
    .await
}

/// Lists files with path below the directory, kind and digest of the content, for the cache key.
pub(super) fn files_of(files: &[CommitFile], below: &str) -> Value {
    files.iter().map(|it| json!([it.path.strip_prefix(below), format!("{:?}", it.kind), it.oid])).collect()
}

/// Writes the build context into a directory of Coracle.
async fn lay_out(it: ImageContext<'_>, dir: &Path, request: &DockerfileRequest<'_>) -> Result<(), Failure> {
    std::fs::write(dir.join("Dockerfile"), &request.text).map_err(Failure::internal)?;
    let spool = tempfile::tempfile_in(dir).map_err(Failure::internal)?;
    let mut tar = Writer::new(spool, Ids::ROOT, MAX_CONTEXT);
    tar.dir("context", 0o755, None).map_err(Failure::internal)?;
    for (into, below, files) in &request.trees {
        it.files.pack(files, PackPaths { below, into }, &mut tar).await?;
    }
    for (into, dir) in &request.dirs {
        let dir = HostPath::open(dir).map_err(Failure::internal)?.dir().map_err(Failure::internal)?;
        tar.host_dir(into, &dir).map_err(Failure::internal)?;
    }
    for (path, text) in &request.more {
        tar.file(path, 0o644, text.as_bytes()).map_err(Failure::internal)?;
    }
    let (tar, _) = tar.finish().map_err(Failure::internal)?;
    let place = HostPath::open(dir).map_err(Failure::internal)?.dir().map_err(Failure::internal)?;
    unpack(tar, &place, "context", MAX_CONTEXT).map(drop).map_err(Failure::internal)
}

/// A build from a Dockerfile.
pub(super) struct DockerfileRequest<'a> {
    /// Everything that determines the result, for the cache key.
    pub(super) parts: Value,
    pub(super) text: String,
    pub(super) args: Vec<(String, String)>,
    pub(super) target: Option<String>,
    /// Files of the repository: the destination, the prefix that is removed from their paths, and the files.
    pub(super) trees: Vec<(String, &'a str, &'a [CommitFile])>,
    /// Directories on this host, with their destinations.
    pub(super) dirs: Vec<(String, &'a Path)>,
    /// Files that Coracle writes.
    pub(super) more: Vec<(String, String)>,
}

/// Returns the image of that content, built at most once.
pub(super) async fn by_key(
    it: ImageContext<'_>,
    ready: &Ready,
    request: DockerfileRequest<'_>,
) -> Result<DevcontainerImage, Failure> {
    let (cx, runtime) = (it.cx, &*ready.runtime);
    let offline = cx.config.sandbox.build_network == BuildNetwork::None || !cx.policy()?.open_network;
    let content = json!({ "parts": request.parts, "offline": offline });
    let progress = cx.call.progress.clone();
    let progress = |text: &str| progress.note(text);
    let missing = match images(cx)?.find_or_lock(runtime, &content, &progress).await? {
        Ok((image, reference)) => return Ok(DevcontainerImage { image, reference, built: true }),
        Err(missing) => missing,
    };
    cx.call.progress.message("building the image of devcontainer.json".to_owned()).await;
    let dir = tempfile::Builder::new()
        .prefix("devcontainer-")
        .tempdir_in(cx.state()?.scratch())
        .map_err(Failure::internal)?;
    lay_out(it, dir.path(), &request).await?;
    let build = ImageBuild {
        context: dir.path().join("context"),
        dockerfile: dir.path().join("Dockerfile"),
        tag: missing.tag.clone(),
        args: request.args,
        target: request.target,
        offline,
        memory: Some(cx.config.sandbox.memory),
        labels: Vec::new(),
        deadline: cx.config.images.build_timeout.0,
    };
    let built = cx.unless_cancelled(async { missing.run(runtime, &build).await.map_err(failed) });
    let (image, reference) = built.await?;
    Ok(DevcontainerImage { image, reference, built: true })
}

fn failed(err: coracle_images::Error) -> Failure {
    match err {
        coracle_images::Error::Engine(coracle_types::Error::Engine { excerpt, .. }) => {
            let message = format!("the image of devcontainer.json could not be built: {excerpt}");
            Failure::new(Code::BaseBuildFailed, message).detail("stage", "devcontainer")
        }
        err => err.into(),
    }
}

fn images(cx: &Context) -> Result<DockerfileImages, Failure> {
    let root = cx.state()?.root();
    Ok(DockerfileImages { dir: root.join("devcontainers"), locks: root.join("locks") })
}
