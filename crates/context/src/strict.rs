//! Containers under `policy = "strict"`: one user without privileges, including PID 1, on an image whose directories
//! already belong to that user. Root changed their owner while the image was built, never later.

use std::fs::{DirBuilder, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

use coracle_host::fs::HostPath;
use coracle_lifecycle::{Record, Store};
use coracle_runtime::{Access, Image, Limits, Mount, Policy, PolicyRefusal, Problem};
use coracle_types::{ContainerName, ContainerPath, EngineKind, Ids, ImageRef};

use crate::context::Context;
use crate::engines::Ready;
use crate::failure::{Code, Failure};
use crate::guest;

/// The user of all processes inside.
pub const USER: Ids = Ids { uid: 1000, gid: 1000 };

/// Mount path of the volume in a container that a caller creates.
pub const WORKSPACE: &str = "/workspace";

/// A tmpfs in each of them, besides the home.
pub const TMP: &str = "/tmp";

/// Where snippets find their code.
const CODE: &str = "/code";

/// The warning about Podman as root, which maps the user only with subordinate ids that most hosts do not reserve.
pub fn unmapped(cx: &Context, (engine, rootless): (EngineKind, bool)) -> Option<(&'static str, String)> {
    (cx.config.is_strict() && engine == EngineKind::Podman && !rootless).then(|| {
        let message = format!("The user {USER} inside is the same user on this host: Podman as root maps no user ids.");
        ("strict_unmapped", message)
    })
}

/// Refuses a snapshot as origin: root wrote its files, so it has no directories of the user, and no volume.
pub fn no_origin() -> Failure {
    Failure::new(
        Code::Unsupported,
        "under `policy = \"strict\"` no container is made from a snapshot or another container",
    )
    .detail("capability", "snapshot")
    .detail("rule", "root.files")
    .detail("setting", "policy")
    .hint("`create` one and copy into it what it shall have; `copy_out` takes files out of a container")
}

/// Refuses a snapshot: the files are in a volume and in memory, which it would not contain.
pub fn no_snapshot(record: &Record) -> Failure {
    let what = format!("the files of `{}` are in a volume, which a snapshot does not have", record.name);
    Failure::new(Code::Unsupported, what)
        .detail("capability", "snapshot")
        .detail("rule", "root.files")
        .detail("setting", "policy")
        .hint("`copy_out` takes files out of it; `destroy` saves its work")
}

/// Checks that the engine enforces what `strict` promises.
pub fn check(ready: &Ready, limits: &Limits) -> Result<(), Failure> {
    let unsupported = |what: String, capability: &str| {
        Failure::new(Code::Unsupported, what)
            .detail("capability", capability)
            .detail("setting", "policy")
            .hint("use another engine: `preflight` shows which ones support `strict`")
    };
    let requested =
        [("memory", limits.memory.is_some()), ("cpus", limits.cpus.is_some()), ("pids", limits.pids.is_some())];
    let ignored = |name: &str| ready.ignored_limits.iter().any(|it| it == name);
    if let Some((name, _)) = requested.into_iter().find(|(name, is_requested)| *is_requested && ignored(name)) {
        let what = format!("this engine accepts the limit of {name} but does not enforce it, which `strict` needs");
        return Err(unsupported(what, &format!("limits_{name}")).detail("limit", name));
    }
    if let Some(unenforced) = limits.unenforced_by(ready.runtime.kind()).into_iter().next() {
        let what = format!("{}, and `strict` needs every limit to be enforced", unenforced.message);
        let capability = unenforced.capability.map_or_else(|| "limits".to_owned(), |it| it.to_string());
        return Err(unsupported(what, &capability));
    }
    if !guest::shares_files(&*ready.runtime) {
        let what = "under `strict` the guest is a file of this host, which this engine does not see".to_owned();
        return Err(unsupported(what, "shared_files"));
    }
    if ready.runtime.kind() == EngineKind::Container {
        let what = "Apple's engine has no containers of `strict`'s shape".to_owned();
        return Err(unsupported(what, "seccomp"));
    }
    Ok(())
}

/// Checks that Coracle built the image for snippets, since another image may contain anything.
pub fn check_made_here(store: &Store, engine: EngineKind, name: &ImageRef, image: &Image) -> Result<(), Failure> {
    let signer = store.signer();
    let made = image.labels.get(&signer.key("kind")).is_some_and(|it| it == "cache");
    if made && signer.verify(engine, &image.labels) {
        return Ok(());
    }
    let problem = Problem {
        rule: "image.run_code",
        setting: Some("run_code.image"),
        value: name.to_string(),
        message: format!("`{name}` was not made here, and `strict` runs snippets in no other image"),
    };
    Err(PolicyRefusal { problems: vec![problem] }.into())
}

/// The host directory into which the host writes snippets of a session. Inside, any process could change its files,
/// since all processes have the same user.
pub fn code_dir(cx: &Context, session: &ContainerName) -> Result<PathBuf, Failure> {
    Ok(cx.state()?.root().join("sessions").join(session.as_str()).join("code"))
}

/// Creates that directory and returns its mount.
pub fn code(cx: &Context) -> Result<Mount, Failure> {
    let dir = code_dir(cx, &cx.call.session)?;
    readable(&dir).map_err(|err| Failure::internal(format!("{}: {err}", dir.display())))?;
    let host = HostPath::open(&dir).map_err(coracle_lifecycle::Error::from)?;
    Ok(Mount { host, at: ContainerPath::parse(CODE)?, access: Access::ReadOnly })
}

/// Makes it readable inside. Its parent is accessible only to the user.
fn readable(dir: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).recursive(true).create(dir)?;
    std::fs::set_permissions(dir, Permissions::from_mode(0o755))
}

