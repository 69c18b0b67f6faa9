//! `create`: a container, made ready, with a report of what works.

mod devcontainer;
mod local_repo;
mod main_program;
mod no_guest;
mod provision;
mod render;
mod report;
mod response;
mod reuse;
mod source;
mod stack;
mod steps;
mod strict_spec;
mod try_repo;
mod user_content;

use std::time::Instant;

use coracle_context::context::Context;
use coracle_context::engines::Backend;
use coracle_context::failure::{Failure, root_refused};
use coracle_context::host_identity::{HostIdentity, IdentityRequest};
use coracle_context::humanize::millis;
use coracle_context::{git_programs, strict};
use coracle_lifecycle::{Creation, NewRecord, find_network};
use coracle_prepare::requests::Create;
use coracle_prepare::resolve::{self, CreateFrom, Request};
use coracle_provision::UserRequest;
use coracle_runtime::{CreateSpec, NetworkRequest, PatternSet, Policy, admit};
use coracle_types::{Capability, EngineKind, Ids};
use serde_json::Value;

use self::devcontainer::DevcontainerPlan;
pub use self::render::step_block;
pub(crate) use self::render::{failed_steps, ports, services};
pub use self::response::CreateResponse;
pub(crate) use self::response::{LimitsAnswer, ServiceAnswer};
pub(crate) use self::source::CreateSource;
use self::source::ResolvedSource;
use self::steps::{CreateInput, Creations};
use crate::dispatch::{Effect, Operation};
use crate::maintenance::upkeep;
use crate::schema::result_schema;
use crate::target::{Access, check_session as allowed_to};

impl Operation for Create {
    const NAME: &'static str = "create";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<CreateResponse>;
    type Response = CreateResponse;

    async fn run(mut self, cx: &Context) -> Result<CreateResponse, Failure> {
        let plan = Box::pin(devcontainer::apply(&mut self, cx)).await?;
        Box::pin(create_with(&self, None, plan.as_ref(), cx)).await
    }
}

/// Checks what can be checked without an engine, of a container that is not made from an image.
pub(crate) fn check(args: &Create, cx: &Context) -> Result<(), Failure> {
    if cx.config.is_strict() {
        return Err(strict::no_origin());
    }
    allowed(&resolve::create(args, CreateFrom::Unknown, cx)?, &cx.policy()?)
}

/// The same of one that is made from an image which is not known yet, and is judged by itself.
fn check_without_image(args: &Create, cx: &Context) -> Result<(), Failure> {
    let policy = Policy { images: every_image(), ..cx.policy()? };
    allowed(&resolve::create(args, CreateFrom::Image(None), cx)?, &policy)
}

fn every_image() -> PatternSet {
    PatternSet::new(&["*".to_owned()]).unwrap_or_default()
}

/// Makes a container, from an image or from what takes its place.
pub(super) async fn create(
    args: &Create,
    origin: Option<CreateSource>,
    cx: &Context,
) -> Result<CreateResponse, Failure> {
    Box::pin(create_with(args, origin, None, cx)).await
}

async fn create_with(
    args: &Create,
    origin: Option<CreateSource>,
    devcontainer: Option<&DevcontainerPlan>,
    cx: &Context,
) -> Result<CreateResponse, Failure> {
    let begun = Instant::now();
    if cx.config.is_strict() && origin.is_some() {
        return Err(strict::no_origin());
    }
    // What a repository is for is found out only when all that needs no network is in order.
    let basis = match &origin {
        Some(origin) => CreateFrom::Source(origin.seen(cx)?),
        None => CreateFrom::Image(None),
    };
    let request = resolve::create(args, basis, cx)?;
    let request = match devcontainer {
        Some(plan) => plan.on(request),
        None => request,
    };
    allowed(&request, &policy(devcontainer, cx)?)?;
    if let Some(reused) = Box::pin(reuse::reused(args, request.draft.snapshot.as_ref(), cx)).await? {
        return Ok(reused);
    }
    let ready = coracle_prepare::preflight::ensure_ready(cx).await?;
    if cx.config.is_strict() {
        strict::check(&ready, &request.spec.limits)?;
    }
    if request.spec.gpu && !ready.gpu {
        let (engine, capability) = (ready.runtime.kind(), Capability::Gpu);
        return Err(coracle_types::Error::Unsupported { engine, capability }.into());
    }
    let request = match &request.chosen.tried {
        None => request,
        Some(tried) => {
            let seen = cx.unless_cancelled(try_repo::scan(cx, tried)).await?;
            resolve::create(args, CreateFrom::Image(Some(seen)), cx)?
        }
    };
    let request = match ready.runtime.endpoint().single_user {
        true => as_root_alone(request, ready.runtime.kind())?,
        false => request,
    };
    let store = cx.store()?;
    let backend = Backend { ready: &ready, store: &store };
    may_join(cx, backend, &request).await?;
    let stack = cx.unless_cancelled(Box::pin(stack::prepare(cx, backend, &request))).await?;
    upkeep(cx).await?;
    cx.unless_cancelled(std::future::ready(Ok(()))).await?; // it may have taken a while
    let protected = git_programs::protected(cx, request.spec.mounts.iter().map(|it| it.host.real()));
    // Each starts the user's git.
    let (protected, person) = tokio::join!(protected, HostIdentity::read(cx, identity_for(&request, cx)));
    let draft = NewRecord { protected, ..request.draft.clone() };
    let mut making = match Creation::begin(&*ready.runtime, &store, draft).await {
        Ok(making) => making,
        // Another call may have created it since it was looked for.
        Err(err @ coracle_lifecycle::Error::NameTaken { .. }) => {
            let reused = Box::pin(reuse::reused(args, request.draft.snapshot.as_ref(), cx)).await?;
            return reused.ok_or_else(|| err.into());
        }
        Err(err) => return Err(err.into()),
    };
    let mut build = None;
    let made = match resolve_source(origin, cx).await {
        Ok(source) => {
            let creations = Creations { container: &mut making, build: &mut build };
            let input =
                CreateInput { request: &request, person: &person, stack, source: source.as_ref(), devcontainer };
            let made = steps::run(cx, backend, creations, input);
            cx.unless_cancelled(Box::pin(made)).await
        }
        Err(failure) => Err(failure),
    };
    let left = match build {
        Some(build) => build.undo().await,
        None => Vec::new(),
    };
    match made {
        Ok(mut created) => {
            cx.use_container(making.record());
            created.duration_ms = millis(begun.elapsed());
            Ok(created)
        }
        Err(failure) => {
            cx.call.progress.message("undoing what was made").await;
            let left: Vec<_> = left.into_iter().chain(making.undo().await).collect();
            Err(not_undone(failure, &left))
        }
    }
}

