//! The image of a file: the one it names, or one that is built of the repository's commit.
//!
//! **Invariant:** a build sees the commit that the host fetched, or the directory that `create` names, and of it nothing that is named like a key.
//! **Invariant:** an image that was built is used again only under the id that this host wrote down.

use std::collections::BTreeMap;
use std::path::Path;

use coracle_archive::transfer::{Limits, Writer, unpack};
use coracle_context::config::BuildNetwork;
use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_devcontainer::dockerfile::{Dockerfile, dockerfile};
use coracle_devcontainer::features::{FeatureLocation, in_order};
use coracle_devcontainer::file::{Build, Devcontainer, Variables, is_kept_out, relative};
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

/// Of a Dockerfile, and of what a feature says of itself.
const MAX_TEXT: usize = 1 << 20;

/// Of what a build sees.
pub(super) const MAX_CONTEXT: Limits = Limits { max_bytes: 1 << 30, max_entries: 100_000 };

/// How an image comes to be, with all that can be refused behind it.
#[derive(Debug)]
pub struct Recipe {
    base: BaseSource,
    features: Vec<FeatureInstall>,
    /// Files that the build does not get to see.
    pub kept_out: Vec<String>,
    pub warnings: Vec<SandboxWarning>,
}

#[derive(Debug)]
enum BaseSource {
    /// As it is: the file's, or that of the profile.
    Image(Option<ImageRef>),
    Built(Box<DockerfilePlan>),
}

#[derive(Debug)]
struct DockerfilePlan {
    text: String,
    needs: Dockerfile,
    build: Build,
    /// The directory of the repository that it sees.
    below: String,
    files: Vec<CommitFile>,
}

impl Recipe {
    /// Features of registries, and which they are.
    pub(super) fn digests(&self) -> BTreeMap<String, String> {
        let all = self.features.iter().filter_map(|it| match &it.files {
            FeatureSource::Registry(fetched) => Some((it.feature.name.clone(), fetched.digest.clone())),
            FeatureSource::Repository(..) => None,
        });
        all.collect()
    }
}

/// Who looks at what.
#[derive(Clone, Copy, Debug)]
pub(super) struct ImageContext<'a> {
    pub(super) cx: &'a Context,
    pub(super) files: BuildFiles<'a>,
    /// The file's path.
    pub(super) path: &'a str,
    pub(super) variables: &'a Variables,
    /// Who runs commands, as the file says.
    pub(super) remote_user: Option<&'a str>,
    /// Features of registries that were fetched before, which are the same ones now.
    pub(super) digests: &'a BTreeMap<String, String>,
}

impl ImageContext<'_> {
    /// The directory of the file.
    fn dir(&self) -> &str {
        self.path.rsplit_once('/').map_or("", |it| it.0)
    }
}

/// An image that is there.
#[derive(Debug)]
pub struct DevcontainerImage {
    pub image: Image,
    pub reference: ImageRef,
    pub built: bool,
}

/// The image of a sandbox that is there already, made again if it is gone.
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
    // It was granted before; a list that has become shorter counts all the same.
    let mut refusals = Vec::new();
    let recipe = recipe(context, &state.file, state.default_image.as_ref(), &mut refusals).await?;
    if !refusals.is_empty() {
        return Err(super::refusal::refused(cx, &refusals));
    }
    let made = build(context, ready, &recipe).await?;
    Ok(NamedImage { reference: made.reference.to_string(), image: made.image })
}

