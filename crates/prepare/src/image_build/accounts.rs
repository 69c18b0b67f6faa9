//! The user accounts in an image.

use coracle_context::context::Context;
use coracle_context::engines::Ready;
use coracle_context::failure::Failure;
use coracle_lifecycle::Creation;
use coracle_provision::Accounts;
use coracle_runtime::{Capabilities, CreateSpec, Image, PatternSet, Policy, admit};
use coracle_types::{ContainerName, random_hex};

use crate::resolve;

/// Reads the accounts from a container that is created from the image and never started, then removes the container.
pub async fn accounts(
    cx: &Context,
    ready: &Ready,
    creation: &mut Creation<'_>,
    image: &Image,
) -> Result<Accounts, Failure> {
    let name = ContainerName::parse(format!("{}-peek-{}", cx.config.label_namespace, random_hex::<3>()))?;
    let bare = resolve::bare(name, image.id.clone().into());
    let bare = CreateSpec { read_only: true, capabilities: Capabilities::None, ..bare };
    // The policy already checked the name of the image, or that of its base.
    let policy = Policy { images: PatternSet::new(&["*".to_owned()]).unwrap_or_default(), ..cx.policy()? };
    let container = creation.create_for_inspection(admit(bare, &policy)?, image).await?;
    let accounts = coracle_provision::accounts(&*ready.runtime, &container).await;
    ready.runtime.remove(&container).await?;
    Ok(accounts?)
}
