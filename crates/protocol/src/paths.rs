//! Paths of Coracle's files in a container. The host mounts them, and the guest uses them.

/// The directory of all of them. File calls cannot access it.
pub const DIR: &str = "/.coracle";

/// The guest's program.
pub const PROGRAM: &str = "/.coracle/guest";

/// The same program as the init of a container without a guest.
pub const INIT: &str = "/.coracle/init";

/// The worker's program, in a sandbox.
pub const WORKER: &str = "/.coracle/worker";

/// A directory shared with the host: the guest listens there.
pub const LINK: &str = "/.coracle/link";

/// A tmpfs: the sockets on which programs inside reach the guest, and secret files.
pub const RUN: &str = "/.coracle/run";

/// Name of the socket for calls, in [`LINK`] and in [`RUN`].
pub const SOCKET: &str = "sock";

/// Name of the socket that sends a shell its environment, in [`RUN`].
pub const SHELL_SOCKET: &str = "shell";
