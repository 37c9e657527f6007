//! What the modules of lockcore know of each other goes one way.
//!
//! Read are the `use` lines that stand at the margin: those of unit tests are indented. A name that
//! a module only passes on counts where it is from. A file and the folder of its name are one; a
//! folder's `mod.rs` and what is in it may know each other.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module, or a name in one: `["node", "core"]`.
type Name = Vec<String>;

#[derive(Default)]
struct Modules {
    /// Whether each is the `mod.rs` of a folder.
    all: BTreeMap<Name, bool>,
    uses: Vec<Use>,
    passed_on: BTreeMap<Name, Name>,
}

struct Use {
    by: Name,
    /// With the name that it has there.
    used: (Name, String),
    is_passed_on: bool,
}

impl Modules {
    fn read(&mut self, folder: &Path, module: &Name) {
        for entry in fs::read_dir(folder).expect("a folder of sources") {
            let path = entry.expect("an entry").path();
            let stem = path.file_stem().expect("a name").to_string_lossy().into_owned();
            if stem == "tests" {
                continue;
            }
            let is_folder = ["mod", "lib"].contains(&&*stem);
            let mut name = module.clone();
            name.extend((!is_folder).then_some(stem));
            if path.is_dir() {
                self.read(&path, &name);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).expect("a source is text");
                self.all.insert(name.clone(), is_folder);
                for statement in statements(&text) {
                    let Some((before, tree)) = statement.split_once("use ") else { continue };
                    let mut found = Vec::new();
                    expand(&[], tree, &mut found);
                    let is_passed_on = before.starts_with("pub");
                    let used = found.into_iter();
                    self.uses.extend(used.map(|used| Use { by: name.clone(), used, is_passed_on }));
                }
            }
        }
    }

    /// The full name of what `module` calls `used`; nothing if that is another crate's.
    fn full(&self, module: &Name, used: &[String]) -> Option<Name> {
        let (first, rest) = used.split_first()?;
        let mut base = match &**first {
            "crate" => Name::new(),
            "self" => module.clone(),
            "super" => {
                let parent = &module[..module.len() - 1];
                match rest.first().is_some_and(|next| next == "super") {
                    true => return self.full(&parent.to_vec(), rest),
                    false => parent.to_vec(),
                }
            }
            _ => {
                let child = [&module[..], std::slice::from_ref(first)].concat();
                self.all.contains_key(&child).then_some(child)?
            }
        };
        base.extend_from_slice(rest);
        Some(base)
    }

    /// The module that a full name stands in.
    fn of(&self, name: &Name) -> Option<Name> {
        (0..=name.len()).rev().find_map(|length| {
            let (start, rest) = name.split_at(length);
            if let Some(from) = self.passed_on.get(start) {
                return self.of(&[&from[..], rest].concat());
            }
            self.all.contains_key(start).then(|| start.to_vec())
        })
    }

    /// The file that a module counts as.
    fn whole(&self, module: &Name) -> Name {
        let is_whole = |length: &usize| self.all.get(&module[..*length]) == Some(&false);
        let length = (1..module.len()).find(is_whole).unwrap_or(module.len());
        module[..length].to_vec()
    }

    fn knowing(mut self) -> BTreeMap<Name, BTreeSet<Name>> {
        for Use { by, used: (used, as_name), .. } in self.uses.iter().filter(|it| it.is_passed_on) {
            if let Some(full) = self.full(by, used) {
                let name = [&by[..], std::slice::from_ref(as_name)].concat();
                if !full.starts_with(&name) {
                    self.passed_on.insert(name, full);
                }
            }
        }
        let mut knowing = BTreeMap::<_, BTreeSet<_>>::new();
        for Use { by, used: (used, _), is_passed_on } in &self.uses {
            let Some(full) = self.full(by, used) else { continue };
            let (one, other) = (self.whole(by), self.of(&full).expect("of this crate"));
            let other = self.whole(&other);
            let is_kin = |one: &Name, other: &Name| !one.is_empty() && other.starts_with(one);
            if !is_passed_on && !is_kin(&one, &other) && !is_kin(&other, &one) {
                knowing.entry(one).or_default().insert(other);
            }
        }
        knowing
    }
}

/// What begins at the margin, up to its semicolon.
fn statements(text: &str) -> impl Iterator<Item = String> {
    let starts = text.match_indices('\n').map(|(at, _)| at + 1).chain([0]);
    let uses = starts.map(|at| &text[at..]).filter(|rest| {
        rest.starts_with("use ")
            || rest.starts_with("pub use ")
            || rest.starts_with("pub(crate) use ")
    });
    uses.map(|rest| rest.split_once(';').expect("a statement ends").0.replace('\n', " "))
}

/// `a::{b, c::{self, d}}` as `a::b`, `a::c` and `a::c::d`.
fn expand(before: &[String], tree: &str, found: &mut Vec<(Name, String)>) {
    let tree = tree.trim();
    let (path, group) = match tree.split_once('{') {
        Some((path, group)) => (path, Some(group.trim_end().trim_end_matches('}'))),
        None => (tree, None),
    };
    let (path, as_name) = match path.split_once(" as ") {
        Some((path, as_name)) => (path, Some(as_name.trim().to_owned())),
        None => (path, None),
    };
    let parts = path.split("::").map(str::trim).filter(|part| !part.is_empty());
    let mut name = [before, &parts.map(str::to_owned).collect::<Vec<_>>()[..]].concat();
    let Some(group) = group else {
        if name.len() > 1 && name.last().is_some_and(|last| last == "self") {
            name.pop();
        }
        let last = name.last().expect("a name").clone();
        return found.push((name, as_name.unwrap_or(last)));
    };
    let (mut depth, mut start) = (0, 0);
    for (at, c) in group.char_indices().chain([(group.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 || at == group.len() => {
                if !group[start..at].trim().is_empty() {
                    let missing = "}".repeat(depth.max(0) as usize);
                    expand(&name, &(group[start..at].to_owned() + &missing), found);
                }
                start = at + 1;
            }
            _ => {}
        }
    }
}

/// A way from `module` back to one that is on the way.
fn circle(
    knowing: &BTreeMap<Name, BTreeSet<Name>>,
    module: &Name,
    way: &mut Vec<Name>,
    done: &mut BTreeSet<Name>,
) -> Option<Vec<Name>> {
    if let Some(at) = way.iter().position(|on_the_way| on_the_way == module) {
        return Some(way[at..].to_vec());
    }
    if !done.insert(module.clone()) {
        return None;
    }
    way.push(module.clone());
    let mut known = knowing.get(module).into_iter().flatten();
    let found = known.find_map(|next| circle(knowing, next, way, done));
    way.pop();
    found
}

#[test]
fn no_modules_of_lockcore_import_each_other_in_a_circle() {
    let mut modules = Modules::default();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("../lockcore/src");
    modules.read(&sources, &Name::new());
    let knowing = modules.knowing();
    let imports: usize = knowing.values().map(BTreeSet::len).sum();
    assert!(imports > 150, "only {imports} imports were understood");
    let mut done = BTreeSet::new();
    for module in knowing.keys() {
        if let Some(circle) = circle(&knowing, module, &mut Vec::new(), &mut done) {
            let names: Vec<_> = circle.iter().map(|module| module.join("::")).collect();
            panic!("a circle of imports: {} → {}", names.join(" → "), names[0]);
        }
    }
}