/// What of the user's identity goes in.
fn identity_for<'a>(request: &'a Request, cx: &Context) -> IdentityRequest<'a> {
    let put_in = &request.provisioning;
    IdentityRequest {
        git: &put_in.git,
        gh: &put_in.gh,
        ssh: &put_in.ssh,
        settings: put_in.amplifier && !cx.config.is_strict(),
    }
}

/// A named network was created to be shared, by a session that this one may use.
async fn may_join(cx: &Context, Backend { ready, store }: Backend<'_>, request: &Request) -> Result<(), Failure> {
    let NetworkRequest::Named(name) = &request.spec.network else { return Ok(()) };
    match find_network(&*ready.runtime, store, name).await? {
        Some(network) => allowed_to(cx, network.session.as_deref().unwrap_or_default(), name.as_str(), Access::Use),
        // Missing files are reported where they are read.
        None => Ok(()),
    }
}

/// Outside of what a cancel gives up: a commit that is broken off may leave its container paused.
async fn resolve_source(origin: Option<CreateSource>, cx: &Context) -> Result<Option<ResolvedSource>, Failure> {
    match origin {
        Some(origin) => origin.resolve(cx).await.map(Some),
        None => Ok(None),
    }
}

/// Where there is no user but root, commands run as root, who is the user outside.
fn as_root_alone(request: Request, engine: EngineKind) -> Result<Request, Failure> {
    if request.user_given && request.user != UserRequest::Ids(Ids::ROOT) {
        return Err(coracle_types::Error::Unsupported { engine, capability: Capability::OtherUsers }.into());
    }
    Ok(Request { user: UserRequest::Ids(Ids::ROOT), ..request })
}

/// Checks the policy before anything is created.
fn allowed(request: &Request, policy: &Policy) -> Result<(), Failure> {
    // The user may still be a name; what root needs is checked again once it is known.
    let checked = CreateSpec { exec_user: known_ids(&request.user), ..request.spec.clone() };
    admit(checked, policy)?;
    let put_in = &request.provisioning;
    let as_root = !put_in.setup.is_empty() || put_in.repos.iter().any(|it| it.as_root && it.install.is_some());
    if as_root && !policy.allow_root {
        return Err(root_refused("root.setup", "setup commands as root are not granted"));
    }
    Ok(())
}

/// An image that was built of what is allowed is allowed.
fn policy(devcontainer: Option<&DevcontainerPlan>, cx: &Context) -> Result<Policy, Failure> {
    let policy = cx.policy()?;
    let is_built = devcontainer.is_some_and(DevcontainerPlan::is_built);
    Ok(if is_built { Policy { images: every_image(), ..policy } } else { policy })
}

/// Who that is without looking into the image: enough to decide whether root is requested.
fn known_ids(user: &UserRequest) -> Ids {
    match user {
        UserRequest::Ids(ids) => *ids,
        UserRequest::Uid(uid) => Ids { uid: *uid, gid: *uid },
        UserRequest::Name(_) => Ids { uid: 65534, gid: 65534 },
    }
}

fn not_undone(failure: Failure, left: &[coracle_lifecycle::Error]) -> Failure {
    if left.is_empty() {
        return failure;
    }
    let left: Vec<_> = left.iter().map(ToString::to_string).collect();
    failure.detail("left", left)
}
