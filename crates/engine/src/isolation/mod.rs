//! The isolation of a container as tables. Nothing here calls the system.
//!
//! | file | content |
//! |---|---|
//! | `seccomp` | the system call filter |
//! | `capabilities` | the presets of capabilities as bits |
//! | `paths` | masked and read-only paths, devices and links |
//! | `kernel` | mounts of kernel file systems, limits of processes, kernel settings of the container's network |
//!
//! Nothing here is weaker than Docker's default (`moby/moby`, `daemon/pkg/oci/defaults.go`, July 2026).
//!
//! Landlock is not used. It restricts paths that a process can reach, and a container reaches none outside its mount
//! namespace. New mounts and `ptrace` of outside processes are already prevented by the filter, the PID namespace and
//! the user namespace. Landlock's rules would slow down every opening of a file.

pub(crate) mod capabilities;
pub(crate) mod kernel;
pub(crate) mod paths;
pub(crate) mod seccomp;
