//! Reads the base images of a Dockerfile, and refuses instructions with effects beyond the build.

use std::collections::{BTreeMap, BTreeSet};

use coracle_types::ImageRef;

use crate::refusal::DeniedProperty;

/// The result of reading a Dockerfile.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dockerfile {
    /// Base images, and images that files are copied from.
    pub bases: BTreeSet<ImageRef>,
}

/// Reads a Dockerfile. It is built without BuildKit, so no frontend image is pulled; syntax that only Podman accepts is
/// refused. Syntax that the engines could interpret differently is refused, too.
///
/// # Errors
/// Each refused instruction.
pub fn dockerfile(text: &str, args: &BTreeMap<String, String>) -> Result<Dockerfile, Vec<DeniedProperty>> {
    let lines = plain_lines(text).and_then(|it| no_directive(&it).map(|()| it)).and_then(|it| logical_lines(&it));
    let lines = lines.map_err(|why| vec![refusal(why)])?;
    let mut reader = DockerfileReader {
        args,
        values: BTreeMap::new(),
        stages: Vec::new(),
        it: Dockerfile::default(),
        refusals: Vec::new(),
    };
    for line in lines {
        reader.instruction(&line);
    }
    if reader.stages.is_empty() && reader.refusals.is_empty() {
        reader.refuse("it begins with no image");
    }
    if reader.refusals.is_empty() { Ok(reader.it) } else { Err(reader.refusals) }
}

fn refusal(why: &str) -> DeniedProperty {
    DeniedProperty::new("build.dockerfile", "devcontainer.dockerfile", why)
}

/// Splits it into lines, which contain no white-space except blanks and tabs.
fn plain_lines(text: &str) -> Result<Vec<&str>, &'static str> {
    let lines: Vec<_> = text.split('\n').map(|it| it.strip_suffix('\r').unwrap_or(it)).collect();
    // Engines differ in which of these they drop. The last one is the byte order mark.
    let is_unsupported =
        |c: char| c != '\t' && (c.is_control() || (c.is_whitespace() && !c.is_ascii()) || c == '\u{feff}');
    if lines.iter().any(|it| it.contains(is_unsupported)) {
        return Err("it has control characters, or white-space that is neither a blank nor a tab");
    }
    Ok(lines)
}

/// Refuses comments at the start that change how an engine parses the rest.
fn no_directive(lines: &[&str]) -> Result<(), &'static str> {
    let comments = lines.iter().map(|it| it.trim()).take_while(|it| it.is_empty() || it.starts_with('#'));
    for comment in comments {
        let plain: String = comment.trim_start_matches('#').split_whitespace().collect();
        let plain = plain.to_ascii_lowercase();
        if plain.starts_with("escape=") {
            return Err("another escape character cannot be read");
        }
        let usual =
            |it: &str| it.strip_prefix("docker/dockerfile").is_some_and(|it| it.is_empty() || it.starts_with(':'));
        if plain.strip_prefix("syntax=").is_some_and(|it| !usual(it)) {
            return Err("another syntax cannot be read");
        }
    }
    Ok(())
}

/// Joins continued instructions as the engines do, and removes comments.
fn logical_lines(all: &[&str]) -> Result<Vec<String>, &'static str> {
    let (mut lines, mut open) = (Vec::new(), None::<String>);
    for line in all {
        if line.trim().is_empty() || line.trim_start().starts_with('#') {
            continue;
        }
        let (part, goes_on) = line.trim_end().strip_suffix('\\').map_or((*line, false), |it| (it, true));
        if goes_on && !part.ends_with([' ', '\t']) {
            return Err("a line goes on (`\\`) in the middle of a word");
        }
        let whole = open.take().unwrap_or_default() + part;
        if goes_on { open = Some(whole) } else { lines.push(whole) }
    }
    lines.extend(open);
    Ok(lines)
}

/// Whether quotes or escapes could join or split words.
fn is_quoted(text: &str) -> bool {
    text.contains(['\\', '"', '\''])
}

/// Returns the options of an instruction.
fn options(rest: &str) -> impl Iterator<Item = &str> {
    rest.split_whitespace().take_while(|it| it.starts_with("--"))
}

/// Returns the text after the options.
fn operands(rest: &str) -> &str {
    let mut rest = rest.trim();
    while rest.starts_with("--") {
        rest = word_of(rest).1.trim();
    }
    rest
}

