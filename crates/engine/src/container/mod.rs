//! Containers: their records, what each is made of, its start and its end.

pub(crate) mod config;

pub(crate) use config::ContainerConfig;