/// Allows only that directory of the host.
pub fn admit_code(policy: &mut Policy, code: &Mount) {
    let dir = code.host.real().to_owned();
    policy.binds = true;
    policy.allow_roots = vec![dir.clone()];
    policy.scratch = dir;
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use coracle_runtime::{FakeRuntime, Limits};
    use coracle_types::{ByteSize, EngineKind};

    use super::{check, unmapped};
    use crate::Context;
    use crate::config::{Config, Preset};
    use crate::engines::Ready;
    use crate::failure::Code;

    #[test]
    fn a_warning_is_given_for_engines_without_a_mapped_user() {
        let dir = tempfile::tempdir().unwrap();
        let usual = Context::for_tests(dir.path());
        let config = Arc::new(Config { policy: Preset::Strict, ..(*usual.config).clone() });
        let mut strict = usual.clone();
        strict.config = config;
        assert_eq!(unmapped(&strict, (EngineKind::Podman, false)).unwrap().0, "strict_unmapped");
        for (cx, engine, rootless) in [
            (&strict, EngineKind::Podman, true),
            (&strict, EngineKind::Docker, false),
            (&usual, EngineKind::Podman, false),
        ] {
            assert!(unmapped(cx, (engine, rootless)).is_none(), "{engine} {rootless}");
        }
    }

    #[test]
    fn r22_a_limit_that_is_not_enforced_is_refused() {
        let ready = |ignored: &[&str]| Ready {
            runtime: Arc::new(FakeRuntime::new()),
            ignored_limits: ignored.iter().map(|it| (*it).to_owned()).collect(),
            gpu: false,
        };
        let limits = Limits { memory: Some(ByteSize::mib(64)), cpus: None, pids: Some(64) };
        assert!(check(&ready(&[]), &limits).is_ok());
        assert!(check(&ready(&["swap", "cpus"]), &limits).is_ok(), "these were not requested");
        let failure = check(&ready(&["pids"]), &limits).unwrap_err();
        assert_eq!((failure.code, &failure.details["limit"]), (Code::Unsupported, &"pids".into()));
        assert_eq!(failure.details["setting"], "policy");
    }
}
