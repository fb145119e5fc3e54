//! Fields of JSON objects: each is read by its name, and what is wrong with any of them is kept with its whole path.
//!
//! Opening a bundle stops at the first fault, auditing it wants all of them; both read by the same functions.

use std::cell::RefCell;

use serde_json::{Map, Value};

use super::error::BundleError;

/// Everything that was wrong, in the order of reading.
#[derive(Debug, Default)]
pub(crate) struct Faults(RefCell<Vec<BundleError>>);

impl Faults {
    pub(super) fn add(&self, fault: BundleError) {
        self.0.borrow_mut().push(fault);
    }

    pub(crate) fn note<T>(&self, result: Result<T, BundleError>) -> Option<T> {
        result.map_err(|fault| self.add(fault)).ok()
    }

    /// All of them.
    pub(crate) fn all(self) -> Vec<BundleError> {
        self.0.into_inner()
    }
}

/// What a reader gives, or the first fault it found.
pub(super) fn strictly<T>(read: impl FnOnce(&Faults) -> Option<T>) -> Result<T, BundleError> {
    let faults = Faults::default();
    let value = read(&faults);
    match (faults.all().into_iter().next(), value) {
        (None, Some(value)) => Ok(value),
        (Some(fault), _) => Err(fault),
        (None, None) => Err(malformed("it is incomplete".into())),
    }
}

/// An error of `metadata.json`.
pub(super) fn malformed(reason: String) -> BundleError {
    BundleError::Malformed {
        file: "metadata.json".into(),
        reason,
    }
}

/// Fields of one object.
pub(super) struct Fields<'a> {
    map: &'a Map<String, Value>,
    path: String,
    faults: &'a Faults,
}

impl<'a> Fields<'a> {
    pub(super) fn top(map: &'a Map<String, Value>, faults: &'a Faults) -> Self {
        let path = String::new();
        Self { map, path, faults }
    }

    pub(super) fn name(&self, key: &str) -> String {
        match &*self.path {
            "" => key.to_owned(),
            path => format!("{path}.{key}"),
        }
    }

    pub(super) fn has(&self, key: &str) -> bool {
        self.map.get(key).is_some_and(|v| !v.is_null())
    }

    /// A field; `None` where it is missing, `null`, or not `what`.
    pub(super) fn get<T>(
        &self,
        key: &str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.map.get(key).filter(|v| !v.is_null())?;
        let found = read(value);
        if found.is_none() {
            self.faults.add(BundleError::Field {
                field: self.name(key),
                expected: what.into(),
            });
        }
        found
    }

    /// A field that must be there.
    pub(super) fn require<T>(
        &self,
        key: &str,
        what: &str,
        read: impl Fn(&'a Value) -> Option<T>,
    ) -> Option<T> {
        if !self.has(key) {
            self.faults.add(BundleError::MissingField(self.name(key)));
        }
        self.get(key, what, read)
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        self.require(key, "text", Value::as_str).map(str::to_owned)
    }

    pub(super) fn size(&self, key: &str) -> Option<usize> {
        self.get(key, SIZE, size)
    }

    pub(super) fn require_size(&self, key: &str) -> Option<usize> {
        self.require(key, SIZE, size)
    }

    pub(super) fn number(&self, key: &str) -> Option<f64> {
        self.get(key, "a number", Value::as_f64)
    }

    pub(super) fn flag(&self, key: &str) -> Option<bool> {
        self.get(key, "true or false", Value::as_bool)
    }

    /// An object that must be there.
    pub(super) fn object(&self, key: &str) -> Option<Self> {
        let map = self.require(key, "an object", Value::as_object)?;
        Some(self.inner(key, map))
    }

    /// An object that may be there.
    pub(super) fn optional_object(&self, key: &str) -> Option<Self> {
        let map = self.get(key, "an object", Value::as_object)?;
        Some(self.inner(key, map))
    }

    fn inner(&self, key: &str, map: &'a Map<String, Value>) -> Self {
        Self {
            map,
            path: self.name(key),
            faults: self.faults,
        }
    }
}

const SIZE: &str = "a positive integer";

fn size(value: &Value) -> Option<usize> {
    usize::try_from(value.as_u64()?).ok().filter(|&n| n > 0)
}

/// String pairs of an object; `None` where a value is not text.
pub(super) fn texts(value: &Value) -> Option<Vec<(String, String)>> {
    let pair = |(k, v): (&String, &Value)| Some((k.clone(), v.as_str()?.to_owned()));
    value.as_object()?.iter().map(pair).collect()
}

/// A list of positive integers.
pub(super) fn sizes(value: &Value) -> Option<Vec<usize>> {
    value.as_array()?.iter().map(size).collect()
}
