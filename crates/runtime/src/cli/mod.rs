//! Docker and Podman by their own programs.