/// Whether `ADD` would fetch a git repository.
fn is_git(word: &str) -> bool {
    let address = word.split_once('#').map_or(word, |it| it.0);
    address.ends_with(".git") || word.split_once('@').is_some_and(|it| it.1.contains(':'))
}

struct DockerfileReader<'a> {
    args: &'a BTreeMap<String, String>,
    /// Values of arguments that `FROM` uses.
    values: BTreeMap<String, String>,
    stages: Vec<Option<String>>,
    it: Dockerfile,
    refusals: Vec<DeniedProperty>,
}

impl DockerfileReader<'_> {
    fn refuse(&mut self, why: &str) {
        self.refusals.push(refusal(why));
    }

    fn instruction(&mut self, line: &str) {
        let (word, rest) = word_of(line);
        let rest = rest.trim();
        match word.to_ascii_uppercase().as_str() {
            "ARG" if self.stages.is_empty() => self.argument(rest),
            "FROM" => self.from(rest),
            "COPY" => self.copy(rest),
            "ADD" => self.add(rest),
            "RUN" => self.run(rest),
            "ONBUILD" => self.later(rest),
            "ARG" | "ENV" | "LABEL" | "WORKDIR" | "USER" | "CMD" | "ENTRYPOINT" | "EXPOSE" | "VOLUME" | "SHELL"
            | "STOPSIGNAL" | "HEALTHCHECK" | "MAINTAINER" => {}
            _ => self.refuse(&format!("`{}` is no instruction that is known", word.escape_debug())),
        }
    }

    /// Checks an `ONBUILD` instruction.
    fn later(&mut self, rest: &str) {
        match word_of(rest).0.to_ascii_uppercase().as_str() {
            "FROM" | "ONBUILD" | "ARG" => self.refuse("`ONBUILD` takes no instruction of that kind"),
            _ => self.instruction(rest),
        }
    }

    fn argument(&mut self, rest: &str) {
        for word in rest.split_whitespace() {
            let (name, default) = word.split_once('=').unwrap_or((word, ""));
            let quoted = |by| default.strip_prefix(by)?.strip_suffix(by);
            let default = quoted('"').or_else(|| quoted('\'')).unwrap_or(default);
            if is_quoted(name) || is_quoted(default) || self.values.contains_key(name) {
                return self.refuse("an argument before `FROM` is one word, and is there once");
            }
            let value = self.args.get(name).cloned().or_else(|| self.filled(default)).unwrap_or_default();
            self.values.insert(name.to_owned(), value);
        }
    }

    fn from(&mut self, rest: &str) {
        if is_quoted(rest) {
            return self.refuse("`FROM` takes plain words");
        }
        let mut words = rest.split_whitespace().skip_while(|it| it.starts_with("--"));
        let image = words.next().unwrap_or_default().to_owned();
        let named = words.next().is_some_and(|it| it.eq_ignore_ascii_case("as"));
        let name = words.next().filter(|_| named).map(str::to_ascii_lowercase);
        self.base(&image);
        self.stages.push(name);
    }

    /// Adds a base image, unless it is an earlier stage.
    fn base(&mut self, text: &str) {
        let Some(image) = self.filled(text) else {
            return self.refuse(&format!("`{}` is not an image that is known before the build", text.escape_debug()));
        };
        let stage = image.to_ascii_lowercase();
        let number = image.parse::<usize>().is_ok_and(|it| it < self.stages.len());
        if image == "scratch" || number || self.stages.iter().any(|it| it.as_ref() == Some(&stage)) {
            return;
        }
        match ImageRef::parse(&image) {
            Ok(image) => drop(self.it.bases.insert(image)),
            Err(err) => self.refuse(&err.to_string()),
        }
    }

    fn copy(&mut self, rest: &str) {
        self.no_heredoc(rest);
        if options(rest).any(is_quoted) {
            return self.refuse("options of `COPY` are plain words");
        }
        for from in options(rest).filter_map(|it| it.strip_prefix("--from=")) {
            if from.contains('$') {
                self.refuse("`COPY --from` is not an image that is known before the build");
            } else {
                self.base(from);
            }
        }
    }

    /// Refuses URLs, which the builder would download from anywhere that the host can reach.
    fn add(&mut self, rest: &str) {
        self.no_heredoc(rest);
        let text = operands(rest);
        let list = serde_json::from_str::<Vec<String>>(text).is_ok();
        let sources = if list { text } else { text.rsplit_once(char::is_whitespace).map_or(text, |it| it.0) };
        let quoted = rest.contains('\\') || (!list && is_quoted(text)) || options(rest).any(is_quoted);
        let mut words = text.split(|c: char| c.is_whitespace() || "[]\",".contains(c));
        if quoted || rest.contains("://") || rest.contains("git@") || words.any(is_git) || sources.contains('$') {
            self.refuse("`ADD` takes files of the context alone; fetch with `RUN`");
        }
    }

    fn run(&mut self, rest: &str) {
        self.no_heredoc(rest);
        if rest.starts_with("--") {
            self.refuse("`RUN` takes no options: no mount, network or privilege");
        }
    }

    /// Refuses heredocs, whose lines could be parsed as instructions.
    fn no_heredoc(&mut self, rest: &str) {
        let begins = |it: &str| it.starts_with(|c: char| !c.is_whitespace() && c != '<');
        if rest.split("<<").skip(1).any(begins) {
            self.refuse("heredocs cannot be read");
        }
    }

    /// Expands `$NAME`, `${NAME}` and `${NAME:-default}`; none if a name is unknown.
    fn filled(&self, text: &str) -> Option<String> {
        let (mut filled, mut rest) = (String::new(), text);
        while let Some((before, after)) = rest.split_once('$') {
            filled.push_str(before);
            let (name, default, behind) = match after.strip_prefix('{') {
                Some(inner) => {
                    let (word, behind) = inner.split_once('}')?;
                    let (name, default) = word.split_once(":-").map_or((word, None), |(name, it)| (name, Some(it)));
                    (name, default, behind)
                }
                None => {
                    let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '_').unwrap_or(after.len());
                    (&after[..end], None, &after[end..])
                }
            };
            let value = self.values.get(name).filter(|it| !it.is_empty()).map(String::as_str).or(default);
            filled.push_str(value?);
            rest = behind;
        }
        filled.push_str(rest);
        Some(filled)
    }
}

