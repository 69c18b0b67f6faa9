//! Errors of the crates above the engine, with hints.

use coracle_host::fs::HostPathError;
use coracle_images as images;
use coracle_lifecycle as lifecycle;
use coracle_lifecycle::SaveObstacle;
use coracle_provision as provision;
use coracle_types::InvalidName;

use super::{Code, Failure};
use crate::host::NoHost;

impl From<lifecycle::Error> for Failure {
    fn from(err: lifecycle::Error) -> Self {
        use lifecycle::Error;
        let message = err.to_string();
        match err {
            Error::NotFound { kind, name, near } => Self::not_found(&kind.to_string(), &name, &near),
            Error::NotManaged { kind, name } => Self::new(Code::NotManaged, message)
                .detail("kind", kind.to_string())
                .detail("name", name)
                .hint("Coracle acts only on what it made; `list` shows that"),
            Error::NameTaken { ours, running, .. } => Self::new(Code::NameTaken, message)
                .detail("kind", "container")
                .detail("ours", ours)
                .detail("running", running)
                .hint(if ours { TAKEN_BY_US } else { "leave `name` out to get a fresh one, or choose another" }),
            Error::NetworkTaken { ours, differs, .. } => Self::new(Code::NameTaken, message)
                .detail("kind", "network")
                .detail("ours", ours)
                .detail("differs", differs)
                .hint(if ours { "choose another name; `networks` shows what is there" } else { "choose another name" }),
            Error::InUse { kind, containers, .. } => Self::new(Code::InUse, message)
                .detail("kind", kind.to_string())
                .detail("containers", containers)
                .hint("`destroy` these containers first"),
            Error::Belongs { kind: kind @ lifecycle::ResourceKind::Container, name } => {
                Self::new(Code::NotManaged, message)
                    .detail("kind", kind.to_string())
                    .detail("name", name)
                    .hint("it goes with its session or sandbox; `coracle workspace end` ends that of this session")
            }
            Error::Belongs { .. } => Self::invalid("name", message)
                .hint("it goes by itself: with its stack, or with the last container that needs it"),
            Error::Busy { name } => {
                Self::new(Code::Busy, message).detail("holder", name).hint("try again in a few seconds")
            }
            Error::LimitReached { limit, current, setting } => Self::new(Code::LimitReached, message)
                .detail("limit", limit)
                .detail("current", current)
                .detail("setting", setting)
                .hint_setting("`destroy` one that is not needed", setting),
            Error::Refused(refused) => refused.into(),
            Error::UnknownUser(name) => Self::new(Code::NotManaged, message)
                .detail("kind", "container")
                .detail("name", name)
                .hint("its record is lost, so nothing is run in it; `destroy` it and `create` another"),
            Error::NoSuchPath(path) => coracle_types::Error::NoSuchPath(path).into(),
            Error::PathExists { path, side } => Self::new(Code::PathExists, message)
                .detail("path", path)
                .detail("side", side)
                .hint("choose another path, or leave `overwrite` out to replace it"),
            Error::OtherKind { path, side } => Self::new(Code::PathExists, message)
                .detail("path", path)
                .detail("side", side)
                .hint("choose another path, or remove what is there"),
            Error::HostPath(err) => err.into(),
            Error::Copy(source) => {
                let failure = Self::from(coracle_types::Error::Archive(source));
                let message = format!("{message}: {}", failure.message);
                failure.with_message(message)
            }
            Error::SaveFailed { paths, reason, obstacle } => {
                let hint = match obstacle {
                    SaveObstacle::Size => "remove what is not needed from it, or raise `lifecycle.save_max`; then",
                    SaveObstacle::Time => "remove what is not needed from it; then",
                    SaveObstacle::Disk => "make room in the state directory; then",
                    SaveObstacle::Unreadable => "look at the reason, and copy out what you need; then",
                };
                let hint = format!(
                    "the container is stopped and not removed: {hint} `destroy` it again, or discard its work with \
                     `discard: true`, where that is granted"
                );
                Self::new(Code::SaveFailed, message).detail("paths", paths).detail("reason", reason).hint(hint)
            }
            Error::Store(err) => err.into(),
            Error::NoEngine(failure) => (*failure).into(),
            Error::Runtime(err) => err.into(),
            Error::Several(errors) => several(errors),
            other => Self::internal(other),
        }
    }
}

