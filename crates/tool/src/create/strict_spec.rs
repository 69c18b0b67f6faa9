//! A container under `policy = "strict"`: an image whose work directory is the user's, a volume there, and
//! a home in memory.

use coracle_client::Link;
use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::{Code, Failure};
use coracle_context::requested::Requested;
use coracle_context::strict::{self, TMP, USER, WORKSPACE};
use coracle_context::warning::Warning;
use coracle_images::BuildFailure;
use coracle_lifecycle::Creation;
use coracle_prepare::image_build::{NamedImage, Packages, ResolvedImage, accounts, owned};
use coracle_protocol::EnsureUser;
use coracle_runtime::{CreateSpec, Tmpfs};
use coracle_types::{ByteSize, ContainerPath};

use super::steps::StartSpec;

/// Room in the home.
const HOME_SIZE: ByteSize = ByteSize::mib(1024);

/// Over which no directory in memory may lie: programs of the image are there.
const OF_IMAGE: &[&str] = &["/bin", "/etc", "/lib", "/lib64", "/sbin", "/usr", TMP, WORKSPACE];

/// The requested image, with a work directory that is the user's. What was to be installed is in it: no process inside
/// can install anything later.
pub(super) async fn image(cx: &Context, ready: &Ready, imaged: ResolvedImage) -> Result<ResolvedImage, Failure> {
    if let Packages::Missing(BuildFailure { why, log }) = &imaged.packages {
        return Err(Failure::new(Code::BaseImageBuildFailed, format!("the image could not be made: {why}"))
            .detail("log", log)
            .detail("setting", "security.network")
            .hint_setting(
                "under `strict` packages come with the image alone: name an image that has them",
                "security.network",
            ));
    }
    let requested = NamedImage { image: imaged.image.clone(), reference: imaged.reference.to_string() };
    let image = owned(cx, ready, &requested, &[WORKSPACE]).await?.image;
    let mut step = imaged.step;
    step.detail = format!("{}; {WORKSPACE} is {USER}'s in an image that was derived from it", step.detail);
    let unmapped = strict::unmapped(cx, (ready.runtime.kind(), ready.runtime.endpoint().rootless));
    cx.warn(unmapped.map(|(code, message)| Warning::new(code, message)));
    let certs = Requested::No("there is no network that would need them".into());
    Ok(ResolvedImage { image, step, certs, ..imaged })
}

/// What was decided, with the volume for its files and the home that its image gives the user.
pub(super) async fn spec(cx: &Context, making: &mut Creation<'_>, from: StartSpec<'_>) -> Result<CreateSpec, Failure> {
    let home = home(cx, making, from).await?;
    let volume = making.make_volume(ContainerPath::parse(WORKSPACE)?).await?;
    let mut spec = from.request.spec.clone();
    spec.tmpfs.push(Tmpfs { at: home, size: HOME_SIZE, mode: 0o700 });
    spec.volumes.push(volume);
    Ok(spec)
}

/// Makes sure of a home that the user can write to: not every engine knows whose a directory in memory is.
pub(super) async fn prepare_user(link: &Link, home: &ContainerPath) -> Result<(), Failure> {
    let ensure = EnsureUser { uid: USER.uid, gid: USER.gid, workdir: home.to_string(), bound: Vec::new() };
    if link.ensure_user(ensure).await?.writable {
        return Ok(());
    }
    Err(coracle_provision::Error::Workspace(format!("the exec user cannot use {home}")).into())
}

/// The image itself says where that is.
async fn home(
    cx: &Context,
    making: &mut Creation<'_>,
    StartSpec { ready, image, .. }: StartSpec<'_>,
) -> Result<ContainerPath, Failure> {
    let known = accounts(cx, ready, making, &image.image).await?;
    let home = known.home(USER.uid).unwrap_or("/");
    fit(home).ok_or_else(|| {
        let what =
            format!("the image gives the user {USER} the home `{}`, which cannot be in memory", home.escape_debug());
        Failure::new(Code::Unsupported, what)
            .detail("capability", "image_home")
            .detail("setting", "policy")
            .hint("name an image that gives that user a home of its own, or that does not know it")
    })
}

/// A home that a directory in memory may lie over.
fn fit(home: &str) -> Option<ContainerPath> {
    let home = ContainerPath::parse(home).ok()?;
    let meets =
        |it: &&str| home.is_beneath(it) || ContainerPath::parse(it).is_ok_and(|it| it.is_beneath(home.as_str()));
    (!OF_IMAGE.iter().any(meets)).then_some(home)
}

#[cfg(test)]
mod tests {
    use super::fit;

    #[test]
    fn a_home_lies_over_nothing_that_the_container_needs() {
        for (home, fits) in [
            ("/home/agent", true),
            ("/home/ubuntu", true),
            ("/root", true),
            ("/srv/app", true),
            ("/", false),
            ("/tmp", false),
            ("/workspace", false),
            ("/workspace/home", false),
            ("/usr/lib/x", false),
            ("nowhere", false),
        ] {
            assert_eq!(fit(home).is_some(), fits, "{home}");
        }
    }
}
