//! Lengths and counts that both ends keep to.

/// Bytes of a header, at most.
pub const MAX_HEADER: usize = 64 << 10;

/// Bytes of a payload, at most.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Channels that are open at once on a connection; more asks wait with the host.
pub const MAX_CHANNELS: usize = 256;

/// Bytes of data under way on a channel, at most.
pub const WINDOW: u64 = 256 << 10;

/// Bytes of data in one frame, as both ends send them.
pub const CHUNK: usize = 64 << 10;

/// Arguments and environment of one command together, at most, each with a NUL.
pub const MAX_COMMAND: usize = 8 << 20;

/// Bytes of a session's variables together, each with a NUL, and of a secret file, at most.
pub const MAX_SESSION: usize = 1 << 20;

/// Bytes of one variable with its name and a NUL, at most: the kernel's own limit.
pub const MAX_VARIABLE: usize = 128 << 10;

/// Bytes of what a walk tells, at most.
pub const MAX_WALKED: usize = 8 << 20;

/// Bytes that a program is given on a descriptor, at most: they wait in a socket until they are read.
pub const MAX_SECRET: usize = 16 << 10;