const TAKEN_BY_US: &str = "use it, `destroy` it, or leave `name` out to get a fresh one";

/// Combines several failures: code and hint are those of the first one.
fn several(errors: Vec<lifecycle::Error>) -> Failure {
    let failures: Vec<Failure> = errors.into_iter().map(Failure::from).collect();
    let messages: Vec<String> = failures.iter().map(|it| it.message.clone()).collect();
    let count = failures.len();
    let Some(first) = failures.into_iter().next() else { return Failure::internal("a failure without a reason") };
    first.with_message(messages.join("; ")).detail("failed", count)
}

impl From<lifecycle::StoreError> for Failure {
    fn from(err: lifecycle::StoreError) -> Self {
        if let lifecycle::StoreError::Newer(file) = &err {
            return Self::newer_version(err.to_string()).detail("file", file);
        }
        if let lifecycle::StoreError::Io { path, source } = &err
            && super::is_full(source)
        {
            return Self::state_dir_full(path, source);
        }
        let message = match &err {
            lifecycle::StoreError::Io { source, .. } => format!("{err}: {source}"),
            _ => err.to_string(),
        };
        let hint = match &err {
            lifecycle::StoreError::Owner(_) => {
                "run without `sudo` or as the owner of the directory, or name another with `state_dir` or `--state-dir`"
            }
            _ => "name a directory that is yours alone with `state_dir` or `--state-dir`",
        };
        Self::config("state_dir", None, message).hint(hint)
    }
}

impl From<HostPathError> for Failure {
    fn from(err: HostPathError) -> Self {
        let (code, path) = match &err {
            HostPathError::NotFound(path) => (Code::PathNotFound, path),
            HostPathError::Special(path) | HostPathError::Name(path) => (Code::InvalidInput, path),
            HostPathError::Io { path, .. } => (Code::PathNotFound, path),
        };
        let (path, message) = (path.to_string_lossy().into_owned(), sentence(&err));
        Self::new(code, message)
            .detail("path", path)
            .detail("side", "host")
            .hint("name a directory or file that exists; coracle makes none on the host")
    }
}

fn sentence(err: &HostPathError) -> String {
    match err {
        HostPathError::Io { source, .. } => format!("{err}: {source}"),
        other => other.to_string(),
    }
}

impl From<images::Error> for Failure {
    fn from(err: images::Error) -> Self {
        use images::Error;
        let message = err.to_string();
        match err {
            Error::NotFound(image) => Self::new(Code::ImageNotFound, message)
                .detail("image", image)
                .detail("stage", "find")
                .hint(format!(
                    "use an image that is already on this machine: `images.pull` or `pull` says that none is fetched; {}",
                    super::from_runtime::LOAD
                )),
            Error::PullFailed { image, excerpt } => coracle_types::Error::PullFailed { image, excerpt }.into(),
            Error::PullTimeout { image, .. } => Self::new(Code::PullTimeout, message)
                .detail("image", image)
                .detail("stage", "pull")
                .hint_setting("try again", "images.pull_timeout"),
            Error::BaseBuildFailed { stage, source } => {
                Self::new(Code::BaseBuildFailed, format!("{message}: {source}"))
                    .detail("stage", stage.as_str())
                    .hint("use an `image` that is already on this machine; `preflight` tells what the engine reaches")
            }
            Error::Changed { image, pinned, found } => Self::new(Code::ImageChanged, message)
                .hint_for(
                    format!("only the user can accept the new image: `coracle images trust {image}`"),
                    format!("if you made it, accept it with `coracle images trust {image}`"),
                )
                .detail("image", image)
                .detail("pinned", pinned)
                .detail("found", found),
            Error::State { source, .. } if super::is_full(&source) => Self::host_disk_full(format!("{message}: {source}")),
            Error::State { source, .. } => Self::config("state_dir", None, format!("{message}: {source}"))
                .hint("name a directory that is yours alone with `state_dir` or `--state-dir`"),
            Error::Engine(err) => err.into(),
            other => Self::internal(other),
        }
    }
}

