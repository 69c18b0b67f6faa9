//! Command lines for people to copy.

use coracle_lifecycle::Hint;
use coracle_types::EngineKind;

/// The command that opens a shell in a container, quoted for a POSIX shell: the engine's program, else `coracle`. For
/// an engine on another machine, its program would need settings that the user may not have.
pub(crate) fn connect_command(engine: EngineKind, endpoint: &str, hint: &Hint, by_coracle: &str) -> String {
    if !engine.has_program() || endpoint.starts_with("ssh://") {
        return by_coracle.to_owned();
    }
    let words = std::iter::once(engine.as_str()).chain(hint.words.iter().map(String::as_str));
    // Only a NUL byte cannot be quoted, and no name, path or variable contains one.
    shlex::try_join(words).unwrap_or_default()
}
