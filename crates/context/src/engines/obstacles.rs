//! Why the embedded engine cannot work on this host, as phrases.

use coracle_engine::preflight::{DataDirectory, Obstacle, Overlay, Readiness, UserNamespaces};

/// Describes an obstacle as a phrase.
pub(super) fn obstacle(obstacle: Obstacle, found: &Readiness) -> String {
    match obstacle {
        Obstacle::NoMounts => "this root may not mount file systems".to_owned(),
        Obstacle::UserNamespaces => namespaces_detail(found.user_namespaces).to_owned(),
        Obstacle::Overlay if found.overlay == Overlay::TooOld => OLD_OVERLAY.to_owned(),
        Obstacle::Overlay => NO_OVERLAY.to_owned(),
        Obstacle::DataDirectory => no_upper(&found.data),
    }
}

pub const OLD_OVERLAY: &str = "overlays of this engine need Linux 6.8 or later";

pub const NO_OVERLAY: &str = "the kernel has no overlay file system";

pub fn no_upper(data: &DataDirectory) -> String {
    format!("`{}` is on {}, which cannot hold files of containers", data.dir.display(), data.file_system)
}

pub fn namespaces_detail(found: UserNamespaces) -> &'static str {
    match found {
        UserNamespaces::Allowed => "user namespaces are allowed",
        UserNamespaces::Missing => "the kernel has no user namespaces",
        UserNamespaces::ForbiddenByLimit => "`user.max_user_namespaces` allows no user namespaces",
        UserNamespaces::ForbiddenBySysctl => "`kernel.unprivileged_userns_clone` allows user namespaces to root alone",
        UserNamespaces::ForbiddenByAppArmor => {
            "`kernel.apparmor_restrict_unprivileged_userns` takes the rights in user namespaces from all but root"
        }
    }
}
