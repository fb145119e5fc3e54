//! Reading the text form: one recursive-descent parser over bytes, with line and column in every error.

use std::sync::Arc;

use russet_kernels::mem::SharedBytes;
use russet_kernels::quant::BlockFormat;

use super::Text;
use crate::attr::{Attr, Attributes};
use crate::dim::Term;
use crate::graph::{Block, Composite, ConstantData, Graph, Module, Node, Port, Storage, ValueId};
use crate::ops::constant::Constant;
use crate::ops::{Op, OpInfo};
use crate::types::{DType, Dim, TensorType, Type};

/// Where and why a text does not parse.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct ParseError {
    /// Line, from 1.
    pub line: usize,
    /// Column in bytes, from 1.
    pub column: usize,
    /// What was expected or wrong.
    pub message: String,
}

/// Blocks and attributes may be nested this deep.
const MAX_DEPTH: usize = 64;

/// Reads a module back from its text form.
pub fn parse(text: &Text) -> Result<Module, ParseError> {
    let mut p = Parser {
        text: &text.text,
        at: 0,
        blobs: &text.blobs,
        depth: 0,
    };
    p.word("module")?;
    let attributes = if p.peek_after_space_is_dict() {
        p.dict()?
    } else {
        Vec::new()
    };
    p.token("{")?;
    let mut graphs = Vec::new();
    while !p.try_token("}") {
        graphs.push(p.graph()?);
    }
    p.space();
    if p.at < p.text.len() {
        p.fail("the end of the text")
    } else {
        Ok(Module { graphs, attributes })
    }
}

type Parsed<T> = Result<T, ParseError>;

struct Parser<'a> {
    text: &'a str,
    at: usize,
    blobs: &'a [SharedBytes],
    depth: usize,
}

impl<'a> Parser<'a> {
    fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    fn error(&self, message: String) -> ParseError {
        let before = &self.text[..self.at];
        let line = before.matches('\n').count() + 1;
        let column = self.at - before.rfind('\n').map_or(0, |i| i + 1) + 1;
        ParseError {
            line,
            column,
            message,
        }
    }

    fn fail<T>(&self, expected: &str) -> Parsed<T> {
        let found: String = self.rest().chars().take(20).collect();
        Err(self.error(format!("expected {expected}, found {found:?}")))
    }

    fn space(&mut self) {
        self.at += self.rest().len() - self.rest().trim_start().len();
    }

    fn try_token(&mut self, token: &str) -> bool {
        self.space();
        let found = self.rest().starts_with(token);
        if found {
            self.at += token.len();
        }
        found
    }

    fn token(&mut self, token: &str) -> Parsed<()> {
        if self.try_token(token) {
            Ok(())
        } else {
            self.fail(&format!("{token:?}"))
        }
    }

    fn peek(&mut self) -> Option<char> {
        self.space();
        self.rest().chars().next()
    }

    /// Whether a `{` begins a dictionary rather than the body: the body begins with a line break.
    fn peek_after_space_is_dict(&mut self) -> bool {
        self.space();
        self.rest().starts_with('{') && !self.rest().starts_with("{\n")
    }

