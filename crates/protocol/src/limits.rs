//! Limits that both ends obey.

/// Longest header in bytes.
pub const MAX_HEADER: usize = 64 << 10;

/// Longest payload in bytes.
pub const MAX_PAYLOAD: usize = 1 << 20;

/// Channels open at once on a connection; further calls wait in the host.
pub const MAX_CHANNELS: usize = 256;

/// Unacknowledged bytes of data on a channel, at most.
pub const WINDOW: u64 = 256 << 10;

/// Bytes of data in one frame, as both ends send them.
pub const CHUNK: usize = 64 << 10;

/// Arguments and environment of one command together, each counted with a NUL.
pub const MAX_COMMAND: usize = 8 << 20;

/// Bytes of all session variables together, each counted with a NUL, and of a secret file.
pub const MAX_SESSION: usize = 1 << 20;

/// Bytes of one variable with its name and a NUL: the kernel's limit.
pub const MAX_VARIABLE: usize = 128 << 10;

/// Longest reply of a scan in bytes.
pub const MAX_SCAN_REPLY: usize = 8 << 20;

/// Bytes that a program can get on a descriptor: they are buffered in a socket until they are read.
pub const MAX_SECRET: usize = 16 << 10;
