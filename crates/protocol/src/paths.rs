//! Where things of ours lie inside a container. The host mounts them, and the guest finds them.

/// All of it. No file call reaches below.
pub const DIR: &str = "/.coracle";

/// The guest's program.
pub const PROGRAM: &str = "/.coracle/guest";

/// The worker's program, in a sandbox.
pub const WORKER: &str = "/.coracle/worker";

/// A directory of the host's, for the host alone: the guest listens there.
pub const LINK: &str = "/.coracle/link";

/// A tmpfs: the sockets by which programs inside reach the guest, and secret files.
pub const RUN: &str = "/.coracle/run";
