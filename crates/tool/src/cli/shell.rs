//! `coracle shell`: a person's terminal in a container.

use std::convert::Infallible;

use clap::ArgMatches;
use coracle_lifecycle::{Found, Hint, find, hint};
use coracle_runtime::Handle;
use serde_json::{Map, Value};

use crate::audit;
use crate::context::{Context, Options};
use crate::failure::{Code, Failure};
use crate::host::Host;
use crate::reach::{Act, shaped};

/// Becomes the engine's program.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<Infallible, Failure> {
    if !host.stdin_is_terminal {
        return Err(Failure::new(Code::InvalidInput, "`shell` needs a terminal").hint("use `coracle exec` in a script"));
    }
    let cx = super::open_configured(host, options)?;
    let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
    let handle = Handle::parse(&name).map_err(|err| Failure::name("container", err))?;
    let as_root = matches.get_flag("as-root");
    let (found, hint) = entered(&cx, &handle, as_root).await?;
    let engine = cx.terminal_of(found.record.engine, &found.record.endpoint)?;
    let args = Map::from_iter([("container".to_owned(), name.into()), ("as_root".to_owned(), as_root.into())]);
    let intent = audit::intent(&cx, "shell", &args).await?;
    let mut words = engine.invocation(hint.words);
    // Without it the shell could not draw.
    words.env.insert("TERM".into(), cx.host.terminal_kind.clone().into());
    let failure = Failure::from(coracle_runtime::Error::Spawn {
        program: words.program.display().to_string(),
        source: words.replace_this_process(),
    });
    let result: Result<Map<String, Value>, Failure> = Err(failure.clone());
    intent.result(&result).await;
    Err(failure)
}

/// The container, and how a person gets in. Of every session: it is the person who asks.
async fn entered(cx: &Context, handle: &Handle, as_root: bool) -> Result<(Found, Hint), Failure> {
    let found = find(cx, &cx.store()?, handle).await?;
    shaped(cx, &found.record, Act::Use)?;
    if as_root && !cx.config.security.allow_root {
        return Err(Failure::new(Code::PolicyDenied, "commands as root are not granted")
            .detail("rule", "root.exec")
            .detail("setting", "security.allow_root")
            .hint_setting("leave `--as-root` out", "security.allow_root"));
    }
    let hint = hint(&found, as_root)?;
    Ok((found, hint))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use serde_json::json;

    use super::*;
    use crate::config::{Config, Preset};
    use crate::{Input, answer, ops};

    #[tokio::test]
    async fn no_shell_is_opened_under_strict_where_standard_made_root() {
        let dir = tempfile::tempdir().unwrap();
        let usual = Context::for_tests(dir.path());
        let create = json!({
            "operation": "create", "name": "usual", "image": coracle_runtime::fake::LOCAL_IMAGE, "mount_cwd": false,
        });
        let made = answer(ops::ALL, &usual, Input::Text(create.to_string().into())).await;
        assert_eq!(made["success"], true, "{made:#?}");
        let handle = Handle::parse("usual").unwrap();
        let (found, hint) = entered(&usual, &handle, false).await.unwrap();
        assert!(found.record.name.as_str() == "usual" && !hint.words.is_empty());
        let mut strict = usual.clone();
        strict.config = Arc::new(Config { policy: Preset::Strict, ..(*usual.config).clone() });
        for as_root in [false, true] {
            let refused = entered(&strict, &handle, as_root).await.unwrap_err();
            assert_eq!(refused.details["rule"], "root.init", "{refused:?}");
        }
    }
}
