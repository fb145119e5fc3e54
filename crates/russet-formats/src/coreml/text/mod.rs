//! `model.mil` of a compiled package: a program as text.
//!
//! `program(VERSION) [ATTRIBUTES] { func NAME<OPSET>(TYPE INPUT, …) [ATTRIBUTES] { STATEMENTS } -> (OUTPUTS); … }`, where a statement is
//! `TYPE NAME, … = KIND(ARGUMENT = VALUE, …)[name = string("…"), …];`. Attributes of programs and functions are passed over.

mod lexer;
#[cfg(test)]
pub(super) mod print;
mod values;

use std::sync::Arc;

use self::lexer::{Lexer, Token, unexpected};
use super::error::{Outcome, Place, Problem, Result};
use super::program::{Argument, Block, Function, Named, Operation, Program, ValueType};

/// The name of the file.
pub const FILE: &str = "model.mil";

/// Reads a program.
///
/// # Errors
/// Where the text is no program; the error has the byte.
pub(super) fn parse(text: &str) -> Result<Program> {
    let mut lexer = Lexer::new(text);
    program(&mut lexer).map_err(|problem| {
        let place = Place::File {
            name: FILE.into(),
            offset: lexer.offset() as u64,
        };
        problem.at(place)
    })
}

fn program(lexer: &mut Lexer<'_>) -> Outcome<Program> {
    keyword(lexer, "program")?;
    lexer.mark('(')?;
    lexer.skip()?;
    attributes(lexer)?;
    lexer.mark('{')?;
    let mut functions = Vec::new();
    while !lexer.take('}')? {
        functions.push(function(lexer)?);
    }
    if let Some(token) = lexer.next()? {
        return Err(unexpected(token, "the end"));
    }
    functions.sort_by(|a: &Function, b: &Function| a.name.cmp(&b.name));
    Ok(Program { functions })
}

fn keyword(lexer: &mut Lexer<'_>, word: &'static str) -> Outcome<()> {
    match lexer.word(word)? {
        found if found == word => Ok(()),
        other => Err(unexpected(Token::Word(other), word)),
    }
}

/// Passes over attributes, where there are any.
fn attributes(lexer: &mut Lexer<'_>) -> Outcome<()> {
    if lexer.take('[')? {
        lexer.skip()
    } else {
        Ok(())
    }
}

fn function(lexer: &mut Lexer<'_>) -> Outcome<Function> {
    keyword(lexer, "func")?;
    let name: Arc<str> = lexer.word("the name of a function")?.into();
    lexer.mark('<')?;
    let opset: Arc<str> = lexer.word("an opset")?.into();
    lexer.mark('>')?;
    lexer.mark('(')?;
    let mut inputs = Vec::new();
    while !lexer.take(')')? {
        let ty = values::value_type(lexer)?;
        inputs.push(named(lexer, ty)?);
        lexer.take(',')?;
    }
    attributes(lexer)?;
    lexer.mark('{')?;
    let mut operations = Vec::new();
    while !lexer.take('}')? {
        operations.push(statement(lexer)?);
    }
    let outputs = outputs(lexer)?;
    Ok(Function {
        name,
        opset,
        inputs,
        body: Block {
            inputs: Vec::new(),
            operations,
            outputs,
        },
    })
}

fn outputs(lexer: &mut Lexer<'_>) -> Outcome<Vec<Arc<str>>> {
    match lexer.must("->")? {
        Token::Arrow => {}
        other => return Err(unexpected(other, "->")),
    }
    lexer.mark('(')?;
    let mut outputs = Vec::new();
    while !lexer.take(')')? {
        outputs.push(lexer.word("an output")?.into());
        lexer.take(',')?;
    }
    lexer.mark(';')?;
    Ok(outputs)
}

fn named(lexer: &mut Lexer<'_>, ty: ValueType) -> Outcome<Named> {
    let name = lexer.word("a name")?.into();
    Ok(Named { name, ty })
}

/// One operation. Without results it begins with its kind, which a bracket follows.
fn statement(lexer: &mut Lexer<'_>) -> Outcome<Operation> {
    let mut outputs = Vec::new();
    let mut ahead = lexer.clone();
    ahead.word("a type or an operation")?;
    if ahead.peek()? != Some(Token::Mark('(')) {
        loop {
            let ty = values::value_type(lexer)?;
            outputs.push(named(lexer, ty)?);
            if !lexer.take(',')? {
                break;
            }
        }
        lexer.mark('=')?;
    }
    let kind: Arc<str> = lexer.word("an operation")?.into();
    lexer.mark('(')?;
    let mut inputs = Vec::new();
    while !lexer.take(')')? {
        let name: Arc<str> = lexer.word("the name of an argument")?.into();
        lexer.mark('=')?;
        inputs.push((name, arguments(lexer)?));
        lexer.take(',')?;
    }
    let mut attributes = Vec::new();
    if lexer.take('[')? {
        while !lexer.take(']')? {
            let name = lexer.word("the name of an attribute")?;
            lexer.mark('=')?;
            let value = values::value(lexer)?;
            if name != "name" {
                attributes.push((name.into(), value));
            }
            lexer.take(',')?;
        }
    }
    if lexer.peek()? == Some(Token::Mark('{')) {
        return Err(Problem::Unsupported(format!("blocks in {kind:?}")));
    }
    lexer.mark(';')?;
    inputs.sort_by(|a: &(Arc<str>, _), b| a.0.cmp(&b.0));
    Ok(Operation {
        kind,
        inputs,
        outputs,
        blocks: Vec::new(),
        attributes,
    })
}

/// What an argument is bound to: one thing, or several in brackets.
fn arguments(lexer: &mut Lexer<'_>) -> Outcome<Vec<Argument>> {
    if !lexer.take('(')? {
        return Ok(vec![argument(lexer)?]);
    }
    let mut all = Vec::new();
    while !lexer.take(')')? {
        all.push(argument(lexer)?);
        lexer.take(',')?;
    }
    Ok(all)
}

/// A name, or a value, which begins with a type.
fn argument(lexer: &mut Lexer<'_>) -> Outcome<Argument> {
    let mut ahead = lexer.clone();
    let word = ahead.word("a name or a value")?;
    if matches!(ahead.peek()?, Some(Token::Mark('(' | '<'))) {
        return values::value(lexer).map(Argument::Value);
    }
    lexer.next()?;
    Ok(Argument::Name(word.into()))
}
