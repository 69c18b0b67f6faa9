//! From an image to a ready record. Whatever fails here is undone by the caller.

use coracle_client::Link;
use coracle_context::context::Context;
use coracle_context::engines::{Backend, Ready};
use coracle_context::failure::{Code, Failure};
use coracle_context::host_identity::HostIdentity;
use coracle_context::{container_guest, container_proxy, session_env, workspace_mounts};
use coracle_lifecycle::{CopiedContainer, Creation, ManagedContainer, Review, guided_session};
use coracle_prepare::image_build::{self, ResolvedImage};
use coracle_prepare::resolve::{self, GitOutside, MainRequest, Request};
use coracle_provision::{Status, StepReport, UserRequest, UserSetupReport, Workspace, prepare};
use coracle_runtime::{Access, Container, CreateSpec, ExecTarget, admit};
use coracle_types::Ids;
use coracle_workspace::GuestFs;

use super::devcontainer::DevcontainerPlan;
use super::no_guest::NoGuest;
use super::provision::ProvisionRun;
use super::report::ReportBuilder;
use super::response::{CreateOutcome, CreateResponse};
use super::source::{ForkParent, ResolvedSource};
use super::stack::{self, Stack, StackUp};
use super::{main_program, policy, strict_spec};
use crate::protected_paths;

/// What is undone if the call fails.
pub(super) struct Creations<'c, 'a> {
    pub(super) container: &'c mut Creation<'a>,
    /// The container that its image is built in.
    pub(super) build: &'c mut Option<Creation<'a>>,
}

/// What the container is made from.
pub(super) struct CreateInput<'a> {
    pub(super) request: &'a Request,
    pub(super) person: &'a HostIdentity,
    pub(super) stack: Stack,
    pub(super) source: Option<&'a ResolvedSource>,
    pub(super) devcontainer: Option<&'a DevcontainerPlan>,
}

/// Makes the container and fills it.
pub(super) async fn run<'a>(
    cx: &Context,
    Backend { ready, store }: Backend<'a>,
    Creations { container: making, build }: Creations<'_, 'a>,
    CreateInput { request, person, stack, source, devcontainer }: CreateInput<'_>,
) -> Result<CreateResponse, Failure> {
    let imaged = match source {
        Some(source) => Ok(source.resolve_image(cx, request)),
        None => image_build::ensure(cx, Backend { ready, store }, build, request).await,
    };
    let imaged = if cx.config.is_strict() { Box::pin(strict_spec::image(cx, ready, imaged?)).await? } else { imaged? };
    main_program::allowed(cx, request.main.as_ref(), &imaged.image)?;
    let mut reporting = ReportBuilder::new(cx.call.progress.clone());
    reporting.add(image_step(&imaged, request)).await;
    let stacked = stack::bring_up(cx, Backend { ready, store }, making, stack).await?;
    reporting.add(stacked.step.clone()).await;
    let (container, inside) = {
        let parent = source.and_then(|it| it.parent.as_ref());
        start(cx, making, StartSpec { ready, request, image: &imaged, stack: &stacked, parent, devcontainer }).await?
    };
    let bound = request.bound;
    let binds = request.spec.mounts.iter().map(|it| it.at.clone()).collect();
    let workspace = Workspace { path: request.draft.workdir.clone(), bound, binds };
    let user = guided_session(making.record(), false)?.user;
    let UserSetupReport { name, home, shell, user, workspace } = prepare(&inside, user, &workspace).await?;
    if let (true, ExecTarget::Guest(link)) = (cx.config.is_strict(), &inside) {
        Box::pin(strict_spec::prepare_user(link, &home)).await?;
    }
    making.set_user(name, home, shell);
    reporting.add(user).await;
    let of_git = request.git_outside.iter().map(GitOutside::report_item);
    let items = protected_paths::report_item(making.record()).into_iter().chain(of_git).collect();
    let workspace = StepReport { items, ..workspace };
    reporting
        .add(match (&request.unmounted, &inside) {
            (None, ExecTarget::Guest(link)) if request.copied => copied(cx, link, making).await?,
            (None, ExecTarget::Plain(..)) if request.copied => {
                StepReport::flawed("workspace", Status::Failed, "nothing was copied in", "this container has no guest")
            }
            (None, _) => workspace,
            (Some(why), _) => StepReport::skipped("workspace", format!("the working directory is not mounted: {why}")),
        })
        .await;
    let filled = match &inside {
        ExecTarget::Guest(link) => {
            let place = session_env::place(cx, making.record(), link)?;
            let found = found(ready, making, &container);
            let reporting = &mut reporting;
            let certificate = match making.record().proxied {
                true => {
                    Box::pin(container_proxy::ensure(cx, making.record(), link)).await?;
                    reporting.add(container_proxy::report(cx, making.record())).await;
                    Some(container_proxy::certificate(cx, making.record())?)
                }
                false => None,
            };
            let filling = ProvisionRun {
                cx,
                request,
                imaged: &imaged,
                person,
                devcontainer,
                place,
                found,
                certificate,
                reporting,
            };
            Box::pin(filling.fill(making)).await?
        }
        ExecTarget::Plain(..) => {
            let (found, inside) = (found(ready, making, &container), &inside);
            NoGuest { cx, request, devcontainer, found, inside, reporting: &mut reporting }.fill(making).await?
        }
    };
    let swept = match &inside {
        ExecTarget::Guest(link) => Box::pin(making.clear_set_id_bits(link)).await,
        ExecTarget::Plain(..) => Review::default(),
    };
    let report = reporting.end();
    let report_json = serde_json::to_value(&report).map_err(Failure::internal)?;
    let found = found(ready, making, &container);
    let outcome = CreateOutcome {
        cx,
        expires_at: coracle_context::removal::expiry(cx, &found.record),
        found,
        request,
        devcontainer,
        imaged,
        stacked,
        report,
        filled,
        swept,
        ready,
        forked: source.and_then(|it| it.forked.clone()),
    };
    let created = outcome.answer()?;
    making.ready(report_json, created.for_record()?)?;
    Ok(created)
}

