//! Files by path, with the folders that their paths imply: how a source without a file system answers.

use std::collections::BTreeMap;

/// Items by normal path.
#[derive(Clone, Debug)]
pub(super) struct Tree<T>(BTreeMap<String, T>);

/// A path without `.` parts and without a `/` at its end.
///
/// # Errors
/// The rule that a path breaks which does not lead to one place inside the bundle, on every system.
pub(super) fn normal(path: &str) -> Result<String, &'static str> {
    if path.starts_with('/') {
        return Err("its path is absolute");
    }
    if path.contains(['\\', ':']) || path.chars().any(char::is_control) {
        return Err(
            "its path has a character (backslash, colon, control) that systems read differently",
        );
    }
    let parts: Vec<&str> = path
        .split('/')
        .filter(|p| !p.is_empty() && *p != ".")
        .collect();
    match parts.contains(&"..") {
        true => Err("its path leads outside (..)"),
        false => Ok(parts.join("/")),
    }
}

impl<T> Tree<T> {
    pub(super) fn new() -> Self {
        Self(BTreeMap::new())
    }

    /// Adds an item at a normal path; false where one is there already.
    pub(super) fn insert(&mut self, path: String, item: T) -> bool {
        self.0.insert(path, item).is_none()
    }

    pub(super) fn get(&self, path: &str) -> Option<&T> {
        self.0.get(&normal(path).ok()?)
    }

    pub(super) fn is_folder(&self, path: &str) -> bool {
        let Ok(path) = normal(path) else { return false };
        path.is_empty() || self.below(&path).next().is_some()
    }

    /// A path that is both an item's and a folder's.
    pub(super) fn clash(&self) -> Option<&str> {
        let mut paths = self.0.keys().map(String::as_str);
        paths.find(|p| self.is_folder(p))
    }

    /// The names in a folder, sorted.
    pub(super) fn list(&self, folder: &str) -> Vec<String> {
        let Ok(folder) = normal(folder) else {
            return Vec::new();
        };
        let first = |rest: &str| rest.split('/').next().unwrap_or(rest).to_owned();
        let mut names: Vec<String> = self.below(&folder).map(first).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    /// The part below a folder alone.
    pub(super) fn subtree(self, folder: &str) -> Self {
        let prefix = format!("{folder}/");
        let inner = |(path, item): (String, T)| {
            let path = path.strip_prefix(&prefix)?.to_owned();
            Some((path, item))
        };
        Self(self.0.into_iter().filter_map(inner).collect())
    }

    /// Paths of items below a folder, relative to it.
    fn below<'a>(&'a self, folder: &str) -> impl Iterator<Item = &'a str> + use<'a, T> {
        let prefix = match folder {
            "" => String::new(),
            _ => format!("{folder}/"),
        };
        let paths = self.0.range(prefix.clone()..).map(|(path, _)| &**path);
        paths.map_while(move |path| path.strip_prefix(&*prefix))
    }
}
