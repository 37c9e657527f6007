//! `Line`: a word and named values, `loop tasks=64 keys=/path ..`.

use std::collections::HashMap;

pub(crate) struct Line<'a> {
    what: &'a str,
    values: HashMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    pub(crate) fn parse(line: &'a str) -> Self {
        let mut words = line.split(' ');
        let what = words.next().unwrap_or_default();
        Self { what, values: words.filter_map(|word| word.split_once('=')).collect() }
    }

    pub(crate) fn what(&self) -> &'a str {
        self.what
    }

    pub(crate) fn text(&self, name: &str) -> &'a str {
        self.values.get(name).unwrap_or_else(|| panic!("{} without {name}", self.what))
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.values.contains_key(name)
    }

    pub(crate) fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or_else(|_| panic!("{name} is no number"))
    }
}
