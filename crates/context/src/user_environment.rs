//! The environment of the user's own programs.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use crate::context::Context;

/// Returns the environment of the user's own credential helper and ssh.
pub fn user_environment(cx: &Context) -> BTreeMap<String, OsString> {
    let variables = cx.host.env.iter();
    variables.map(|(name, value)| (name.clone(), OsString::from_vec(value.reveal().to_vec()))).collect()
}
