//! `coracle images trust`: a person means the image that has a name now. No agent can say so.

use std::process::ExitCode;

use clap::ArgMatches;
use coracle::{Failure, Host, Options, audit, image_build};
use serde_json::{Map, Value};

use super::{exit, startup};
use crate::render;

pub(super) async fn run(matches: &ArgMatches, host: Host, options: &Options) -> ExitCode {
    let json = matches.get_flag("json");
    match trust(matches, host, options).await {
        Ok(answer) if json => exit::finish(&answer),
        Ok(answer) => {
            render::print(&render::trusted(&Value::Object(answer)));
            ExitCode::SUCCESS
        }
        Err(failure) if json => exit::finish(&failure.answer(Some("images trust"))),
        Err(failure) => exit::failed(&failure),
    }
}

async fn trust(matches: &ArgMatches, host: Host, options: &Options) -> Result<Map<String, Value>, Failure> {
    let name = matches.get_one::<String>("name").cloned().unwrap_or_default();
    let cx = startup::open_configured(host, options)?.context;
    let intent =
        audit::intent(&cx, "images_trust", &Map::from_iter([("image".to_owned(), name.clone().into())])).await?;
    let result = image_build::trust(&cx, &name).await;
    intent.result(&result).await;
    result
}
