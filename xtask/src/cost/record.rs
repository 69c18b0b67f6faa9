//! Each start of the compiler, as the copy of this program writes it down.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;

use anyhow::{Context as _, Result, ensure};

use crate::sh::{as_ours, var};

/// The name of the copy, by which it knows what it is.
pub(super) const WRAPPER: &str = "costing";

/// The variable with the file to write to.
pub(super) const FILE: &str = "XTASK_COST";

/// One start of the compiler.
#[derive(Debug, PartialEq)]
pub(super) struct Compilation {
    pub(super) package: String,
    /// CPU seconds.
    pub(super) cpu: f64,
    /// The end of its files' names, which no other compilation has.
    pub(super) id: String,
    /// The ids of what it depends on.
    pub(super) needs: Vec<String>,
}

/// Starts the compiler that `words` begin with, and writes down what it cost. `None` for a program that is no such copy.
pub(crate) fn measure(words: &[String]) -> Option<ExitCode> {
    let name = std::env::args().next()?;
    if Path::new(&name).file_name()? != WRAPPER {
        return None;
    }
    let (compiler, arguments) = words.split_first()?;
    let is_right = as_ours(compiler, arguments.iter().map(String::as_str));
    match note(arguments) {
        Ok(()) if is_right => Some(ExitCode::SUCCESS),
        Ok(()) => Some(ExitCode::FAILURE),
        Err(error) => {
            eprintln!("error: {error:#}");
            Some(ExitCode::FAILURE)
        }
    }
}

fn note(arguments: &[String]) -> Result<()> {
    let (Some(file), Some(package), Some(id)) = (var(FILE), var("CARGO_PKG_NAME"), id(arguments)) else {
        return Ok(()); // cargo asks what the compiler can do
    };
    let line = format!("{package}\t{}\t{id}\t{}\n", children_seconds()?, needs(arguments).join(","));
    // One write, since other copies write to the file at the same time.
    File::options().append(true).create(true).open(file)?.write_all(line.as_bytes())?;
    Ok(())
}

fn id(arguments: &[String]) -> Option<&str> {
    arguments.iter().find_map(|it| it.strip_prefix("extra-filename=-"))
}

/// The ids of `--extern name=directory/libname-id.rmeta`.
fn needs(arguments: &[String]) -> Vec<&str> {
    let files = arguments.windows(2).filter(|it| it[0] == "--extern").filter_map(|it| it[1].split_once('='));
    files.filter_map(|(_, file)| Path::new(file).file_stem()?.to_str()?.rsplit_once('-')).map(|(_, id)| id).collect()
}

/// CPU seconds of all programs that this one has started and waited for, and that those did.
pub(super) fn children_seconds() -> Result<f64> {
    /// `USER_HZ`, which is the same on all platforms of Linux that Rust supports.
    const TICKS: f64 = 100.0;
    let stat = fs::read_to_string("/proc/self/stat")?;
    // After the name, which may contain anything, `cutime` and `cstime` are fields 14 and 15.
    let fields = stat.rsplit_once(')').context("/proc/self/stat has no name")?.1.split_whitespace().skip(13).take(2);
    let ticks: Vec<f64> = fields.map(str::parse).collect::<Result<_, _>>()?;
    ensure!(ticks.len() == 2, "/proc/self/stat is cut off");
    Ok(ticks.iter().sum::<f64>() / TICKS)
}

/// All that was written.
pub(super) fn read(file: &Path) -> Result<Vec<Compilation>> {
    fs::read_to_string(file)?.lines().map(parse).collect()
}

fn parse(line: &str) -> Result<Compilation> {
    let fields: Vec<&str> = line.split('\t').collect();
    let [package, cpu, id, needs] = fields[..] else { anyhow::bail!("not a compilation: {line}") };
    let needs = needs.split(',').filter(|it| !it.is_empty()).map(str::to_owned).collect();
    Ok(Compilation { package: package.to_owned(), cpu: cpu.parse()?, id: id.to_owned(), needs })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_compiled_is_read_from_the_compilers_arguments() {
        let line = "--crate-name b -C extra-filename=-0b1 --extern a=/deps/liba_c-00ff.rmeta --extern proc_macro -L x";
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!((id(&arguments), needs(&arguments)), (Some("0b1"), vec!["00ff"]));
        let expected = Compilation { package: "b".into(), cpu: 1.5, id: "0b1".into(), needs: vec!["00ff".into()] };
        assert_eq!(parse("b\t1.5\t0b1\t00ff").expect("a line"), expected);
        assert!(parse("b\t1.5").is_err());
    }
}
