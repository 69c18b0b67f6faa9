//! `coracle images trust`: a person means the image that has a name now. No agent can say so.

use std::process::ExitCode;

use clap::ArgMatches;
use serde_json::{Map, Value};

use crate::context::Options;
use crate::failure::Failure;
use crate::host::Host;
use crate::{audit, image_build, render};

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    match trust(matches, host, options).await {
        Ok(answer) if json => super::finish(&answer),
        Ok(answer) => {
            render::print(&render::trusted(&Value::Object(answer)));
            ExitCode::SUCCESS
        }
        Err(failure) if json => super::finish(&failure.answer(Some("images trust"))),
        Err(failure) => super::told(&failure),
    }
}

async fn trust(matches: &ArgMatches, host: Host, options: &Options) -> Result<Map<String, Value>, Failure> {
    let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
    let cx = super::open_configured(host, options)?.context;
    let intent =
        audit::intent(&cx, "images_trust", &Map::from_iter([("image".to_owned(), name.clone().into())])).await?;
    let result = image_build::trust(&cx, &name).await;
    intent.result(&result).await;
    result
}
