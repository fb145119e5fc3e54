//! Types and values of `model.mil`.

use std::sync::Arc;

use russet_graph::tensor::Tensor;
use russet_graph::types::{Class, DType};

use super::super::error::{Outcome, Problem};
use super::super::program::{Data, Element, TensorType, Value, ValueType};
use super::lexer::{Lexer, Token, unexpected};

/// Element kinds by their names.
const KINDS: &[(&str, DType)] = &[
    ("bool", DType::Bool),
    ("fp16", DType::F16),
    ("fp32", DType::F32),
    ("fp64", DType::F64),
    ("bf16", DType::BF16),
    ("fp8e4m3fn", DType::F8E4M3),
    ("fp8e5m2", DType::F8E5M2),
    ("int4", DType::I4),
    ("int8", DType::I8),
    ("int16", DType::I16),
    ("int32", DType::I32),
    ("int64", DType::I64),
    ("uint1", DType::U1),
    ("uint2", DType::U2),
    ("uint3", DType::U3),
    ("uint4", DType::U4),
    ("uint6", DType::U6),
    ("uint8", DType::U8),
    ("uint16", DType::U16),
    ("uint32", DType::U32),
    ("uint64", DType::U64),
];

/// The name of a kind, for texts that are written.
#[cfg(test)]
pub(super) fn kind_name(dtype: DType) -> &'static str {
    KINDS
        .iter()
        .find(|(_, d)| *d == dtype)
        .map_or("", |(n, _)| n)
}

fn element(name: &str) -> Outcome<Element> {
    if name == "string" {
        return Ok(Element::Text);
    }
    let kind = KINDS.iter().find(|(n, _)| *n == name);
    let kind = kind.map(|(_, dtype)| Element::Number(*dtype));
    kind.ok_or_else(|| Problem::Value(format!("{name:?} is no element kind that is known")))
}

/// A type: `tensor<KIND, [EXTENTS]>`, `state<…>`, a kind alone for one without axes, or one of a list, tuple or dictionary.
pub(super) fn value_type(lexer: &mut Lexer<'_>) -> Outcome<ValueType> {
    let name = lexer.word("a type")?;
    match name {
        "tensor" => tensor_type(lexer).map(ValueType::Tensor),
        "state" => {
            lexer.mark('<')?;
            let inner = lexer.word("tensor")?;
            if inner != "tensor" {
                return Err(unexpected(Token::Word(inner), "tensor"));
            }
            let ty = tensor_type(lexer)?;
            lexer.mark('>')?;
            Ok(ValueType::State(ty))
        }
        "list" | "tuple" | "dict" => {
            angles(lexer)?;
            Ok(ValueType::Other)
        }
        name => Ok(ValueType::Tensor(TensorType {
            element: element(name)?,
            shape: Vec::new(),
        })),
    }
}

/// Passes over `<…>`.
fn angles(lexer: &mut Lexer<'_>) -> Outcome<()> {
    lexer.mark('<')?;
    let mut depth = 1usize;
    while depth > 0 {
        match lexer.must("'>'")? {
            Token::Mark('<') => depth += 1,
            Token::Mark('>') => depth -= 1,
            _ => {}
        }
    }
    Ok(())
}

/// What follows the word `tensor`.
fn tensor_type(lexer: &mut Lexer<'_>) -> Outcome<TensorType> {
    lexer.mark('<')?;
    let element = element(lexer.word("an element kind")?)?;
    lexer.mark(',')?;
    lexer.mark('[')?;
    let mut shape = Vec::new();
    while !lexer.take(']')? {
        shape.push(match lexer.must("an extent")? {
            Token::Mark('?') => None,
            Token::Number(n) => Some(
                n.parse()
                    .map_err(|_| unexpected(Token::Number(n), "an extent"))?,
            ),
            other => return Err(unexpected(other, "an extent")),
        });
        lexer.take(',')?;
    }
    lexer.mark('>')?;
    Ok(TensorType { element, shape })
}