/// Reads all that an image is made of. What is not granted is added to `refusals`.
pub(super) async fn recipe(
    it: ImageContext<'_>,
    file: &Devcontainer,
    usual: Option<&ImageRef>,
    refusals: &mut Vec<DeniedProperty>,
) -> Result<Recipe, Failure> {
    let policy = it.cx.policy()?;
    let dir = it.dir();
    let (mut kept_out, mut warnings) = (Vec::new(), Vec::new());
    let base = match &file.build {
        Some(build) => plan(it, build, refusals, &mut kept_out).await?,
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
    // With refusals nothing is made, so it does not matter of what.
    let base = base.unwrap_or(BaseSource::Image(None));
    Ok(Recipe { base, features, kept_out, warnings })
}

fn image_problem(property: &str, image: &ImageRef, policy: &Policy) -> Option<DeniedProperty> {
    let allowed = policy.images.matches(image.as_str()) || policy.images.matches(image.completed().as_str());
    let refusal = || {
        DeniedProperty::new(property, "image", format!("image `{image}` is not on the list")).unless("security.images")
    };
    (!allowed).then(refusal)
}

/// What a Dockerfile sees and needs; nothing when it is refused.
async fn plan(
    it: ImageContext<'_>,
    build: &Build,
    refusals: &mut Vec<DeniedProperty>,
    kept_out: &mut Vec<String>,
) -> Result<Option<BaseSource>, Failure> {
    let dir = it.dir();
    let mut outside = |property: &str| {
        let message = "it lies outside the repository, or is named like a key";
        refusals.push(DeniedProperty::new(property, "devcontainer.context", message));
    };
    let Some(at) = relative(dir, &build.dockerfile).filter(|it| !is_kept_out(it)) else {
        outside("build.dockerfile");
        return Ok(None);
    };
    let Some(below) = relative(dir, &build.context).filter(|it| it.is_empty() || !is_kept_out(it)) else {
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
    let (out, files) = it.files.list(&below).await?.into_iter().partition(|it| is_kept_out(&it.path));
    let out: Vec<CommitFile> = out;
    kept_out.extend(out.into_iter().map(|it| it.path).take(100));
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

/// Makes it, or finds it made before.
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

/// Path below the directory, what it is, and the sum over its content.
pub(super) fn files_of(files: &[CommitFile], below: &str) -> Value {
    files.iter().map(|it| json!([it.path.strip_prefix(below), format!("{:?}", it.kind), it.oid])).collect()
}

/// Writes what a build sees into a directory of ours.
async fn lay_out(it: ImageContext<'_>, dir: &Path, asked: &DockerfileRequest<'_>) -> Result<(), Failure> {
    std::fs::write(dir.join("Dockerfile"), &asked.text).map_err(Failure::internal)?;
    let spool = tempfile::tempfile_in(dir).map_err(Failure::internal)?;
    let mut tar = Writer::new(spool, Ids::ROOT, MAX_CONTEXT);
    tar.dir("context", 0o755, None).map_err(Failure::internal)?;
    for (into, below, files) in &asked.trees {
        it.files.pack(files, PackPaths { below, into }, &mut tar).await?;
    }
    for (into, dir) in &asked.dirs {
        let dir = HostPath::open(dir).map_err(Failure::internal)?.dir().map_err(Failure::internal)?;
        tar.host_dir(into, &dir).map_err(Failure::internal)?;
    }
    for (path, text) in &asked.more {
        tar.file(path, 0o644, text.as_bytes()).map_err(Failure::internal)?;
    }
    let (tar, _) = tar.finish().map_err(Failure::internal)?;
    let place = HostPath::open(dir).map_err(Failure::internal)?.dir().map_err(Failure::internal)?;
    unpack(tar, &place, "context", MAX_CONTEXT).map(drop).map_err(Failure::internal)
}

/// A build.
pub(super) struct DockerfileRequest<'a> {
    /// All that decides what comes of it.
    pub(super) parts: Value,
    /// The Dockerfile.
    pub(super) text: String,
    pub(super) args: Vec<(String, String)>,
    pub(super) target: Option<String>,
    /// Files of the repository: where they go, and what of their paths is left out.
    pub(super) trees: Vec<(String, &'a str, &'a [CommitFile])>,
    /// Directories of this host: where they go.
    pub(super) dirs: Vec<(String, &'a Path)>,
    /// Files of ours.
    pub(super) more: Vec<(String, String)>,
}

/// The image of that content, built once.
pub(super) async fn by_key(
    it: ImageContext<'_>,
    ready: &Ready,
    asked: DockerfileRequest<'_>,
) -> Result<DevcontainerImage, Failure> {
    let (cx, runtime) = (it.cx, &*ready.runtime);
    let offline = cx.config.sandbox.build_network == BuildNetwork::None || !cx.policy()?.open_network;
    let content = json!({ "parts": asked.parts, "offline": offline });
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
    lay_out(it, dir.path(), &asked).await?;
    let build = ImageBuild {
        context: dir.path().join("context"),
        dockerfile: dir.path().join("Dockerfile"),
        tag: missing.tag.clone(),
        args: asked.args,
        target: asked.target,
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
