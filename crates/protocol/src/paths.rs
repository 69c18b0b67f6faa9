//! Where things of ours lie inside a container. The host mounts them, and the guest finds them.

/// All of it. No file call reaches below.
pub const DIR: &str = "/.coracle";

/// The guest's program.
pub const PROGRAM: &str = "/.coracle/guest";

/// The same program as the init of a container without a guest.
pub const INIT: &str = "/.coracle/init";

/// The worker's program, in a sandbox.
pub const WORKER: &str = "/.coracle/worker";

/// A directory of the host's, for the host alone: the guest listens there.
pub const LINK: &str = "/.coracle/link";

/// A tmpfs: the sockets by which programs inside reach the guest, and secret files.
pub const RUN: &str = "/.coracle/run";

/// Name of the socket that takes calls, in [`LINK`] and in [`RUN`].
pub const SOCKET: &str = "sock";

/// Name of the socket that tells a shell its environment, in [`RUN`].
pub const SHELL_SOCKET: &str = "shell";
