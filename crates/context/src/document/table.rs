//! Tables. A front end decides the width of columns.

use super::StyledText;

/// A column: its heading, and how it shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Column {
    /// Above it.
    pub heading: &'static str,
    /// Its cells may be shortened.
    pub can_shrink: bool,
    /// If there is not enough room, the column with the highest number is left out first; 0 is never left out.
    pub drop_order: u8,
}

impl Column {
    /// A column whose cells are never shortened.
    #[must_use]
    pub const fn fixed(heading: &'static str) -> Self {
        Self { heading, can_shrink: false, drop_order: 0 }
    }

    /// A column whose cells are shortened if there is not enough room.
    #[must_use]
    pub const fn flexible(heading: &'static str) -> Self {
        Self { heading, can_shrink: true, drop_order: 0 }
    }

    /// Makes the column optional: columns with the highest number are left out first, if there is no room even for
    /// short cells.
    #[must_use]
    pub const fn or_left_out(self, order: u8) -> Self {
        Self { drop_order: order, ..self }
    }
}

/// A table.
#[derive(Clone, Debug, PartialEq)]
pub struct DocumentTable {
    /// From left to right.
    pub columns: Vec<Column>,
    /// A cell for each column.
    pub rows: Vec<Vec<StyledText>>,
}

impl DocumentTable {
    pub(super) fn plain_lines(&self) -> Vec<String> {
        let heads = self.columns.iter().map(|it| it.heading.to_owned()).collect::<Vec<_>>();
        let rows = self.rows.iter().map(|it| it.iter().map(ToString::to_string).collect());
        let rows: Vec<Vec<String>> = [heads].into_iter().chain(rows).collect();
        let width = |at: usize| rows.iter().map(|it| it[at].chars().count()).max().unwrap_or(0);
        let line = |row: &Vec<String>| {
            let cells = row.iter().enumerate().map(|(at, cell)| format!("{cell:<0$}", width(at)));
            cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
        };
        rows.iter().map(line).collect()
    }
}
