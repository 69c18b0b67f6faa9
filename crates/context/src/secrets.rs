//! Secrets of the configuration, for containers with a proxy: a placeholder inside, the value only in this process.

use std::sync::Arc;

use coracle_proxy::Authority;
use coracle_proxy::policy::SecretRule;

use crate::config::SecretSource;
use crate::configured_key::ConfiguredKey;
use crate::context::Context;
use crate::failure::Failure;

/// Returns the rules by which the proxy of that authority fills them in.
pub fn rules(cx: &Context, authority: &Authority) -> Result<Vec<SecretRule>, Failure> {
    let rule = |(name, source): (&String, &SecretSource)| {
        let key = Arc::new(ConfiguredKey::of_secret(cx, name, source)?);
        // The validation of the configuration refuses invalid ones.
        let places = source.places(name).map_err(Failure::internal)?;
        Ok(SecretRule::new(name, &authority.placeholder(name), &source.hosts(name), places, key)?)
    };
    cx.config.secrets.iter().map(rule).collect()
}

/// Returns the variables with the placeholders.
pub fn placeholders(cx: &Context, authority: &Authority) -> Vec<(String, String)> {
    cx.config.secrets.keys().map(|name| (name.clone(), authority.placeholder(name))).collect()
}
