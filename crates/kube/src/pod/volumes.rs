//! The volumes of a Pod.

use coracle_protocol::paths;
use coracle_runtime::{Access, Placed};
use coracle_types::ByteSize;
use k8s_openapi::api::core::v1::{EmptyDirVolumeSource, PersistentVolumeClaimVolumeSource, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::names::object_name;

/// Volume of the guest, and of files that are too large for its memory.
const GUEST_DIR: &str = "coracle";

/// Volume of its sockets and secret files.
const GUEST_RUN: &str = "coracle-run";

/// Size of the latter.
const RUN_SIZE: ByteSize = ByteSize::mib(16);

pub(super) fn volumes(placed: &Placed) -> Vec<Volume> {
    let spec = placed.spec();
    let guest = placed.guest().map(|_| [on_disk(GUEST_DIR), in_memory(GUEST_RUN, RUN_SIZE)]);
    let memory = spec.tmpfs.iter().enumerate().map(|(at, it)| in_memory(&tmpfs_name(at), it.size));
    let claims = spec.volumes.iter().enumerate().map(|(at, it)| Volume {
        name: volume_name(at),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource {
            claim_name: object_name(it.name.as_str()),
            read_only: Some(it.access == Access::ReadOnly),
        }),
        ..Volume::default()
    });
    guest.into_iter().flatten().chain(memory).chain(claims).collect()
}

/// Mounts of the init container.
pub(super) fn guest_mounts() -> Vec<VolumeMount> {
    vec![mount(GUEST_DIR, paths::DIR, Access::ReadWrite), mount(GUEST_RUN, paths::RUN, Access::ReadWrite)]
}

/// Mounts of the container.
pub(super) fn main_mounts(placed: &Placed) -> Vec<VolumeMount> {
    let spec = placed.spec();
    let guest = placed.guest().map(|_| guest_mounts());
    let at = |name: String, at: &str, access| mount(&name, at, access);
    let memory = spec.tmpfs.iter().enumerate();
    let memory = memory.map(|(number, it)| at(tmpfs_name(number), it.at.as_str(), Access::ReadWrite));
    let claims = spec.volumes.iter().enumerate();
    let claims = claims.map(|(number, it)| at(volume_name(number), it.at.as_str(), it.access));
    guest.into_iter().flatten().chain(memory).chain(claims).collect()
}

fn mount(name: &str, at: &str, access: Access) -> VolumeMount {
    VolumeMount {
        name: name.to_owned(),
        mount_path: at.to_owned(),
        read_only: (access == Access::ReadOnly).then_some(true),
        ..VolumeMount::default()
    }
}

fn tmpfs_name(number: usize) -> String {
    format!("tmpfs-{number}")
}

fn volume_name(number: usize) -> String {
    format!("volume-{number}")
}

fn on_disk(name: &str) -> Volume {
    Volume { name: name.to_owned(), empty_dir: Some(EmptyDirVolumeSource::default()), ..Volume::default() }
}

fn in_memory(name: &str, size: ByteSize) -> Volume {
    let source = EmptyDirVolumeSource { medium: Some("Memory".into()), size_limit: Some(Quantity(size.0.to_string())) };
    Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() }
}
