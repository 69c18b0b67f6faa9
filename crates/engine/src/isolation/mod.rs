//! What a container is cut off from, as tables: nothing here touches the system.
//!
//! | file | content |
//! |---|---|
//! | `seccomp` | the system call filter |
//! | `capabilities` | the presets as bits |
//! | `paths` | masked and read-only paths, devices and links |
//! | `kernel` | mounts of kernel file systems, limits of processes, kernel settings of the container's network |
//!
//! The yardstick is Docker's default (`moby/moby`, `daemon/pkg/oci/defaults.go`, July 2026): nothing here is weaker.
//!
//! Landlock is not used: it restricts paths that a process can name, and a container can name none outside its mount
//! namespace. What it would add (no new mounts, no `ptrace` out of the domain) is refused already by the filter, the PID
//! namespace and the user namespace, and its rules would cost each process that opens a file.

pub(crate) mod capabilities;
pub(crate) mod kernel;
pub(crate) mod paths;
pub(crate) mod seccomp;
