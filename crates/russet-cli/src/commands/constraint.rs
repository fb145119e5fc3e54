//! What an answer must look like, from the command line.

use std::fs;
use std::path::Path;

use russet::Error;
use russet::grammar::{Constraint, JsonOptions};

use crate::args::ConstraintArgs;
use crate::failure::Failure;

/// The constraint that is asked for, if any.
pub(super) fn constraint(args: &ConstraintArgs) -> Result<Option<Constraint>, Failure> {
    let Some(constraint) = body(args)? else {
        return Ok(None);
    };
    let mut options = JsonOptions::default();
    options.strict = args.schema_strict;
    let constraint = constraint.with_options(options);
    Ok(Some(match &args.free_until {
        Some(marker) => Constraint::structural(marker, constraint),
        None => constraint,
    }))
}

fn body(args: &ConstraintArgs) -> Result<Option<Constraint>, Failure> {
    let grammar = |e| Failure::from(Error::from(e));
    if let Some(schema) = &args.json_schema {
        let text =
            if schema.trim_start().starts_with(['{', 't', 'f']) && fs::metadata(schema).is_err() {
                schema.clone()
            } else {
                read(schema.as_ref())?
            };
        return Constraint::json_schema_text(&text)
            .map(Some)
            .map_err(grammar);
    }
    if args.json {
        return Ok(Some(Constraint::json_object()));
    }
    if let Some(regex) = &args.regex {
        return Ok(Some(Constraint::regex(regex)));
    }
    if let Some(file) = &args.grammar {
        return Constraint::grammar(&read(file)?).map(Some).map_err(grammar);
    }
    Ok((!args.choice.is_empty()).then(|| Constraint::choice(&args.choice)))
}

fn read(path: &Path) -> Result<String, Failure> {
    fs::read_to_string(path).map_err(|source| Failure::Read {
        path: path.to_owned(),
        source,
    })
}
