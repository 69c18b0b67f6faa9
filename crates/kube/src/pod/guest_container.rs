//! The init container that receives the guest before the container's own program starts.

use coracle_runtime::CreateSpec;
use k8s_openapi::api::core::v1::Container;

use super::security::guest_security;
use super::spec::PodRequest;
use super::volumes::guest_mounts;
use crate::names::GUEST;

/// Sent instead of a file name after the last file.
pub(crate) const DELIVERY_END: &str = ".";

/// Reads files from its input, each after a line with its size and name, and prints the name when the file is complete.
/// The sender waits for that, since `head` may read more than it prints. Nothing starts without the last line.
const TAKE: &str = r#"chmod 755 /.coracle 2>/dev/null; chmod "$1" /.coracle/run 2>/dev/null
while read -r size name && [ "$name" != . ]; do
  head -c "$size" >"/.coracle/$name" && chmod 755 "/.coracle/$name" && echo "$name" || exit 1
done
[ "$name" = . ]"#;

/// Copies the guest from an image that contains it.
const COPY: &str = r#"chmod 755 /.coracle; chmod "$1" /.coracle/run
cp /coracle-guest /.coracle/guest && chmod 755 /.coracle/guest"#;

/// `None` for a container without a guest.
pub(super) fn guest_container(request: PodRequest<'_>) -> Option<Container> {
    request.placed.guest()?;
    let (image, script, reads) = match &request.settings.guest_image {
        Some(image) => (image.to_string(), COPY, false),
        None => (request.image.to_owned(), TAKE, true),
    };
    let words = ["/bin/sh", "-c", script, "coracle", run_mode(request.placed.spec())];
    Some(Container {
        name: GUEST.into(),
        image: Some(image),
        image_pull_policy: Some("IfNotPresent".into()),
        command: Some(words.map(str::to_owned).into()),
        working_dir: Some("/".into()),
        stdin: Some(reads),
        stdin_once: Some(reads),
        security_context: Some(guest_security(request.placed.spec())),
        volume_mounts: Some(guest_mounts()),
        ..Container::default()
    })
}

/// Only the guest's own user may access its secrets below this directory.
fn run_mode(spec: &CreateSpec) -> &'static str {
    if spec.is_rootless_inside() { "700" } else { "755" }
}
