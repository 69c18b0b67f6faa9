//! Rows in columns, as wide as the terminal: long cells are shortened with `…`, and rows are never wrapped.

use std::io::IsTerminal as _;

use comfy_table::{Table, presets};
use coracle_context::document::Column;

/// Minimum width of a column.
const NARROWEST: usize = 8;

/// The target of a text.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View {
    /// Width of the terminal; `None` in a pipe, where nothing is shortened.
    width: Option<usize>,
}

impl View {
    /// The current standard output.
    pub(crate) fn of_stdout() -> Self {
        let stdout = std::io::stdout();
        let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout).ok()).flatten();
        let width = size.map(|it| usize::from(it.ws_col)).filter(|it| *it > 0);
        Self { width }
    }

    /// A pipe.
    pub(crate) fn whole() -> Self {
        Self { width: None }
    }

    /// Width of the terminal, if it is one.
    pub(crate) fn width(&self) -> Option<usize> {
        self.width
    }

    /// A given width.
    pub(crate) fn wide(width: usize) -> Self {
        Self { width: Some(width) }
    }
}

/// The lines of a table.
pub(crate) fn lines(columns: &[Column], rows: Vec<Vec<String>>, view: View) -> Vec<String> {
    let (mut columns, mut rows) = (columns.to_vec(), rows);
    if let Some(width) = view.width {
        fit(&mut columns, &mut rows, width);
    }
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(columns.iter().map(|it| it.heading));
    for row in rows {
        table.add_row(row);
    }
    table.lines().map(|it| it.strip_prefix(' ').unwrap_or(&it).trim_end().to_owned()).collect()
}

fn fit(columns: &mut Vec<Column>, rows: &mut [Vec<String>], width: usize) {
    // Leaves out columns without values.
    while let Some(at) =
        (0..columns.len()).find(|at| columns[*at].drop_order > 0 && rows.iter().all(|it| it[*at].is_empty()))
    {
        leave_out(columns, rows, at);
    }
    loop {
        let mut widths: Vec<usize> = (0..columns.len()).map(|at| widest(columns, rows, at)).collect();
        while needed(&widths) > width {
            let gives = (0..columns.len()).filter(|at| columns[*at].can_shrink && widths[*at] > least(&columns[*at]));
            let Some(at) = gives.max_by_key(|at| widths[*at]) else { break };
            widths[at] -= 1;
        }
        let leaves =
            (0..columns.len()).filter(|at| columns[*at].drop_order > 0).max_by_key(|at| columns[*at].drop_order);
        match leaves.filter(|_| needed(&widths) > width) {
            Some(at) => leave_out(columns, rows, at),
            None => return shorten(rows, &widths),
        }
    }
}

fn least(column: &Column) -> usize {
    NARROWEST.max(column.heading.len())
}

fn leave_out(columns: &mut Vec<Column>, rows: &mut [Vec<String>], at: usize) {
    columns.remove(at);
    for row in rows {
        row.remove(at);
    }
}

fn widest(columns: &[Column], rows: &[Vec<String>], at: usize) -> usize {
    rows.iter().map(|it| length(&it[at])).chain([columns[at].heading.len()]).max().unwrap_or(0)
}

/// With two spaces between columns.
fn needed(widths: &[usize]) -> usize {
    widths.iter().sum::<usize>() + 2 * widths.len().saturating_sub(1)
}

fn length(cell: &str) -> usize {
    anstream::adapter::strip_str(cell).to_string().chars().count()
}

fn shorten(rows: &mut [Vec<String>], widths: &[usize]) {
    for row in rows {
        for (cell, width) in row.iter_mut().zip(widths) {
            if length(cell) > *width {
                let plain = anstream::adapter::strip_str(cell).to_string();
                *cell = plain.chars().take(width.saturating_sub(1)).chain(['…']).collect();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Column, View, lines};

    const COLUMNS: [Column; 4] = [
        Column::fixed("NAME"),
        Column::flexible("IMAGE"),
        Column::flexible("PORTS").or_left_out(1),
        Column::fixed("SESSION").or_left_out(2),
    ];

    fn check(width: usize) -> String {
        let row =
            |name: &str, image: &str, ports: &str| vec![name.into(), image.into(), ports.into(), "default".into()];
        let rows = vec![
            row("web", "registry.example.org/team/web-application:2026-11", "127.0.0.1:8080 -> 80"),
            row("database", "postgres:16", ""),
        ];
        lines(&COLUMNS, rows, View::wide(width)).join("\n")
    }

    #[test]
    fn rows_are_no_wider_than_the_terminal() {
        for width in [40, 60, 80, 125, 200] {
            let text = check(width);
            assert!(text.lines().all(|it| it.chars().count() <= width), "{width}:\n{text}");
            assert_eq!(text.lines().count(), 3, "{width}:\n{text}");
        }
        insta::assert_snapshot!(check(200), @r"
        NAME      IMAGE                                              PORTS                 SESSION
        web       registry.example.org/team/web-application:2026-11  127.0.0.1:8080 -> 80  default
        database  postgres:16                                                              default
        ");
        insta::assert_snapshot!(check(60), @r"
        NAME      IMAGE                 PORTS                SESSION
        web       registry.example.or…  127.0.0.1:8080 -> …  default
        database  postgres:16                                default
        ");
        insta::assert_snapshot!(check(30), @r"
        NAME      IMAGE      PORTS
        web       registry…  127.0.0.…
        database  postgres…
        ");
    }

    #[test]
    fn a_pipe_gets_every_column_whole() {
        let rows = vec![vec!["a".to_owned(), "x".repeat(300), String::new(), "s".to_owned()]];
        let text = lines(&COLUMNS, rows, View::whole()).join("\n");
        assert!(text.contains(&"x".repeat(300)) && text.contains("PORTS"), "{text}");
    }

    #[test]
    fn colours_count_for_nothing() {
        let rows =
            vec![vec!["a".to_owned(), format!("\u{1b}[31m{}\u{1b}[0m", "x".repeat(8)), String::new(), "s".to_owned()]];
        let text = lines(&COLUMNS, rows, View::wide(30)).join("\n");
        assert!(text.contains("xxxxxxxx") && !text.contains('…'), "{text}");
    }
}
