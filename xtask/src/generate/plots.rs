//! Plots of the measurements in `docs/bench`: one bar for each figure of a column or a row.

use std::fmt::Write as _;
use std::fs;

use anyhow::{Context as _, Result};

use crate::sh::root;

const WIDTH: f64 = 720.0;
/// Where bars begin: names stand before it.
const LEFT: f64 = 190.0;
/// Where the longest bar ends: its figure stands behind it.
const RIGHT: f64 = 640.0;
const HEIGHT: f64 = 26.0;

/// A bar of a plot.
#[derive(Debug, PartialEq)]
struct Bar {
    name: String,
    value: f64,
    is_ours: bool,
}

/// Path below `docs/plots`, and text of each plot.
pub(super) fn all() -> Result<Vec<(&'static str, String)>> {
    let read = |page: &str| {
        let path = format!("docs/bench/{page}.md");
        fs::read_to_string(root().join(&path)).context(path)
    };
    let (exec, engine, agents) = (read("exec")?, read("engine")?, read("agents")?);
    let mut commands = Vec::new();
    for program in ["docker", "podman"] {
        let table = table(&exec, &format!("## {program}"))?;
        commands.push(bar(&table, "`true`", &format!("`{program} exec`"), &format!("{program} exec"), false)?);
        commands.push(bar(&table, "`true`", "socket", &format!("Coracle on {program}"), true)?);
    }
    let engines = table(&engine, "# ")?;
    commands.push(bar(&engines, "embedded", "a later `true`", "Coracle, embedded engine", true)?);
    let column = "until `true` answered, alone";
    let created = engines.iter().skip(1).filter(|row| row.len() > 1).map(|row| {
        let is_ours = row[0].contains("embedded");
        bar(&engines, &row[0], column, &row[0], is_ours)
    });
    let tasks = table(&agents, "# ")?;
    let tokens = tasks.iter().skip(1).map(|row| bar(&tasks, &row[0], "tokens", &row[0], row[0].contains("after")));
    Ok(vec![
        ("exec.svg", plot("ms for `true` in a container that is there: median", &commands)),
        ("create.svg", plot("ms until a new container answered `true`: median", &created.collect::<Result<Vec<_>>>()?)),
        ("agents.svg", plot("tokens of calls and answers for thirty tasks", &tokens.collect::<Result<Vec<_>>>()?)),
    ])
}

/// The first table after a heading, by rows and cells; the rule below its header is left out.
fn table(page: &str, heading: &str) -> Result<Vec<Vec<String>>> {
    let after = page.lines().skip_while(|it| !it.starts_with(heading)).skip_while(|it| !it.starts_with('|'));
    let rows: Vec<Vec<String>> = after
        .take_while(|it| it.starts_with('|'))
        .filter(|it| !it.starts_with("|--"))
        .map(|it| it.trim_matches('|').split('|').map(|it| it.trim().to_owned()).collect())
        .collect();
    anyhow::ensure!(!rows.is_empty(), "no table after `{heading}`");
    Ok(rows)
}

/// The figure of a row and a column.
fn bar(table: &[Vec<String>], row: &str, column: &str, name: &str, is_ours: bool) -> Result<Bar> {
    let at = table[0].iter().position(|it| it == column).with_context(|| format!("no column `{column}`"))?;
    let row = table.iter().find(|it| it[0] == row).with_context(|| format!("no row `{row}`"))?;
    let figure = row.get(at).and_then(|it| it.split_whitespace().next()).unwrap_or_default();
    let value = figure.parse().with_context(|| format!("`{figure}` is no figure"))?;
    Ok(Bar { name: name.to_owned(), value, is_ours })
}

fn plot(title: &str, bars: &[Bar]) -> String {
    let height = HEIGHT * (bars.len() as f64 + 1.5);
    let most = bars.iter().map(|it| it.value).fold(f64::MIN_POSITIVE, f64::max);
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" font-family=\"sans-serif\" font-size=\"12\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"white\"/>\n"
    );
    for (at, bar) in bars.iter().enumerate() {
        let (top, width) = (HEIGHT * (at as f64 + 0.4), (RIGHT - LEFT) * bar.value / most);
        let (middle, color) = (top + 13.0, if bar.is_ours { "#1f5fbf" } else { "#c2571a" });
        let _ =
            writeln!(svg, "<text x=\"{:.1}\" y=\"{middle:.1}\" text-anchor=\"end\">{}</text>", LEFT - 8.0, bar.name);
        let _ = writeln!(
            svg,
            "<rect x=\"{LEFT:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"18\" fill=\"{color}\"/>",
            width.max(1.0)
        );
        let _ = writeln!(svg, "<text x=\"{:.1}\" y=\"{middle:.1}\">{}</text>", LEFT + width + 6.0, bar.value);
    }
    let _ = writeln!(
        svg,
        "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>\n</svg>",
        WIDTH / 2.0,
        height - 10.0,
        title.replace('`', "")
    );
    svg
}

#[cfg(test)]
mod tests {
    use super::{Bar, bar, plot, table};

    #[test]
    fn a_bar_has_the_figure_of_its_cell_and_its_length() {
        let page = "# A\n\n| | ms |\n|---|--:|\n| x | 4 (1) |\n\n## B\n| | s | ms |\n|---|--:|--:|\n| x | 1 | 20.5 (3) |\n| y | – | 41 |\n";
        let table = table(page, "## B").unwrap();
        let x = bar(&table, "x", "ms", "X", true).unwrap();
        assert_eq!(x, Bar { name: "X".to_owned(), value: 20.5, is_ours: true });
        let y = bar(&table, "y", "ms", "Y", false).unwrap();
        let svg = plot("`t`", &[x, y]);
        assert!(svg.contains("width=\"225.0\"") && svg.contains("width=\"450.0\"") && svg.contains(">20.5<"), "{svg}");
        assert!(bar(&table, "y", "s", "Y", false).is_err() && bar(&table, "z", "s", "Z", false).is_err());
    }
}
