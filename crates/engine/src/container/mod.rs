//! Containers: their records, what each is made of, its start and its end.

mod config;

pub(crate) use config::ContainerConfig;