/// The files of the working directory, at the work directory.
async fn copied(cx: &Context, link: &Link, making: &Creation<'_>) -> Result<StepReport, Failure> {
    cx.call.progress.message("copying the working directory in").await;
    let (user, workdir) = (guided_session(making.record(), false)?.user, &making.record().workdir);
    let mount = workspace_mounts::working_dir(cx)?;
    Ok(match coracle_workspace::import(&GuestFs::new(link.clone(), user, workdir.clone()), vec![mount]).await {
        Ok(baseline) => {
            let detail = format!("{} files of the working directory were copied to {workdir}", baseline.files.len());
            StepReport::success("workspace", detail, "each was written whole, and its SHA-256 taken")
        }
        Err(failure) => {
            let failure = Failure::from(failure);
            StepReport::flawed("workspace", Status::Failed, "nothing was copied in", failure.into_inner().message)
        }
    })
}

/// Of what is tried the step says what it was taken for, too.
fn image_step(imaged: &ResolvedImage, request: &Request) -> StepReport {
    let mut step = imaged.step.clone();
    if let Some(seen) = &request.chosen.seen {
        let found = match (&seen.unseen, seen.detected.marker) {
            (Some(why), _) => format!("the repository was not looked at ({why})"),
            (None, Some(marker)) => format!("`{marker}` was found"),
            (None, None) => "no file that tells was found".to_owned(),
        };
        step.detail = format!("{}; {found}, so it is taken for `{}`", step.detail, seen.detected.purpose);
    }
    step
}

fn found(ready: &Ready, making: &Creation<'_>, container: &Container) -> ManagedContainer {
    ManagedContainer {
        runtime: ready.runtime.clone(),
        record: making.record().clone(),
        container: Some(container.clone()),
    }
}

/// What is started.
#[derive(Clone, Copy)]
pub(super) struct StartSpec<'a> {
    pub(super) ready: &'a Ready,
    pub(super) request: &'a Request,
    pub(super) image: &'a ResolvedImage,
    pub(super) stack: &'a StackUp,
    /// The container that it is a copy of.
    pub(super) parent: Option<&'a ForkParent>,
    pub(super) devcontainer: Option<&'a DevcontainerPlan>,
}

