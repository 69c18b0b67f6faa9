//! Named volumes: a directory each, with a record.

mod prepare;

pub(crate) use prepare::{ImageDirectory, prepare};