/// A value: `TYPE(ELEMENTS)`, where elements are one, a nested list, or a place in a weight file.
pub(super) fn value(lexer: &mut Lexer<'_>) -> Outcome<Value> {
    let ValueType::Tensor(ty) = value_type(lexer)? else {
        return Err(Problem::Unsupported("a value that is no tensor".into()));
    };
    lexer.mark('(')?;
    if lexer.peek()? == Some(Token::Word("BLOBFILE")) {
        lexer.next()?;
        let data = blob(lexer)?;
        lexer.mark(')')?;
        return Ok(Value { ty, data });
    }
    let count = ty
        .elements()
        .ok_or_else(|| Problem::Value(format!("a value of open shape, {ty}")))?;
    let elements = elements(lexer, count)?;
    if elements.len() != count {
        let found = elements.len();
        return Err(Problem::Value(format!(
            "{found} elements of a value of type {ty}"
        )));
    }
    let data = match ty.element {
        Element::Text => Data::Texts(elements.into_iter().map(text).collect::<Outcome<_>>()?),
        Element::Number(dtype) => packed(dtype, &elements)?,
    };
    Ok(Value { ty, data })
}

/// `(path = string("…"), offset = uint64(…))`.
fn blob(lexer: &mut Lexer<'_>) -> Outcome<Data> {
    lexer.mark('(')?;
    let (mut file, mut offset) = (None, None);
    while !lexer.take(')')? {
        let key = lexer.word("path or offset")?;
        lexer.mark('=')?;
        let value = value(lexer)?;
        match (key, value.data) {
            ("path", Data::Texts(list)) => file = list.into_iter().next(),
            ("offset", Data::Bytes(bytes)) => {
                offset = bytes.first_chunk().map(|b| u64::from_le_bytes(*b));
            }
            (key, _) => return Err(unexpected(Token::Word(key), "path or offset")),
        }
        lexer.take(',')?;
    }
    match (file, offset) {
        (Some(file), Some(offset)) => Ok(Data::Blob { file, offset }),
        _ => Err(Problem::Missing("the path or offset of a BLOBFILE".into())),
    }
}

/// The elements of a value up to its closing bracket, lists in lists one behind the other; not many more than `count`.
fn elements<'a>(lexer: &mut Lexer<'a>, count: usize) -> Outcome<Vec<Token<'a>>> {
    let mut found = Vec::new();
    let mut depth = 0usize;
    loop {
        match lexer.must("an element")? {
            Token::Mark('[') => depth += 1,
            Token::Mark(']') if depth > 0 => depth -= 1,
            Token::Mark(')') if depth == 0 => return Ok(found),
            Token::Mark(',') => {}
            token @ (Token::Number(_) | Token::Text(_) | Token::Word(_))
                if found.len() <= count =>
            {
                found.push(token);
            }
            other => return Err(unexpected(other, "an element")),
        }
    }
}

fn text(token: Token<'_>) -> Outcome<Arc<str>> {
    let Token::Text(text) = token else {
        return Err(unexpected(token, "a text"));
    };
    if !text.contains('\\') {
        return Ok(text.into());
    }
    let mut plain = String::with_capacity(text.len());
    let mut escaped = false;
    for c in text.chars() {
        match (escaped, c) {
            (false, '\\') => {
                escaped = true;
                continue;
            }
            (true, 'n') => plain.push('\n'),
            (true, 't') => plain.push('\t'),
            (_, c) => plain.push(c),
        }
        escaped = false;
    }
    Ok(plain.into())
}

