//! Compose's labels, by which containers, networks and volumes of a project are found.

use coracle_runtime::LabelFilter;
use coracle_types::ProjectName;

pub(super) const PROJECT: &str = "com.docker.compose.project";
pub(super) const SERVICE: &str = "com.docker.compose.service";
pub(super) const NUMBER: &str = "com.docker.compose.container-number";
pub(super) const ONE_OFF: &str = "com.docker.compose.oneoff";
pub(super) const FINGERPRINT: &str = "com.docker.compose.config-hash";
pub(super) const NETWORK: &str = "com.docker.compose.network";
pub(super) const VOLUME: &str = "com.docker.compose.volume";

pub(super) fn of_project(project: &ProjectName) -> LabelFilter {
    LabelFilter(vec![(PROJECT.to_owned(), Some(project.to_string()))])
}
