//! `russet inspect PATH`: what a bundle, an asset or a GGUF file holds.
//!
//! [`facts`] gathers, [`statistics`] counts an asset's operations and constants as the Core AI runtime counts them, [`report`]
//! prints for people. `--json` prints the facts themselves, `--text` the graphs, `--plan` the steps of a function ([`plan`]),
//! `--kernels` what they run on ([`kernels`]).

mod facts;
mod fold;
mod kernels;
mod plan;
mod report;
mod statistics;

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use russet::ModelSource;
use russet::bundle::{BundleError, DirectorySource, ModelBundle};
use russet_formats::checkpoint;

use crate::args::InspectArgs;
use crate::failure::Failure;
use crate::locate::locate;
use facts::Facts;

/// Prints what a path holds.
pub(crate) fn inspect(args: &InspectArgs) -> Result<(), Failure> {
    let mut out = io::BufWriter::new(io::stdout().lock());
    if args.kernels {
        return kernels::write(&mut out, args.json)
            .and_then(|()| out.flush())
            .map_err(Failure::write);
    }
    let path = locate(args.path.as_deref().unwrap_or_default())?;
    if args.plan.plan {
        plan::inspect(&mut out, &path, args)?;
        return out.flush().map_err(Failure::write);
    }
    let mut facts = Vec::new();
    for part in parts(&path)? {
        let module = match ModelSource::of(&part)? {
            ModelSource::Gguf => gguf(&part, &mut facts)?,
            _ => asset(&part, args, &mut facts)?,
        };
        if args.text {
            out.write_all(russet_graph::text::print(&module).text.as_bytes())
                .map_err(Failure::write)?;
        }
    }
    if !args.text {
        show(&mut out, &facts, args.json).map_err(Failure::write)?;
    }
    out.flush().map_err(Failure::write)
}

/// One document for one part, a list for a bundle of several.
fn show(out: &mut impl Write, facts: &[Facts], json: bool) -> io::Result<()> {
    if !json {
        return facts.iter().try_for_each(|f| report::write(out, f));
    }
    match facts {
        [one] => serde_json::to_writer_pretty(&mut *out, one)?,
        all => serde_json::to_writer_pretty(&mut *out, all)?,
    }
    writeln!(out)
}

/// The assets and GGUF files to look at: the path itself, or the assets of a bundle.
fn parts(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if ModelSource::of(path)? != ModelSource::Bundle {
        return Ok(vec![path.into()]);
    }
    let broken = |source: BundleError| Failure::Open {
        path: path.into(),
        source: Box::new(source.into()),
    };
    let source = DirectorySource::new(path);
    let bundle = ModelBundle::read(&source).map_err(broken)?;
    let keys = bundle.assets.iter().map(|(key, _)| key.as_str());
    let files = keys.map(|key| bundle.require(&source, key).map(|file| path.join(file)));
    files.collect::<Result<_, _>>().map_err(broken)
}

fn asset(
    path: &Path,
    args: &InspectArgs,
    facts: &mut Vec<Facts>,
) -> Result<russet_graph::graph::Module, Failure> {
    let broken = |source| Failure::Asset {
        path: path.into(),
        source,
    };
    let asset = russet::read_asset(path)?;
    if args.verify_hash {
        asset.verify_hash().map_err(broken)?;
    }
    let module = asset.module().map_err(broken)?;
    facts.push(Facts::of_asset(path, &asset, &module, args.verify_hash));
    Ok(module)
}

fn gguf(path: &Path, facts: &mut Vec<Facts>) -> Result<russet_graph::graph::Module, Failure> {
    let file = russet::read_gguf(path)?;
    let model = checkpoint::from_gguf(&file, checkpoint::Options::default()).map_err(|source| {
        Failure::Checkpoint {
            path: path.into(),
            source,
        }
    })?;
    facts.push(Facts::of_gguf(path, &file, &model.module));
    Ok(model.module)
}