/// Creates and starts the container, and waits for its guest.
async fn start(
    cx: &Context,
    making: &mut Creation<'_>,
    from: StartSpec<'_>,
) -> Result<(Container, ExecTarget), Failure> {
    let StartSpec { ready, request, image, stack, parent, devcontainer } = from;
    let runtime = &*ready.runtime;
    let guest = container_guest::program(cx, runtime, &image.image)?;
    if guest.is_none() && cx.config.is_strict() {
        return Err(Failure::new(
            Code::Unsupported,
            "under `strict` a container needs the guest, and this one gets none",
        )
        .detail("capability", "guest")
        .detail("setting", "policy")
        .hint("leave `guest` out of the configuration, and use an image for an architecture of this release"));
    }
    if guest.is_none() && request.draft.proxied {
        let message = "this container has no guest, which leads to the proxy";
        return Err(Failure::new(Code::Unsupported, message).detail("capability", "guest").hint("say `network: none`"));
    }
    if guest.is_none() {
        resolve::no_secret(&request.env, "leave it out: this container has no guest, so it would be seen on the host")?;
    }
    let exec_user = exec_user(cx, making, from).await?;
    cx.call.progress.message(format!("making {}", request.draft.name)).await;
    let network = stack.network.clone().unwrap_or_else(|| request.spec.network.clone());
    let reference = image.reference.clone();
    let image_health = request.main == Some(MainRequest::Image)
        && may_check(cx.config.security.allow_root, runtime.endpoint().rootless, &request.spec);
    let spec = match cx.config.is_strict() {
        true => Box::pin(strict_spec::spec(cx, making, from)).await?,
        false => request.spec.clone(),
    };
    let spec = CreateSpec { exec_user, image: reference, network, image_health, ..spec };
    let admitted = admit(spec, &policy(devcontainer, cx)?)?;
    let container = {
        // The one that is copied is not removed meanwhile.
        let _alone = match parent {
            Some(ForkParent { name, id, checkpoint }) => {
                making.copy_files_of(CopiedContainer { id: id.clone(), checkpoint: *checkpoint });
                Some(cx.store()?.lock(name).await?)
            }
            None => None,
        };
        making.create_container(admitted, &image.image, image.reference.as_str(), guest.as_ref()).await?
    };
    let inside = match &guest {
        Some(_) => ExecTarget::Guest(making.wait_for_guest(cx.links(), &container).await?),
        None => ExecTarget::Plain(ready.runtime.clone(), container.id.clone()),
    };
    Ok((container, inside))
}

/// The engine runs the check of an image as PID 1's user, which is root, and past the guest: so root has to be granted, and
/// nothing would keep the check of a hostile image from leaving a set-id file of root's in a host directory.
fn may_check(allow_root: bool, rootless: bool, spec: &CreateSpec) -> bool {
    allow_root && (rootless || spec.mounts.iter().all(|it| it.access == Access::ReadOnly))
}

/// Numbers are taken as they are; a name or a bare uid is looked up in the passwd file of the image, or of
/// the container that it is a copy of.
async fn exec_user(
    cx: &Context,
    making: &mut Creation<'_>,
    StartSpec { ready, request, image, parent, .. }: StartSpec<'_>,
) -> Result<Ids, Failure> {
    if let UserRequest::Ids(ids) = request.user {
        return Ok(ids);
    }
    if let Some(ForkParent { id, .. }) = parent {
        return Ok(coracle_provision::accounts(&*ready.runtime, id).await?.resolve(&request.user)?);
    }
    Ok(image_build::accounts(cx, ready, making, &image.image).await?.resolve(&request.user)?)
}

#[cfg(test)]
mod tests {
    use coracle_host::fs::HostPath;
    use coracle_runtime::Mount;
    use coracle_types::{ContainerName, ContainerPath, ImageRef};

    use super::*;

    #[test]
    fn the_check_of_an_image_runs_only_where_root_is_granted_and_leaves_nothing_on_the_host() {
        let dir = tempfile::tempdir().unwrap();
        let bound = |access| {
            let name = ContainerName::parse("web").unwrap();
            let mount =
                Mount { host: HostPath::open(dir.path()).unwrap(), at: ContainerPath::parse("/w").unwrap(), access };
            CreateSpec { mounts: vec![mount], ..CreateSpec::new(name, ImageRef::parse("redis").unwrap()) }
        };
        for (allow_root, rootless, access, may) in [
            (true, false, Access::ReadOnly, true),
            (true, true, Access::ReadWrite, true),
            (true, false, Access::ReadWrite, false),
            (false, false, Access::ReadOnly, false),
            (false, true, Access::ReadOnly, false),
        ] {
            assert_eq!(may_check(allow_root, rootless, &bound(access)), may, "{allow_root} {rootless} {access:?}");
        }
    }
}
