//! Which properties each operation has, in the order in which they are stored.
//!
//! Properties are the attributes of an operation's definition. They are stored without names, in the alphabetical order of
//! their names: a required one is a reference to an attribute, an optional one is a reference with a flag.

use super::cursor::Cursor;
use super::error::{Problem, ReadError, Result, Section};
use super::records::{AttrId, Tables};

/// Whether a property must be there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Required,
    Optional,
}
use Need::{Optional, Required};

type Row = (&'static str, &'static [(&'static str, Need)]);

/// Every operation that has properties.
const TABLE: &[Row] = &[
    (
        "dataflow.graph_v1",
        &[
            ("argAttrs", Required),
            ("composite", Optional),
            ("externalize", Required),
            ("functionType", Required),
            ("isPrivate", Required),
            ("name", Required),
            ("noInline", Required),
            ("paramDecls", Required),
            ("resAttrs", Required),
        ],
    ),
    (
        "dataflow.invoke_v1",
        &[
            ("arg_attrs", Required),
            ("callee", Required),
            ("res_attrs", Required),
        ],
    ),
    (
        "dataflow.isolated_group_v1",
        &[
            ("arg_attrs", Required),
            ("delegate_id", Required),
            ("res_attrs", Required),
        ],
    ),
    (
        "dataflow.namespace_v1",
        &[("name", Required), ("paramDecls", Required)],
    ),
    (
        "execution.delegate_v1",
        &[
            ("arg_attrs", Required),
            ("delegate_id", Required),
            ("lifecycle", Required),
            ("res_attrs", Required),
            ("resource", Required),
        ],
    ),
    (
        "execution.delegate_v2",
        &[
            ("arg_attrs", Required),
            ("delegate_attrs", Optional),
            ("delegate_id", Required),
            ("lifecycle", Required),
            ("res_attrs", Required),
            ("resource", Required),
        ],
    ),
    (
        "execution.target_spec_v1",
        &[("compilation", Required), ("spec", Required)],
    ),
    (
        "metal.metal4_kernel_v1",
        &[("kernel_name", Required), ("kernel_source", Required)],
    ),
    ("primitive.constant_v1", &[("value", Required)]),
    ("primitive.gelu_v1", &[("approximate", Required)]),
    (
        "primitive.interpolate_v1",
        &[("interpolation_mode", Required)],
    ),
    (
        "primitive.interpolate_coordinates_v1",
        &[("interpolation_mode", Required)],
    ),
    ("primitive.pad_v1", &[("padding_mode", Required)]),
    ("primitive.scan_v1", &[("combiner", Required)]),
    (
        "primitive.scatter_along_axis_v1",
        &[("scatter_mode", Required)],
    ),
    (
        "udml.call_v1",
        &[
            ("arg_attrs", Required),
            ("callee", Required),
            ("res_attrs", Required),
        ],
    ),
    (
        "udml.func_v1",
        &[
            ("argAttrs", Required),
            ("functionType", Required),
            ("name", Required),
            ("noInline", Required),
            ("paramDecls", Required),
            ("resAttrs", Required),
        ],
    ),
    (
        "udml.placeholder_v1",
        &[
            ("annotations", Required),
            ("keep_placeholder", Optional),
            ("opname", Required),
        ],
    ),
    (
        "serialization.asset",
        &[("name", Optional), ("version", Optional)],
    ),
];

/// The properties of one operation, by name.
pub type Properties = Vec<(&'static str, AttrId)>;

/// Decodes the properties `bytes` of the operation `op`.
pub fn decode(mut c: Cursor<'_>, op: &str, tables: &Tables<'_>) -> Result<Properties> {
    let Some((_, row)) = TABLE.iter().find(|(name, _)| *name == op) else {
        return Err(c
            .error(Problem::Unsupported(format!(
                "{op} has properties that are not known"
            )))
            .in_op(op));
    };
    let mut all = Vec::with_capacity(row.len());
    for (name, need) in *row {
        let value = match need {
            Required => Some(tables.attr(&mut c)),
            Optional => tables.optional_attr(&mut c).transpose(),
        };
        if let Some(value) = value {
            all.push((*name, value.map_err(|e| e.in_op(op))?));
        }
    }
    c.finish("the properties of an operation")
        .map_err(|e| e.in_op(op))?;
    Ok(all)
}

/// The error for a property that should be there.
pub fn missing(op: &str, offset: usize, name: &'static str) -> ReadError {
    let problem = Problem::Kind {
        what: name,
        expected: "a property of this operation",
    };
    ReadError::new(Section::Program, offset, problem).in_op(op)
}
