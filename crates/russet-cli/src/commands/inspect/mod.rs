//! `russet inspect PATH`: what a bundle, an asset, a Core ML package, a GGUF file or a checkpoint holds.
//!
//! [`facts`] gathers, [`statistics`] counts an asset's operations and constants as the Core AI runtime counts them, [`report`]
//! prints for people. `--json` prints the facts themselves, `--text` the graphs, `--plan` the steps of a function ([`plan`]),
//! `--kernels` what they run on ([`kernels`]).

mod facts;
mod fold;
mod kernels;
pub(crate) mod plan;
mod report;
mod statistics;

use std::io::{self, Write};
use std::path::Path;

use russet::ModelSource;
use russet_formats::checkpoint;
use russet_graph::graph::Module;

use super::assets::Assets;
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
    for module in modules(&path, args, &mut facts)? {
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

/// The programs of a GGUF file, a checkpoint, an asset or package, or those of a bundle or folder; what is known of each goes to
/// `facts`.
fn modules(
    path: &Path,
    args: &InspectArgs,
    facts: &mut Vec<Facts>,
) -> Result<Vec<Module>, Failure> {
    if let Some(module) = built(path, facts)? {
        return Ok(vec![module]);
    }
    let assets = Assets::all(path)?;
    let folders = assets.folders.iter();
    folders.map(|f| asset(&assets, f, args, facts)).collect()
}

fn asset(
    assets: &Assets,
    folder: &str,
    args: &InspectArgs,
    facts: &mut Vec<Facts>,
) -> Result<Module, Failure> {
    let path = assets.path(folder);
    if russet::is_package(&*assets.files, folder) {
        let (model, weights) = russet::read_coreml_in(&*assets.files, folder)?;
        let module = russet::open_module_in(&*assets.files, folder)?;
        facts.push(Facts::of_coreml(&path, (&model, &weights), &module));
        return Ok(module);
    }
    let broken = |source| Failure::Asset {
        path: path.clone(),
        source,
    };
    let asset = russet::read_asset_in(&*assets.files, folder)?;
    if args.verify_hash {
        asset.verify_hash().map_err(broken)?;
    }
    let module = asset.module().map_err(broken)?;
    facts.push(Facts::of_asset(&path, &asset, &module, args.verify_hash));
    Ok(module)
}

/// The program of a file or folder that has weights only.
fn built(path: &Path, facts: &mut Vec<Facts>) -> Result<Option<Module>, Failure> {
    match ModelSource::of(path)? {
        ModelSource::Gguf => gguf(path, facts).map(Some),
        ModelSource::Checkpoint => folder(path, facts).map(Some),
        _ => Ok(None),
    }
}

fn gguf(path: &Path, facts: &mut Vec<Facts>) -> Result<Module, Failure> {
    let file = russet::read_gguf(path)?;
    let model = checkpoint::from_gguf(&file, checkpoint::Options::default()).map_err(|source| {
        Failure::Checkpoint {
            path: path.into(),
            source,
        }
    })?;
    facts.push(Facts::of_gguf(path, &file, &model));
    Ok(model.module)
}

fn folder(path: &Path, facts: &mut Vec<Facts>) -> Result<Module, Failure> {
    let files = russet::files(path)?;
    let folder = russet::read_checkpoint_in(&*files)?;
    let options = checkpoint::Options::default();
    let model = russet::build_checkpoint_in(&*files, &folder, options)?;
    facts.push(Facts::of_checkpoint(path, &folder, &model));
    Ok(model.module)
}
