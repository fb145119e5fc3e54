//! `opaque_kernel`: code for other hardware, of which only the name and the types are known.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::Tensor;
use crate::types::Type;

/// A kernel that an asset carries or refers to: a Metal program, the payload of a delegate, an operation of a dialect that its
/// exporter did not know. It can be read, printed and looked at; a plan that needs its results cannot be built.
#[derive(Clone, Debug, PartialEq)]
pub struct OpaqueKernel {
    /// What it is, by the name of the file's operation.
    pub kind: Arc<str>,
    /// Its name.
    pub name: Arc<str>,
    /// Types of its results.
    pub results: Vec<Type>,
    /// What else the file says of it.
    pub details: Attributes,
}

impl OpaqueKernel {
    /// Why it does not run.
    pub fn refusal(&self) -> OpError {
        OpError::NotExecutable(format!(
            "kernel {:?} is a {}: its code is for other hardware",
            self.name, self.kind
        ))
    }
}

impl OpDef for OpaqueKernel {
    const NAME: &'static str = "opaque_kernel";
    const SUMMARY: &'static str = "code for other hardware, known by name and types";
    const ARITY: std::ops::RangeInclusive<usize> = 0..=usize::MAX;

    fn attributes(&self) -> Attributes {
        let results = self.results.iter().cloned().map(Attr::Type).collect();
        let mut all = vec![
            ("kind".into(), Attr::Str(self.kind.clone())),
            ("name".into(), Attr::Str(self.name.clone())),
            ("to".into(), Attr::List(results)),
        ];
        all.extend(self.details.iter().cloned());
        all
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let text = |name: &'static str| {
            let found = find(attributes, name).and_then(Attr::as_str).map(Arc::from);
            let expected = "text";
            found.ok_or(OpError::Attribute { name, expected })
        };
        let ty = |a: &Attr| match a {
            Attr::Type(t) => Some(t.clone()),
            _ => None,
        };
        let results = match find(attributes, "to") {
            Some(Attr::List(items)) => items.iter().map(ty).collect(),
            _ => None,
        };
        let known = ["kind", "name", "to"];
        let details = attributes.iter().filter(|(n, _)| !known.contains(&&**n));
        Ok(Self {
            kind: text("kind")?,
            name: text("name")?,
            results: results.ok_or(OpError::Attribute {
                name: "to",
                expected: "a list of types",
            })?,
            details: details.cloned().collect(),
        })
    }

    fn infer(&self, _: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        let fact = |ty: &Type| Fact {
            ty: ty.clone(),
            known: None,
        };
        Ok(self.results.iter().map(fact).collect())
    }

    fn reference(&self, _: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        Err(self.refusal())
    }

    fn cases() -> Vec<Case<Self>> {
        Vec::new()
    }
}
