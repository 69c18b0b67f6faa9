//! Command lines for people to copy.

use coracle_lifecycle::Hint;
use coracle_types::EngineKind;

/// What opens a shell in a container, each word quoted for a POSIX shell: by the engine's program, else by ours. The program
/// reaches an engine on another machine only with settings that the user may not have for it.
pub(crate) fn connect_command(engine: EngineKind, endpoint: &str, hint: &Hint, by_coracle: &str) -> String {
    if !engine.has_program() || endpoint.starts_with("ssh://") {
        return by_coracle.to_owned();
    }
    let words = std::iter::once(engine.as_str()).chain(hint.words.iter().map(String::as_str));
    // A NUL byte is the only thing that cannot be quoted, and no name, path or variable of ours holds one.
    shlex::try_join(words).unwrap_or_default()
}
