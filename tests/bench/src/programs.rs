//! `Programs`: the start command of each lock's program, as found by `scripts/bench`, or why there
//! is none.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The lines of a file: the name, then the words of a command separated by tabs, or `-` and the
/// reason why there is none.
#[derive(Debug)]
pub(crate) struct Programs(BTreeMap<String, Result<Vec<String>, String>>);

impl Programs {
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let text = fs::read_to_string(path).map_err(|error| format!("{path:?}: {error}"))?;
        let mut programs = BTreeMap::new();
        for line in text.lines() {
            let mut words = line.split('\t').map(str::to_owned);
            let name = words.next().unwrap_or_default();
            let words: Vec<String> = words.collect();
            let program = match words.as_slice() {
                [dash, why] if dash == "-" => Err(why.clone()),
                _ => Ok(words),
            };
            programs.insert(name, program);
        }
        Ok(Self(programs))
    }

    pub(crate) fn command(&self, id: &str) -> Result<&[String], String> {
        match self.0.get(id) {
            Some(Ok(command)) => Ok(command),
            Some(Err(why)) => Err(why.clone()),
            None => Err("not asked for".to_owned()),
        }
    }

    /// The unavailable programs, and why.
    pub(crate) fn missing(&self) -> BTreeMap<String, String> {
        let why = |(id, program): (&String, &Result<_, String>)| {
            Some((id.clone(), program.as_ref().err()?.clone()))
        };
        self.0.iter().filter_map(why).collect()
    }
}