/// Splits off the first word.
fn word_of(line: &str) -> (&str, &str) {
    let line = line.trim();
    line.split_once(char::is_whitespace).unwrap_or((line, ""))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bases(text: &str) -> Result<Vec<String>, Vec<String>> {
        let args = [("VARIANT".to_owned(), "3.13".to_owned())].into();
        let parsed = dockerfile(text, &args);
        parsed
            .map(|it| it.bases.iter().map(ToString::to_string).collect())
            .map_err(|all| all.into_iter().map(|it| it.message).collect())
    }

    #[test]
    fn all_images_are_known_before_the_build() {
        let cases = [
            ("FROM busybox:1\nRUN echo hi\n", vec!["busybox:1"]),
            (
                "# a\nARG VARIANT=3.12\nFROM --platform=linux/amd64 python:${VARIANT}-slim AS base\nFROM base\n",
                vec!["python:3.13-slim"],
            ),
            ("ARG TAG\nFROM debian:${TAG:-12}\n", vec!["debian:12"]),
            ("ARG A=x/y:1\nARG B=$A\nfrom $B\n", vec!["x/y:1"]),
            ("FROM scratch\nCOPY --from=golang:1 /a /b\nCOPY --chown=1 --from=0 /a /b\n", vec!["golang:1"]),
            ("FROM \\\n # note\n\n busybox:2 \\\n AS x\nCOPY --from=X / /\n", vec!["busybox:2"]),
        ];
        for (text, expected) in cases {
            assert_eq!(bases(text).unwrap(), expected, "{text}");
        }
    }

    #[test]
    fn effects_beyond_the_build_are_refused() {
        let cases = [
            ("FROM $UNKNOWN", "is not an image"),
            ("RUN echo", "begins with no image"),
            ("FROM x\nRUN --mount=type=bind,from=y cat /z", "`RUN` takes no options"),
            ("FROM x\nRUN \\\n --network=host curl y", "`RUN` takes no options"),
            ("FROM x\nADD http://169.254.169.254/ /a", "`ADD` takes files"),
            ("FROM x\nARG U\nADD $U /a", "`ADD` takes files"),
            ("FROM x\nADD [\"https://e.com/a\", \"/a\"]", "`ADD` takes files"),
            ("FROM x\nONBUILD ADD git@e.com:a /a", "`ADD` takes files"),
            ("FROM x\nRUN <<EOF\necho\nEOF", "heredocs"),
            ("# escape=`\nFROM x", "escape character"),
            ("FROM x\nCOPY --from=$Y /a /b", "is not an image"),
            ("FROM x\nRUN <<1\necho\n1", "heredocs"),
            ("FROM x\nADD [\"a\", \"$U\",\"/a\"]", "`ADD` takes files"),
            ("FROM x\nADD e.com/a.git#main /a", "`ADD` takes files"),
            ("FROM x\nADD user@e.com:a /a", "`ADD` takes files"),
            ("ARG C=evil\nARG A=\"b C=good\"\nFROM $C", "one word"),
            ("ARG C=evil\nARG C\nFROM ${C:-good}", "once"),
        ];
        for (text, why) in cases {
            let messages = bases(text).unwrap_err();
            assert!(messages.iter().any(|it| it.contains(why)), "{text}: {messages:?}");
        }
    }

    #[test]
    fn ambiguous_syntax_is_refused() {
        let cases = [
            ("FROM x\nRU\\\nN --network=host x", "middle of a word"),
            ("FROM x\nA\\\nDD http://x /", "middle of a word"),
            ("FROM x\nFR\\\nOM evil", "middle of a word"),
            ("FROM x\nFR \\\nOM evil", "no instruction"),
            ("FROM x\nADD http:\\\n//h/ /a", "middle of a word"),
            ("FROM x\nRUN a \\\\\nADD b /", "middle of a word"),
            ("FROM x\nRUN a \\\u{a0}\nADD b /", "white-space"),
            ("FROM x\nRUN a\u{b}b", "control"),
            ("FROM x\rRUN a\n", "control"),
            ("\u{feff}FROM x", "white-space"),
            ("\u{feff}#escape=`\nFROM x", "white-space"),
            ("#\tescape=`\nFROM x", "escape character"),
            ("# a\n\n \t#\t Escape\t = `\nFROM x", "escape character"),
            ("#syntax=evil/frontend\nFROM x", "syntax"),
            ("FROM x\nADD [\"http:\\/\\/h/\",\"/a\"]", "`ADD` takes files"),
            ("FROM x\nADD ht\"tp:\"//h/ /", "`ADD` takes files"),
            ("FROM x\nADD [ ht\"tp:\"//h/ /", "`ADD` takes files"),
            ("FROM x\nADD ht\"tp:\"//h/[ /", "`ADD` takes files"),
            ("FROM x\nCOPY --fr\\om=evil a b", "plain words"),
            ("FROM x\nCOPY --\"from\"=evil a b", "plain words"),
            ("FROM x\nCOPY --from=$X a b", "is not an image"),
            ("FROM --platform=a\\ b evil", "plain words"),
            ("FROM x\nONBUILD FROM y AS evil", "`ONBUILD`"),
            ("FROM x\nINCLUDE y", "no instruction"),
        ];
        for (text, why) in cases {
            let messages = bases(text).unwrap_err();
            assert!(messages.iter().any(|it| it.contains(why)), "{text}: {messages:?}");
        }
        assert_eq!(bases("FROM x\nCOPY --from=a --from=b:2 /a /b").unwrap(), ["a", "b:2", "x"]);
    }

    #[test]
    fn common_dockerfiles_are_accepted() {
        let text = "# syntax=docker/dockerfile:1\n\nFROM debian:12 AS base\r\nENV A=\"b c\" D='e' \\\n    PATH=/x:$PATH\n\
            RUN apt-get update \\\n    && apt-get install -y --no-install-recommends git \\  \n    # why\n\n# and\n\
            \t&& echo \"a \\\"b\\\"\" > /x \\\n    && rm -rf /var/lib/apt/lists/*\nSHELL [\"/bin/bash\", \"-c\"]\n\
            COPY --chown=1:1 . /src\nADD --chown=1:1 archive.tar.gz .gitconfig /opt/$X\nARG U=1\nUSER $U\n\
            HEALTHCHECK CMD true\nFROM base\nCOPY [\"a b\", \"/c\"]\nONBUILD RUN cat <<< \"x\"\ncmd [\"sh\"]\n";
        assert_eq!(bases(text).unwrap(), ["debian:12"]);
    }
}
