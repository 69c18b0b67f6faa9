//! What an image may have that was made of a container: what its base has, and nothing of that container.

use std::collections::BTreeSet;

use coracle_runtime::Image;

use crate::Error;

/// Labels that say something of the container that was kept, and of whoever asked for it.
pub(crate) const OF_ONE_CONTAINER: [&str; 9] =
    ["role", "name", "purpose", "persistent", "session", "exec_user", "workdir", "guest", "compose_project"];

/// What an engine gives each container by itself. A base that was committed once may have them, too; they say nothing.
const OF_THE_ENGINE: [&str; 4] = ["HOME", "HOSTNAME", "TERM", "container"];

/// What Podman gives each container whose image names none.
const USUAL_PATH: &str = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// It begins as its base does, with the same environment and volumes.
pub(crate) fn check_image(image: &Image, base: &Image) -> Result<(), Error> {
    check_env(&image.env, base)?;
    if image.config != base.config {
        return unfit("it does not start as its base does");
    }
    if image.volumes != base.volumes { unfit("it has volumes that its base has not") } else { Ok(()) }
}

/// The environment is that of the base.
pub(crate) fn check_env(env: &[String], base: &Image) -> Result<(), Error> {
    let has_path = base.env.iter().any(|it| it.starts_with("PATH="));
    let of_engine = |it: &str| {
        let name = it.split('=').next().unwrap_or_default();
        OF_THE_ENGINE.contains(&name) || !has_path && it == USUAL_PATH
    };
    let listed = |env: &[String]| -> BTreeSet<String> { env.iter().filter(|it| !of_engine(it)).cloned().collect() };
    let (here, there) = (listed(env), listed(&base.env));
    // Names alone: a value may be what must not be told.
    let differs = here.symmetric_difference(&there).next().and_then(|it| it.split_once('=')).map(|it| it.0);
    match differs {
        Some(name) => unfit(format!("its environment differs from its base's in `{name}`")),
        None => Ok(()),
    }
}

pub(crate) fn unfit<T>(what: impl Into<String>) -> Result<T, Error> {
    Err(Error::Unfit { what: what.into() })
}
