//! `invoke`: a call of another graph of the module.

use std::sync::Arc;

use super::{Case, Fact, OpDef, Operands};
use crate::attr::{Attr, Attributes, find};
use crate::error::OpError;
use crate::tensor::Tensor;

/// Calls a graph by name. The module knows its types: inference and execution live with the module.
#[derive(Clone, Debug, PartialEq)]
pub struct Invoke {
    /// The graph that is called.
    pub graph: Arc<str>,
}

impl OpDef for Invoke {
    const NAME: &'static str = "invoke";
    const SUMMARY: &'static str = "a call of another graph";
    const ARITY: std::ops::RangeInclusive<usize> = 0..=usize::MAX;

    fn attributes(&self) -> Attributes {
        vec![("graph".into(), Attr::Graph(self.graph.clone()))]
    }

    fn from_attributes(attributes: &[(Arc<str>, Attr)]) -> Result<Self, OpError> {
        let graph = find(attributes, "graph").and_then(Attr::as_str);
        graph
            .map(|g| Self { graph: g.into() })
            .ok_or(OpError::Attribute {
                name: "graph",
                expected: "a graph's name",
            })
    }

    fn infer(&self, _: Operands<'_>) -> Result<Vec<Fact>, OpError> {
        Err(OpError::Unknown("the called graph outside its module"))
    }

    fn reference(&self, _: &[Tensor]) -> Result<Vec<Tensor>, OpError> {
        Err(OpError::Unknown("the called graph outside its module"))
    }

    fn cases() -> Vec<Case<Self>> {
        Vec::new()
    }
}
