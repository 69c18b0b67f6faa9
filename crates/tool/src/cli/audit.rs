//! `coracle audit verify`: whether the trail of what was done is whole.

use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::{Map, Value, json};

use crate::audit::{Broken, Verified, verify};
use crate::context::Options;
use crate::failure::{Code, Failure};
use crate::host::Host;
use crate::render;

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let Some((_, matches)) = matches.subcommand() else { return ExitCode::from(super::NOT_UNDERSTOOD) };
    let json = matches.get_flag("json");
    match checked(host, options).await {
        Ok(answer) if json => super::finish(&answer),
        Ok(answer) => {
            render::print(&render::audit(&Value::Object(answer)));
            ExitCode::SUCCESS
        }
        Err(failure) if json => super::finish(&failure.answer(Some("audit verify"))),
        Err(failure) => super::told(&failure),
    }
}

async fn checked(host: Host, options: &Options) -> Result<Map<String, Value>, Failure> {
    let cx = super::open(host, options)?;
    let dir = cx.state()?.audit();
    let looked = tokio::task::spawn_blocking({
        let dir = dir.clone();
        move || verify(&dir)
    });
    let looked = looked
        .await
        .map_err(Failure::internal)?
        .map_err(|err| Failure::config("state_dir", None, format!("the audit trail cannot be read: {err}")))?;
    match looked {
        Ok(Verified { files, lines, torn, first, last }) => {
            let answer = json!({ "success": true, "dir": dir, "files": files, "lines": lines, "torn": torn,
                "first": first, "last": last });
            let Value::Object(answer) = answer else { return Err(Failure::internal("an answer is no object")) };
            Ok(answer)
        }
        Err(Broken { file, line, reason }) => {
            let message = format!("the audit trail is broken at line {line} of `{}`: {reason}", file.display());
            Err(Failure::new(Code::AuditBroken, message)
                .detail("file", file)
                .detail("line", line)
                .detail("reason", reason)
                .hint("somebody wrote to the files, or the disk lost something; what stands before that line is whole"))
        }
    }
}
