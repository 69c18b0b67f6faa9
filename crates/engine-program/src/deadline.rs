//! Deadlines of engine calls.

use std::time::Duration;

/// Long, because an engine that commits or imports on a slow disk holds its lock during that time: Podman's `info` was
/// seen to take more than 10 s on two busy cores.
pub const READ: Duration = Duration::from_secs(30);
pub const SIZE: Duration = Duration::from_secs(5);
pub const MAKE: Duration = Duration::from_secs(60);
pub const REMOVE: Duration = Duration::from_secs(30);
pub const NETWORK: Duration = Duration::from_secs(15);
pub const COPY: Duration = Duration::from_secs(600);
/// A whole image, compressed or not, through the engine.
pub const ARCHIVE: Duration = Duration::from_secs(1800);
/// All that a container wrote, on a slow disk or with a storage driver that copies each layer whole.
pub const COMMIT: Duration = ARCHIVE;
pub const IMPORT: Duration = Duration::from_secs(600);
