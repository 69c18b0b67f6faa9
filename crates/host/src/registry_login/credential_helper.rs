//! Runs credential helpers: `docker-credential-*`.

use std::time::Duration;

use coracle_types::{Input, Secret};
use serde::Deserialize;
use zeroize::Zeroizing;

use super::name::RegistryPath;
use super::{CredentialKind, LoginError, LoginOptions, deserialize_secret};
use crate::find_program::find_program_in;
use crate::process::{Invocation, Stdin, run};

/// Timeout of a helper, which may ask the user to unlock a key ring.
const WITHIN: Duration = Duration::from_secs(60);

/// Maximum size of its answer.
const MAX_ANSWER: usize = 64 << 10;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct HelperResponse {
    username: String,
    #[serde(deserialize_with = "deserialize_secret")]
    secret: Option<Secret>,
}

/// Gets the credentials of a registry from a helper. `None` if it has none.
///
/// # Errors
/// [`LoginError`]: it is missing, fails, or has an unexpected answer.
pub(super) async fn get(
    helper: &str,
    name: RegistryPath<'_>,
    options: &LoginOptions,
) -> Result<Option<CredentialKind>, LoginError> {
    let program = format!("docker-credential-{helper}");
    let failed = |why: String| LoginError { origin: format!("`{}`", program.escape_debug()), why };
    if !helper.chars().all(|c| c.is_ascii_alphanumeric() || "._-".contains(c)) {
        return Err(failed("this is no name of a helper".into()));
    }
    let path = find_program_in(&program, &options.program_dirs).map_err(|err| failed(err.to_string()))?;
    let mut invocation = Invocation::new(path, ["get"]);
    invocation.env.clone_from(&options.program_env);
    let input = Stdin::Input(Input::Bytes(name.helper_key().as_bytes().to_vec()));
    let output = run("credentials", &invocation, input, (WITHIN, MAX_ANSWER)).await;
    let output = output.map_err(|err| failed(err.to_string()))?;
    let answer = Zeroizing::new(output.stdout.text());
    if !output.ok() {
        // The message of every helper that uses Docker's library.
        if answer.trim() == "credentials not found in native keychain" {
            return Ok(None);
        }
        // Its output may contain a secret, so it is not repeated.
        return Err(failed(format!("it exited {}", output.exit)));
    }
    let answer: HelperResponse =
        serde_json::from_str(&answer).map_err(|_| failed("its answer is not what it should be".into()))?;
    Ok(answer.secret.map(|secret| CredentialKind::of_user(&answer.username, secret)))
}
