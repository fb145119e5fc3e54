//! The wire form of a specification: the messages and fields that a program needs, by the numbers of coremltools'
//! `mlmodel/format/*.proto`. Fields that are not listed are passed over.

use std::collections::BTreeMap;

use prost::bytes::Bytes;
use prost::{Message, Oneof};

#[derive(Clone, PartialEq, Message)]
pub(super) struct Model {
    #[prost(int32, tag = "1")]
    pub(super) specification_version: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) description: Option<ModelDescription>,
    #[prost(message, optional, tag = "502")]
    pub(super) program: Option<Program>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ModelDescription {
    #[prost(message, repeated, tag = "1")]
    pub(super) input: Vec<Feature>,
    #[prost(message, repeated, tag = "10")]
    pub(super) output: Vec<Feature>,
    #[prost(message, repeated, tag = "13")]
    pub(super) state: Vec<Feature>,
    #[prost(message, repeated, tag = "20")]
    pub(super) functions: Vec<FunctionDescription>,
    #[prost(string, tag = "21")]
    pub(super) default_function: String,
    #[prost(message, optional, tag = "100")]
    pub(super) metadata: Option<Metadata>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FunctionDescription {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, repeated, tag = "2")]
    pub(super) input: Vec<Feature>,
    #[prost(message, repeated, tag = "3")]
    pub(super) output: Vec<Feature>,
    #[prost(message, repeated, tag = "6")]
    pub(super) state: Vec<Feature>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Metadata {
    #[prost(string, tag = "1")]
    pub(super) short_description: String,
    #[prost(string, tag = "2")]
    pub(super) version: String,
    #[prost(string, tag = "3")]
    pub(super) author: String,
    #[prost(string, tag = "4")]
    pub(super) license: String,
    #[prost(btree_map = "string, string", tag = "100")]
    pub(super) user_defined: BTreeMap<String, String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Feature {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "3")]
    pub(super) ty: Option<FeatureType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FeatureType {
    #[prost(message, optional, tag = "5")]
    pub(super) array: Option<ArrayType>,
    #[prost(message, optional, tag = "8")]
    pub(super) state: Option<StateFeature>,
    #[prost(bool, tag = "1000")]
    pub(super) optional: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StateFeature {
    #[prost(message, optional, tag = "1")]
    pub(super) array: Option<ArrayType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ArrayType {
    #[prost(int64, repeated, tag = "1")]
    pub(super) shape: Vec<i64>,
    #[prost(int32, tag = "2")]
    pub(super) data_type: i32,
    #[prost(message, optional, tag = "21")]
    pub(super) enumerated: Option<EnumeratedShapes>,
    #[prost(message, optional, tag = "31")]
    pub(super) range: Option<ShapeRange>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct EnumeratedShapes {
    #[prost(message, repeated, tag = "1")]
    pub(super) shapes: Vec<FixedShape>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct FixedShape {
    #[prost(int64, repeated, tag = "1")]
    pub(super) shape: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ShapeRange {
    #[prost(message, repeated, tag = "1")]
    pub(super) sizes: Vec<SizeRange>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct SizeRange {
    #[prost(uint64, tag = "1")]
    pub(super) lower: u64,
    /// -1 for no bound.
    #[prost(int64, tag = "2")]
    pub(super) upper: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Program {
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) functions: BTreeMap<String, Function>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Function {
    #[prost(message, repeated, tag = "1")]
    pub(super) inputs: Vec<NamedType>,
    #[prost(string, tag = "2")]
    pub(super) opset: String,
    #[prost(btree_map = "string, message", tag = "3")]
    pub(super) blocks: BTreeMap<String, Block>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Block {
    #[prost(message, repeated, tag = "1")]
    pub(super) inputs: Vec<NamedType>,
    #[prost(string, repeated, tag = "2")]
    pub(super) outputs: Vec<String>,
    #[prost(message, repeated, tag = "3")]
    pub(super) operations: Vec<Operation>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Operation {
    #[prost(string, tag = "1")]
    pub(super) kind: String,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(super) inputs: BTreeMap<String, Argument>,
    #[prost(message, repeated, tag = "3")]
    pub(super) outputs: Vec<NamedType>,
    #[prost(message, repeated, tag = "4")]
    pub(super) blocks: Vec<Block>,
    #[prost(btree_map = "string, message", tag = "5")]
    pub(super) attributes: BTreeMap<String, Value>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Argument {
    #[prost(message, repeated, tag = "1")]
    pub(super) bindings: Vec<Binding>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Binding {
    #[prost(oneof = "Bound", tags = "1, 2")]
    pub(super) bound: Option<Bound>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Bound {
    #[prost(string, tag = "1")]
    Name(String),
    #[prost(message, tag = "2")]
    Value(Box<Value>),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct NamedType {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(message, optional, tag = "2")]
    pub(super) ty: Option<ValueType>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct ValueType {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorType>,
    #[prost(message, optional, boxed, tag = "5")]
    pub(super) state: Option<Box<StateType>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct StateType {
    #[prost(message, optional, boxed, tag = "1")]
    pub(super) wrapped: Option<Box<ValueType>>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorType {
    #[prost(int32, tag = "1")]
    pub(super) data_type: i32,
    #[prost(int64, tag = "2")]
    pub(super) rank: i64,
    #[prost(message, repeated, tag = "3")]
    pub(super) dimensions: Vec<Dimension>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Dimension {
    #[prost(message, optional, tag = "1")]
    pub(super) constant: Option<ConstantDimension>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct ConstantDimension {
    #[prost(uint64, tag = "1")]
    pub(super) size: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Value {
    #[prost(message, optional, tag = "2")]
    pub(super) ty: Option<ValueType>,
    #[prost(message, optional, tag = "3")]
    pub(super) immediate: Option<Immediate>,
    #[prost(message, optional, tag = "5")]
    pub(super) blob: Option<BlobFile>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct BlobFile {
    #[prost(string, tag = "1")]
    pub(super) file: String,
    #[prost(uint64, tag = "2")]
    pub(super) offset: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Immediate {
    #[prost(message, optional, tag = "1")]
    pub(super) tensor: Option<TensorValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorValue {
    #[prost(oneof = "Elements", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub(super) elements: Option<Elements>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Elements {
    #[prost(message, tag = "1")]
    Floats(Floats),
    #[prost(message, tag = "2")]
    Ints(Ints),
    #[prost(message, tag = "3")]
    Bools(Bools),
    #[prost(message, tag = "4")]
    Strings(Strings),
    #[prost(message, tag = "5")]
    LongInts(LongInts),
    #[prost(message, tag = "6")]
    Doubles(Doubles),
    #[prost(message, tag = "7")]
    Bytes(RawBytes),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Floats {
    #[prost(float, repeated, tag = "1")]
    pub(super) values: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Doubles {
    #[prost(double, repeated, tag = "1")]
    pub(super) values: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Ints {
    #[prost(int32, repeated, tag = "1")]
    pub(super) values: Vec<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct LongInts {
    #[prost(int64, repeated, tag = "1")]
    pub(super) values: Vec<i64>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Bools {
    #[prost(bool, repeated, tag = "1")]
    pub(super) values: Vec<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Strings {
    #[prost(string, repeated, tag = "1")]
    pub(super) values: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct RawBytes {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) values: Bytes,
}
