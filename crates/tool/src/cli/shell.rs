//! `coracle shell`: a person's terminal in a container.

use std::convert::Infallible;

use clap::ArgMatches;
use coracle_lifecycle::{find, hint};
use coracle_runtime::Handle;
use serde_json::{Map, Value};

use crate::audit;
use crate::context::Options;
use crate::failure::{Code, Failure};
use crate::host::Host;

/// Becomes the engine's program.
pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> Result<Infallible, Failure> {
    if !host.stdin_is_terminal {
        return Err(Failure::new(Code::InvalidInput, "`shell` needs a terminal").hint("use `coracle exec` in a script"));
    }
    let cx = super::open_configured(host, options)?;
    let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
    let handle = Handle::parse(&name).map_err(|err| Failure::name("container", err))?;
    let found = find(&cx, &cx.store()?, &handle).await?;
    let as_root = matches.get_flag("as-root");
    if as_root && !cx.config.security.allow_root {
        return Err(Failure::new(Code::PolicyDenied, "commands as root are not granted")
            .detail("rule", "root.exec")
            .detail("setting", "security.allow_root")
            .hint("leave `--as-root` out, or change `security.allow_root` in the configuration"));
    }
    let hint = hint(&found, as_root)?;
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
