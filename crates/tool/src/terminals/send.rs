//! `shell_send`: text and keys for a shell, and what it prints then.

use coracle_context::arg_types::{Seconds, inline_schema};
use coracle_context::failure::{Code, Failure};
use coracle_prepare::process::Process;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;

use super::{ShellResponse, find, until};
use crate::dispatch::{Effect, Operation};
use crate::schema::result_schema;

/// Type into a shell, and answer what it prints until it is silent for a moment. `reason` is `quiet`, `timeout` or `ended`.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct ShellSend {
    /// The shell, from `shell_open`.
    shell: String,
    /// Text to type; end it with a newline to enter it.
    text: Option<String>,
    /// Keys after the text, one or a list: `enter`, `ctrl-c`, `ctrl-d`, `tab`, `escape`, `up`, `page-down`, `f1`, `alt-b`…
    keys: Option<Keys>,
    /// Seconds (or `90s`, `10m`) before a wait ends, or a command and everything it started is ended (`exec_background`: 0
    /// is never).
    #[schemars(extend("default" = 10))]
    timeout: Option<Seconds>,
}

/// One key, or a list of them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Value")]
struct Keys(Vec<String>);

impl TryFrom<Value> for Keys {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        let items = if let Value::Array(items) = value { items } else { vec![value] };
        let word = |it: Value| match it {
            Value::String(word) => Ok(word),
            other => Err(format!("{other} is no name of a key, such as `enter` or `ctrl-c`")),
        };
        let words = items.into_iter().map(word).collect::<Result<Vec<_>, _>>()?;
        Ok(Self(words.iter().flat_map(|it| it.split_whitespace()).map(str::to_owned).collect()))
    }
}

inline_schema!(Keys, "Keys", { "type": ["string", "array"], "items": { "type": "string" } });

/// A program that prints for longer is read on with `shell_read`.
const USUAL: Seconds = Seconds::new(10);

/// Bytes of one text: more is a file.
const MAX_TEXT: usize = 64 << 10;

impl Operation<Process> for ShellSend {
    const NAME: &'static str = "shell_send";
    const EFFECT: Effect = Effect::Mutating;
    const RESULT: fn() -> Value = result_schema::<ShellResponse>;
    type Response = ShellResponse;

    async fn run(self, process: &Process) -> Result<ShellResponse, Failure> {
        let cx = &process.context;
        let shell = find(process, &self.shell)?;
        let (text, keys) = (self.text.unwrap_or_default(), self.keys.unwrap_or_default().0);
        if text.is_empty() && keys.is_empty() {
            return Err(Failure::new(Code::MissingField, "required: `text` or `keys`")
                .detail("fields", ["text", "keys"])
                .hint("`shell_read` reads without typing"));
        }
        if text.len() > MAX_TEXT {
            return Err(Failure::invalid("text", "at most 64 KiB").hint("write a file, and let the program read that"));
        }
        let until = until(cx, self.timeout, USUAL)?;
        if shell.end().is_some() {
            return Err(ended(&self.shell));
        }
        let silence = shell.next_output();
        let is_taken = shell.send(&text, &keys).await.map_err(|key| no_key(&key))?;
        if !is_taken && shell.end().is_none() {
            return Err(Failure::new(
                Code::Busy,
                format!("the program in `{}` does not take what is typed", self.shell),
            )
            .detail("shell", self.shell)
            .hint("a part of it may have arrived; look with `shell_read` and `screen`"));
        }
        let reason = cx.unless_cancelled(async { Ok(shell.wait_until_quiet(silence, until).await) }).await?;
        Ok(ShellResponse::new(self.shell, Some(reason), shell.read(false)))
    }
}

fn no_key(key: &str) -> Failure {
    Failure::invalid("keys", format!("`{}` is no key", key.escape_debug())).hint(
        "such as enter, tab, escape, backspace, delete, up, down, left, right, home, end, page-up, page-down, f1, \
               ctrl-c, alt-b; letters go into `text`",
    )
}

fn ended(id: &str) -> Failure {
    Failure::new(Code::ShellEnded, format!("the command in shell `{id}` has ended"))
        .detail("shell", id)
        .hint("`shell_read` has the rest of its output; `shell_open` opens another")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::Keys;

    #[test]
    fn keys_are_a_word_or_a_list() {
        let keys = |it: serde_json::Value| serde_json::from_value::<Keys>(it).map(|it| it.0);
        assert_eq!(keys(json!("ctrl-c")).unwrap(), ["ctrl-c"]);
        assert_eq!(keys(json!("escape enter")).unwrap(), ["escape", "enter"]);
        assert_eq!(keys(json!(["up", "enter"])).unwrap(), ["up", "enter"]);
        assert!(keys(json!([3])).unwrap_err().to_string().contains("no name of a key"));
    }
}
