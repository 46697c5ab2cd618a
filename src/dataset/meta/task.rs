//! The task table: number to text.

use std::collections::BTreeMap;
use std::path::Path;

use super::layout::Layout;
use crate::dataset::error::DatasetError;
use crate::dataset::files::read_json_lines;
use crate::dataset::table::Table;

/// Task texts by `task_index`, as stored.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Tasks(BTreeMap<i64, String>);

impl Tasks {
    pub(super) fn read(root: &Path, layout: Layout) -> Result<Tasks, DatasetError> {
        match layout {
            Layout::V21 => read_lines(&root.join("meta/tasks.jsonl")),
            Layout::V30 => read_parquet(&root.join("meta/tasks.parquet")),
        }
    }

    /// The text of task `index`.
    pub fn get(&self, index: i64) -> Option<&str> {
        self.0.get(&index).map(String::as_str)
    }

    /// Index and text, by index.
    pub fn iter(&self) -> impl Iterator<Item = (i64, &str)> {
        self.0.iter().map(|(&index, text)| (index, text.as_str()))
    }

    /// Number of tasks.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is no task.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn insert(&mut self, index: i64, text: String, path: &Path) -> Result<(), DatasetError> {
        match self.0.insert(index, text.clone()) {
            Some(other) if other != text => {
                Err(DatasetError::metadata(path, format!("task_index {index} occurs twice: {other:?} and {text:?}")))
            }
            _ => Ok(()),
        }
    }
}

fn read_lines(path: &Path) -> Result<Tasks, DatasetError> {
    let mut tasks = Tasks::default();
    for (line, value) in read_json_lines(path)? {
        let (Some(index), Some(text)) = (value["task_index"].as_i64(), value["task"].as_str()) else {
            let message = format!("line {line}: expected {{\"task_index\": number, \"task\": text}}, found {value}");
            return Err(DatasetError::metadata(path, message));
        };
        tasks.insert(index, text.to_owned(), path)?;
    }
    Ok(tasks)
}

/// The texts are the index of a data frame: a column named `task`, or `__index_level_0__` when the index had no name.
fn read_parquet(path: &Path) -> Result<Tasks, DatasetError> {
    let table = Table::open(path)?;
    let text_column = ["task", "__index_level_0__"].into_iter().find(|name| table.has(name)).ok_or_else(|| {
        DatasetError::table(
            path,
            format!("neither a column task nor __index_level_0__; found {}", table.columns().join(", ")),
        )
    })?;
    let rows = table.read(&["task_index", text_column], None)?;
    let mut tasks = Tasks::default();
    for (index, text) in rows.integers("task_index")?.into_iter().zip(rows.texts(text_column)?) {
        tasks.insert(index, text, path)?;
    }
    Ok(tasks)
}
