//! The embedded files of the page.

/// A file with its media type.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asset {
    pub(crate) media_type: &'static str,
    pub(crate) content: &'static str,
}

const HTML: &str = "text/html; charset=utf-8";
const SCRIPT: &str = "text/javascript; charset=utf-8";
const STYLE: &str = "text/css; charset=utf-8";
const SVG: &str = "image/svg+xml";
const TEXT: &str = "text/plain; charset=utf-8";

macro_rules! assets {
    ($($path:literal $media_type:ident $file:literal,)*) => {
        &[$(($path, Asset { media_type: $media_type, content: include_str!(concat!("../page/", $file)) }),)*]
    };
}

/// All of them, by their paths.
static ALL: &[(&str, Asset)] = assets![
    "" HTML "index.html",
    "static/app.js" SCRIPT "app.js",
    "static/approvals.js" SCRIPT "approvals.js",
    "static/api.js" SCRIPT "api.js",
    "static/changes.js" SCRIPT "changes.js",
    "static/checkpoints.js" SCRIPT "checkpoints.js",
    "static/controls.js" SCRIPT "controls.js",
    "static/create.js" SCRIPT "create.js",
    "static/diff.js" SCRIPT "diff.js",
    "static/dom.js" SCRIPT "dom.js",
    "static/files.js" SCRIPT "files.js",
    "static/jobs.js" SCRIPT "jobs.js",
    "static/keys.js" SCRIPT "keys.js",
    "static/machine.js" SCRIPT "machine.js",
    "static/machines.js" SCRIPT "machines.js",
    "static/messages.js" SCRIPT "messages.js",
    "static/overview.js" SCRIPT "overview.js",
    "static/plot.js" SCRIPT "plot.js",
    "static/report.js" SCRIPT "report.js",
    "static/sessions.js" SCRIPT "sessions.js",
    "static/start.js" SCRIPT "start.js",
    "static/steps.js" SCRIPT "steps.js",
    "static/table.js" SCRIPT "table.js",
    "static/terminal.js" SCRIPT "terminal.js",
    "static/text.js" SCRIPT "text.js",
    "static/timeline.js" SCRIPT "timeline.js",
    "static/transcript.js" SCRIPT "transcript.js",
    "static/workflow.js" SCRIPT "workflow.js",
    "static/workflows.js" SCRIPT "workflows.js",
    "static/style.css" STYLE "style.css",
    "static/icon.svg" SVG "icon.svg",
    "static/vendor/xterm.js" SCRIPT "vendor/xterm.mjs",
    "static/vendor/xterm.css" STYLE "vendor/xterm.css",
    "static/vendor/addon-fit.js" SCRIPT "vendor/addon-fit.mjs",
    "static/vendor/xterm.LICENSE" TEXT "vendor/xterm.LICENSE",
    "static/vendor/addon-fit.LICENSE" TEXT "vendor/addon-fit.LICENSE",
];

/// Returns the file of a path.
pub(crate) fn find(path: &str) -> Option<Asset> {
    ALL.iter().find(|it| it.0 == path).map(|it| it.1)
}

#[cfg(test)]
mod tests {
    use super::{ALL, SCRIPT, find};

    #[test]
    fn every_file_that_the_page_uses_is_embedded() {
        let own = ALL.iter().filter(|it| !it.0.contains("/vendor/"));
        for (path, asset) in own {
            assert!(!asset.content.contains("://") || *path == "static/icon.svg", "{path} names another place");
            for quoted in asset.content.split('"').filter(|it| it.starts_with("static/") || it.starts_with("./")) {
                let named = quoted.strip_prefix("./").map_or_else(|| quoted.to_owned(), |it| format!("static/{it}"));
                assert!(find(&named).is_some(), "{path} names {quoted}");
            }
            // The policy of the page forbids both.
            assert!(!asset.content.contains("<script>") && !asset.content.contains("onclick="), "{path}");
            assert!(asset.media_type != SCRIPT || !asset.content.contains("innerHTML"), "{path}");
        }
    }
}