impl From<provision::Error> for Failure {
    fn from(err: provision::Error) -> Self {
        use provision::Error;
        let message = err.to_string();
        match err {
            Error::UserNotFound(user) => Self::new(Code::UserNotFound, message)
                .detail("user", user)
                .hint("give `user` as numbers such as `1000:1000`, or leave it out"),
            Error::User(_) => Self::new(Code::EngineFailed, message)
                .detail("verb", "user")
                .hint("leave `user` out, or try another image"),
            Error::Workspace(_) => Self::new(Code::EngineFailed, message)
                .detail("verb", "workspace")
                .hint("choose another `workdir`, or say `mount_cwd: false`"),
            Error::Runtime(err) => err.into(),
            other => Self::internal(other),
        }
    }
}

impl From<provision::InvalidUser> for Failure {
    fn from(err: provision::InvalidUser) -> Self {
        Self::invalid("user", err.to_string()).hint("give a name, a uid, or `uid:gid`")
    }
}

impl From<NoHost> for Failure {
    fn from(err: NoHost) -> Self {
        Self::config("", None, err.to_string()).hint("set `HOME`, and start coracle in a directory that exists")
    }
}

impl Failure {
    /// An invalid name that a user gave, for instance as an option.
    #[must_use]
    pub fn name(field: &str, err: InvalidName) -> Self {
        Self::from(err).detail("field", field)
    }
}

#[cfg(test)]
mod tests {
    use coracle_lifecycle::{Error, ResourceKind};
    use coracle_types::{ContainerName, ImageRef};

    use super::Failure;

    fn check(err: impl Into<Failure>, code: &str, message: &str, hint: &str) {
        let failure = err.into();
        assert_eq!((failure.code.word().as_str(), failure.message.as_str()), (code, message));
        assert!(failure.hint.as_deref().unwrap_or_default().contains(hint), "{:?}", failure.hint);
    }

    #[test]
    fn each_error_of_lifecycle_has_a_code_and_a_hint() {
        let name = || ContainerName::parse("web").unwrap();
        let near = vec!["web-1".to_owned()];
        let missing = Error::NotFound { kind: ResourceKind::Container, name: "web".into(), near };
        check(missing, "not_found", "no container `web`", "did you mean `web-1`?");
        let taken = Error::NameTaken { name: name(), ours: false, running: None };
        check(
            taken,
            "name_taken",
            "a container named `web` already exists and is not managed by Coracle",
            "leave `name` out",
        );
        let limit = Error::LimitReached { limit: 2, current: 2, setting: "max_containers" };
        check(limit, "limit_reached", "there are 2 containers, and the limit is 2", "`max_containers`");
        check(Error::UnknownUser(name()), "not_managed", "the exec user of `web` is not known", "`destroy` it");
    }

    #[test]
    fn the_first_of_several_reasons_sets_the_code() {
        let errors = vec![Error::Busy { name: "a".into() }, Error::Busy { name: "b".into() }];
        let failure = Failure::from(Error::Several(errors));
        assert_eq!(failure.details["failed"], 2);
        check(failure, "busy", "`a` is held by another call; `b` is held by another call", "try again");
    }

    #[test]
    fn a_failure_passes_through_lifecycle_unchanged() {
        let failure = Failure::not_found("engine", "x", &[]);
        assert_eq!(Failure::from(Error::NoEngine(Box::new(failure.clone().into_inner()))), failure);
    }

    #[test]
    fn r04_a_changed_image_is_reported_with_the_command_that_trusts_it() {
        let id = |digit: &str| coracle_types::ImageId::parse(format!("sha256:{}", digit.repeat(64))).unwrap();
        let image = ImageRef::parse("bun-runner-base:latest").unwrap();
        let message = format!("`{image}` is another image than before: {} in place of {}", id("b"), id("a"));
        let changed = coracle_images::Error::Changed { image, pinned: id("a"), found: id("b") };
        check(changed, "image_changed", &message, "coracle images trust bun-runner-base:latest");
    }

    #[test]
    fn missing_images_and_users_are_named() {
        let image = ImageRef::parse("nowhere/x").unwrap();
        check(coracle_images::Error::NotFound(image), "image_not_found", "no image `nowhere/x` on this engine", "pull");
        let user = coracle_provision::Error::UserNotFound("kim".into());
        check(user, "user_not_found", "no user `kim` in the image", "1000:1000");
    }
}