fn packed(dtype: DType, elements: &[Token<'_>]) -> Outcome<Data> {
    let shape = [elements.len()];
    let tensor = match dtype.class() {
        Class::Float => {
            let numbers = elements
                .iter()
                .map(|t| float(*t))
                .collect::<Outcome<Vec<f64>>>()?;
            Tensor::from_floats(dtype, &shape, &numbers)
        }
        _ => {
            let numbers = elements
                .iter()
                .map(|t| int(dtype, *t))
                .collect::<Outcome<Vec<i64>>>()?;
            Tensor::from_ints(dtype, &shape, &numbers)
        }
    };
    let tensor = tensor.map_err(|e| Problem::Value(e.to_string()))?;
    Ok(Data::Bytes(tensor.bytes().clone()))
}

fn int(dtype: DType, token: Token<'_>) -> Outcome<i64> {
    let wrong = || unexpected(token, &format!("an element of {dtype}"));
    match token {
        Token::Word("true") if dtype == DType::Bool => Ok(1),
        Token::Word("false") if dtype == DType::Bool => Ok(0),
        Token::Number(n) if dtype == DType::U64 => {
            n.parse::<u64>().map(u64::cast_signed).map_err(|_| wrong())
        }
        Token::Number(n) => {
            let value = n.parse().map_err(|_| wrong())?;
            if dtype.holds(value) {
                Ok(value)
            } else {
                Err(wrong())
            }
        }
        _ => Err(wrong()),
    }
}

fn float(token: Token<'_>) -> Outcome<f64> {
    let wrong = || unexpected(token, "a number");
    let (Token::Number(n) | Token::Word(n)) = token else {
        return Err(wrong());
    };
    let (negative, digits) = match n.strip_prefix('-') {
        Some(rest) => (true, rest),
        None => (false, n.strip_prefix('+').unwrap_or(n)),
    };
    let size = match digits.strip_prefix("0x") {
        Some(hex) => hexadecimal(hex),
        None => digits.parse().ok(),
    };
    let size = size.ok_or_else(wrong)?;
    Ok(if negative { -size } else { size })
}

/// `h.hhhp±d` without `0x`: a fraction in base 16 times a power of 2 (C99).
fn hexadecimal(text: &str) -> Option<f64> {
    let (digits, exponent) = text.split_once(['p', 'P']).unwrap_or((text, "0"));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    let mut exponent: i32 = exponent.parse().ok()?;
    // Sixteen digits are more than a number of 64 bits keeps.
    if whole.is_empty() || whole.len() + fraction.len() > 16 {
        return None;
    }
    let mantissa = u64::from_str_radix(&format!("{whole}{fraction}"), 16).ok()?;
    exponent = exponent.checked_sub(4 * i32::try_from(fraction.len()).ok()?)?;
    Some(mantissa as f64 * 2f64.powi(exponent))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_c() {
        for (text, want) in [
            ("0x1p-1", 0.5),
            ("-0x1.8p+3", -12.0),
            ("0x1.10p-20", 1.0625 * 2f64.powi(-20)),
            ("0x0p+0", 0.0),
            ("1.5e-3", 0.0015),
            ("-inf", f64::NEG_INFINITY),
            ("infinity", f64::INFINITY),
        ] {
            assert_eq!(float(Token::Number(text)).unwrap(), want, "{text}");
        }
        for text in ["0x", "0xp1", "0x1p", "x", "0x11111111111111111p0"] {
            assert!(float(Token::Number(text)).is_err(), "{text}");
        }
    }

    #[test]
    fn types_and_values_are_read() {
        let read = |text| value(&mut Lexer::new(text));
        let vector = read("tensor<int32, [3]>([1, -1, 84])").unwrap();
        assert_eq!(vector.ty.to_string(), "tensor<i32, [3]>");
        let Data::Bytes(bytes) = vector.data else {
            panic!("bytes")
        };
        assert_eq!(bytes[..], [1, 0, 0, 0, 255, 255, 255, 255, 84, 0, 0, 0]);
        let nested = read("tensor<bool, [2, 2]>([[true, false], [false, true]])").unwrap();
        let Data::Bytes(bytes) = nested.data else {
            panic!("bytes")
        };
        assert_eq!(bytes[..], [1, 0, 0, 1]);
        let text = read(r#"tensor<string, []>("a\"b")"#).unwrap();
        let Data::Texts(texts) = text.data else {
            panic!("texts")
        };
        assert_eq!(&*texts[0], "a\"b");
        let blob = read(
            r#"tensor<uint4, [8]>(BLOBFILE(path = string("@model_path/w"), offset = uint64(64)))"#,
        );
        assert!(matches!(blob.unwrap().data, Data::Blob { offset: 64, .. }));
        for wrong in [
            "tensor<int32, [2]>([1])",
            "tensor<int32, [1]>([1, 2])",
            "uint8(256)",
            "bool(1x)",
            "tensor<int99, []>(1)",
            "tensor<int32, [?]>([1])",
            "string(1)",
            "int32(1",
        ] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