    fn try_name(&mut self) -> Option<&'a str> {
        self.space();
        let rest = self.rest();
        let end = rest
            .find(|c: char| !(c.is_ascii_alphanumeric() || c == '_' || c == '.'))
            .unwrap_or(rest.len());
        let name = &rest[..end];
        if !super::is_word(name) {
            return None;
        }
        self.at += end;
        Some(name)
    }

    fn try_word(&mut self, word: &str) -> bool {
        let back = self.at;
        if self.try_name() == Some(word) {
            return true;
        }
        self.at = back;
        false
    }

    fn word(&mut self, word: &str) -> Parsed<()> {
        if self.try_word(word) {
            Ok(())
        } else {
            self.fail(&format!("{word:?}"))
        }
    }

    fn name(&mut self, what: &str) -> Parsed<&'a str> {
        match self.try_name() {
            Some(name) => Ok(name),
            None => self.fail(what),
        }
    }

    fn digits(&mut self, accept: impl Fn(char) -> bool) -> &'a str {
        let rest = self.rest();
        let end = rest.find(|c: char| !accept(c)).unwrap_or(rest.len());
        self.at += end;
        &rest[..end]
    }

    fn number<T: std::str::FromStr>(&mut self, what: &str) -> Parsed<T> {
        self.space();
        let back = self.at;
        let negative = self.try_token("-");
        let digits = self.digits(|c| c.is_ascii_digit());
        let text = format!("{}{digits}", if negative { "-" } else { "" });
        text.parse().or_else(|_| {
            self.at = back;
            self.fail(what)
        })
    }

    fn value(&mut self) -> Parsed<ValueId> {
        self.token("%")?;
        Ok(ValueId(self.number("a value number")?))
    }

    fn quoted(&mut self) -> Parsed<Arc<str>> {
        self.token("\"")?;
        let mut out = String::new();
        let mut chars = self.rest().char_indices();
        while let Some((i, c)) = chars.next() {
            match c {
                '"' => {
                    self.at += i + 1;
                    return Ok(out.into());
                }
                '\\' => match chars.next().map(|(_, c)| c) {
                    Some('n') => out.push('\n'),
                    Some('u') => out.push(
                        escape(&mut chars)
                            .ok_or_else(|| self.error("a broken \\u escape".into()))?,
                    ),
                    Some(c) => out.push(c),
                    None => break,
                },
                c => out.push(c),
            }
        }
        self.fail("a closing quote")
    }

    fn list<T>(
        &mut self,
        open: &str,
        close: &str,
        mut each: impl FnMut(&mut Self) -> Parsed<T>,
    ) -> Parsed<Vec<T>> {
        self.token(open)?;
        let mut out = Vec::new();
        if self.try_token(close) {
            return Ok(out);
        }
        loop {
            out.push(each(self)?);
            if self.try_token(close) {
                return Ok(out);
            }
            self.token(",")?;
        }
    }

    fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_DEPTH {
            return Err(self.error(format!("nested deeper than {MAX_DEPTH}")));
        }
        self.depth += 1;
        let out = f(self);
        self.depth -= 1;
        out
    }

    fn dict(&mut self) -> Parsed<Attributes> {
        self.list("{", "}", |p| {
            let name = if p.peek() == Some('"') {
                p.quoted()?
            } else {
                p.name("an attribute name")?.into()
            };
            let value = if p.try_token("=") {
                p.nested(Self::attr)?
            } else {
                Attr::Unit
            };
            Ok((name, value))
        })
    }

    fn attr(&mut self) -> Parsed<Attr> {
        match self.peek() {
            Some('"') => Ok(Attr::Str(self.quoted()?)),
            Some('[') => Ok(Attr::List(self.list("[", "]", |p| p.nested(Self::attr))?)),
            Some('{') => Ok(Attr::Dict(self.dict()?)),
            Some('@') => {
                self.token("@")?;
                Ok(Attr::Graph(self.quoted()?))
            }
            Some('-' | '0'..='9') => self.numeric(),
            _ => self.attr_word(),
        }
    }

    fn attr_word(&mut self) -> Parsed<Attr> {
        match self.name("an attribute")? {
            "unit" => Ok(Attr::Unit),
            "true" => Ok(Attr::Bool(true)),
            "false" => Ok(Attr::Bool(false)),
            "type" => {
                self.token("(")?;
                let ty = self.ty()?;
                self.token(")")?;
                Ok(Attr::Type(ty))
            }
            "float" => {
                self.token("(0x")?;
                let bits = u64::from_str_radix(self.digits(|c| c.is_ascii_hexdigit()), 16);
                self.token(")")?;
                bits.map(|b| Attr::float(f64::from_bits(b)))
                    .or_else(|_| self.fail("the bits of a float"))
            }
            "bytes" => {
                self.token("(0x")?;
                let bytes = self.hex()?;
                self.token(")")?;
                Ok(Attr::Bytes(bytes.into()))
            }
            other => Err(self.error(format!("unknown attribute {other:?}"))),
        }
    }

    fn numeric(&mut self) -> Parsed<Attr> {
        let back = self.at;
        let text = self.digits(|c| c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E'));
        let parsed = match text.parse::<i64>() {
            Ok(v) => Some(Attr::Int(v)),
            Err(_) if text.contains(['.', 'e', 'E']) => text.parse().ok().map(Attr::float),
            Err(_) => None,
        };
        match parsed {
            Some(attr) => Ok(attr),
            None => {
                self.at = back;
                self.fail("a number")
            }
        }
    }

    fn hex(&mut self) -> Parsed<Vec<u8>> {
        let text = self.digits(|c| c.is_ascii_hexdigit());
        if !text.len().is_multiple_of(2) {
            return self.fail("an even number of hexadecimal digits");
        }
        let pair = |c: &[u8]| u8::from_str_radix(std::str::from_utf8(c).unwrap_or(""), 16);
        text.as_bytes()
            .chunks(2)
            .map(pair)
            .collect::<Result<_, _>>()
            .or_else(|_| self.fail("hexadecimal digits"))
    }

    fn ty(&mut self) -> Parsed<Type> {
        match self.name("a type")? {
            "tensor" => Ok(Type::Tensor(self.tensor_body()?)),
            "handle" => {
                self.token("<")?;
                self.word("tensor")?;
                let inner = self.tensor_body()?;
                self.token(">")?;
                Ok(Type::Handle(inner))
            }
            "token" => Ok(Type::Token),
            "opaque" => {
                self.token("<")?;
                let name = self.quoted()?;
                self.token(">")?;
                Ok(Type::Opaque(name))
            }
            other => Err(self.error(format!("unknown type {other:?}"))),
        }
    }

    fn tensor_body(&mut self) -> Parsed<TensorType> {
        self.token("<")?;
        let mut shape = Vec::new();
        let dtype = loop {
            match self.peek() {
                Some('?') => {
                    self.token("?")?;
                    shape.push(Dim::Unknown);
                }
                Some('[') => {
                    self.token("[")?;
                    shape.push(self.nested(Self::dim)?);
                    self.token("]")?;
                }
                Some('0'..='9') => shape.push(Dim::Const(self.number("an extent")?)),
                _ => break self.dtype()?,
            }
            self.token("x")?;
        };
        let encoding = if self.try_token(",") {
            Some(Arc::new(self.nested(Self::attr)?))
        } else {
            None
        };
        self.token(">")?;
        Ok(TensorType {
            dtype,
            shape,
            encoding,
        })
    }

    fn dtype(&mut self) -> Parsed<DType> {
        let name = self.name("an element kind")?;
        DType::parse(name).ok_or_else(|| self.error(format!("unknown element kind {name:?}")))
    }

    /// A sum of `factor*atom` and constants.
    fn dim(&mut self) -> Parsed<Dim> {
        let mut sum = Dim::Const(0);
        let mut sign = if self.try_token("-") { -1 } else { 1 };
        loop {
            sum = sum.add(&self.summand()?.mul(&Dim::Const(sign)));
            sign = match self.peek() {
                Some('+') => 1,
                Some('-') => -1,
                _ => return Ok(sum),
            };
            self.at += 1;
        }
    }

    fn summand(&mut self) -> Parsed<Dim> {
        if self.try_token("?") {
            return Ok(Dim::Unknown);
        }
        if matches!(self.peek(), Some('-' | '0'..='9')) {
            let factor = Dim::Const(self.number("a factor")?);
            return if self.try_token("*") {
                Ok(factor.mul(&self.summand()?))
            } else {
                Ok(factor)
            };
        }
        let name = self.name("a symbol")?;
        let Some((kind, _)) = Term::NAMES.iter().find(|(_, n)| *n == name) else {
            return Ok(Dim::symbol(name));
        };
        if !self.try_token("(") {
            return Ok(Dim::symbol(name));
        }
        let a = self.nested(Self::dim)?;
        self.token(",")?;
        let b = self.nested(Self::dim)?;
        self.token(")")?;
        Ok(Dim::apply(*kind, &a, &b))
    }

    fn port(&mut self) -> Parsed<Port> {
        let name = self.quoted()?;
        self.token(":")?;
        let ty = self.ty()?;
        let attributes = if self.peek() == Some('{') {
            self.dict()?
        } else {
            Vec::new()
        };
        Ok(Port {
            name,
            ty,
            attributes,
        })
    }

    fn graph(&mut self) -> Parsed<Graph> {
        self.word("graph")?;
        let private = self.try_word("private");
        self.token("@")?;
        let mut g = Graph::new(&self.quoted()?);
        g.private = private;
        for (id, port) in self.list("(", ")", |p| Ok((p.value()?, p.port()?)))? {
            self.define(&mut g, id, port.ty.clone())?;
            g.body.args.push(id);
            g.inputs.push(port);
        }
        self.token("->")?;
        g.outputs = self.list("(", ")", Self::port)?;
        if self.try_word("composite") {
            g.composite = Some(self.composite()?);
        }
        if self.try_word("attributes") {
            g.attributes = self.dict()?;
        }
        self.token("{")?;
        let (nodes, results) = self.nodes(&mut g)?;
        (g.body.nodes, g.body.results) = (nodes, results);
        Ok(g)
    }

    fn composite(&mut self) -> Parsed<Composite> {
        let name = self.quoted()?;
        let inputs = self.list("(", ")", Self::quoted)?;
        self.token("->")?;
        let outputs = self.list("(", ")", Self::quoted)?;
        Ok(Composite {
            name,
            inputs,
            outputs,
            attributes: self.dict()?,
        })
    }

    /// Records the type of a value; numbers are handed out once and without large gaps.
    fn define(&self, g: &mut Graph, id: ValueId, ty: Type) -> Parsed<()> {
        let hole = Type::Opaque("undefined".into());
        if id.index() > g.values.len() + 1_000_000 {
            return Err(self.error(format!("%{} is far beyond the values before it", id.0)));
        }
        if id.index() >= g.values.len() {
            g.values.resize(id.index() + 1, hole.clone());
        }
        if g.values[id.index()] != hole {
            return Err(self.error(format!("%{} is defined twice", id.0)));
        }
        g.values[id.index()] = ty;
        Ok(())
    }

    /// Nodes up to and including `return` and the closing brace.
    fn nodes(&mut self, g: &mut Graph) -> Parsed<(Vec<Node>, Vec<ValueId>)> {
        let mut nodes = Vec::new();
        while !self.try_word("return") {
            nodes.push(self.nested(|p| p.node(g))?);
        }
        let mut results = Vec::new();
        while self.peek() == Some('%') {
            results.push(self.value()?);
            self.try_token(",");
        }
        self.token("}")?;
        Ok((nodes, results))
    }

    fn node(&mut self, g: &mut Graph) -> Parsed<Node> {
        let mut outputs = Vec::new();
        while self.peek() == Some('%') {
            outputs.push(self.value()?);
            self.try_token(",");
        }
        if !outputs.is_empty() {
            self.token("=")?;
        }
        let name = self.name("an operation")?;
        let constant = if name == "constant" {
            Some(self.storage()?)
        } else {
            None
        };
        let inputs = if constant.is_none() {
            self.list("(", ")", Self::value)?
        } else {
            Vec::new()
        };
        let attributes = if self.peek_after_space_is_dict() {
            self.dict()?
        } else {
            Vec::new()
        };
        let types = self.types(outputs.len())?;
        let op = self.op(name, constant, &attributes, &types)?;
        for (id, ty) in outputs.iter().zip(types) {
            self.define(g, *id, ty)?;
        }
        let mut blocks = Vec::new();
        while self.try_word("block") {
            blocks.push(self.nested(|p| p.block(g))?);
        }
        let location = if self.try_word("loc") {
            Some(Arc::new(self.nested(Self::attr)?))
        } else {
            None
        };
        Ok(Node {
            op,
            inputs,
            outputs,
            blocks,
            location,
        })
    }

    fn types(&mut self, count: usize) -> Parsed<Vec<Type>> {
        if count == 0 {
            return Ok(Vec::new());
        }
        self.token(":")?;
        (0..count)
            .map(|i| {
                if i > 0 {
                    self.token(",")?;
                }
                self.ty()
            })
            .collect()
    }

    fn op(
        &self,
        name: &str,
        constant: Option<Storage>,
        attributes: &Attributes,
        types: &[Type],
    ) -> Parsed<Op> {
        if let Some(storage) = constant {
            let Some(Type::Tensor(ty)) = types.first() else {
                return self.fail("the tensor type of a constant");
            };
            return Ok(Constant(Arc::new(ConstantData {
                ty: ty.clone(),
                storage,
            }))
            .into());
        }
        let info =
            OpInfo::find(name).ok_or_else(|| self.error(format!("unknown operation {name:?}")))?;
        (info.parse)(attributes).map_err(|e| self.error(format!("{name}: {e}")))
    }

    fn block(&mut self, g: &mut Graph) -> Parsed<Block> {
        let mut args = Vec::new();
        for (id, ty) in self.list("(", ")", |p| {
            let id = p.value()?;
            p.token(":")?;
            Ok((id, p.ty()?))
        })? {
            self.define(g, id, ty)?;
            args.push(id);
        }
        self.token("{")?;
        let (nodes, results) = self.nodes(g)?;
        Ok(Block {
            args,
            nodes,
            results,
        })
    }

    fn storage(&mut self) -> Parsed<Storage> {
        match self.name("constant data")? {
            "splat" => {
                let kind = self.name("constant data")?;
                Ok(Storage::Splat(self.data(kind)?))
            }
            "blocks" => {
                self.token("(")?;
                let name = self.name("a block format")?;
                let format = BlockFormat::parse(name)
                    .ok_or_else(|| self.error(format!("unknown block format {name:?}")))?;
                self.token(")")?;
                let kind = self.name("constant data")?;
                Ok(Storage::Blocks(format, self.data(kind)?))
            }
            kind => Ok(Storage::Dense(self.data(kind)?)),
        }
    }

    fn data(&mut self, kind: &str) -> Parsed<SharedBytes> {
        self.token("(")?;
        let bytes = match kind {
            "hex" => SharedBytes::from_vec(self.hex()?),
            "blob" => {
                let index: usize = self.number("a blob number")?;
                self.blobs
                    .get(index)
                    .cloned()
                    .ok_or_else(|| self.error(format!("there is no blob {index}")))?
            }
            _ => return self.fail("hex or blob"),
        };
        self.token(")")?;
        Ok(bytes)
    }
}

/// The character of `{…}` after `\u`.
fn escape(chars: &mut std::str::CharIndices<'_>) -> Option<char> {
    let digits: String = chars
        .by_ref()
        .map(|(_, c)| c)
        .skip_while(|&c| c == '{')
        .take_while(|&c| c != '}')
        .collect();
    u32::from_str_radix(&digits, 16)
        .ok()
        .and_then(char::from_u32)
}
