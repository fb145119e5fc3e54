//! `.npz`: a ZIP archive with a `.npy` for every tensor (NumPy's `savez`).

use std::io::{Cursor, Read, Write};

use russet_graph::tensor::Tensor;
use zip::write::SimpleFileOptions;
use zip::{ZipArchive, ZipWriter};

use super::{NamedTensors, Problem, npy};

const FORMAT: &str = ".npz";

/// An archive may unpack to this many times its own size (zeros pack a thousand times), or to this many bytes.
const MAX_RATIO: u64 = 64;
const MIN_ROOM: u64 = 1 << 26;

/// The tensors of an archive, in its order.
pub(super) fn read(bytes: &[u8]) -> Result<NamedTensors, Problem> {
    let damaged = |e: &dyn ToString| Problem::damaged(FORMAT, e);
    let mut archive = ZipArchive::new(Cursor::new(bytes)).map_err(|e| damaged(&e))?;
    let mut room = (bytes.len() as u64).saturating_mul(MAX_RATIO).max(MIN_ROOM);
    let mut out = Vec::new();
    for index in 0..archive.len() {
        let entry = archive.by_index(index).map_err(|e| damaged(&e))?;
        let file = entry.name().map_err(|e| damaged(&e))?;
        let name = file.strip_suffix(".npy").unwrap_or(&file).to_owned();
        let mut data = Vec::new();
        entry
            .take(room.saturating_add(1))
            .read_to_end(&mut data)
            .map_err(|e| damaged(&e))?;
        room = room
            .checked_sub(data.len() as u64)
            .ok_or_else(|| Problem::damaged(FORMAT, &"it unpacks to far more than its size"))?;
        let tensor = npy::read(&name, &data)?;
        out.push((name, tensor));
    }
    Ok(out)
}

/// The bytes of an archive with these tensors, stored without compression as NumPy does.
pub(super) fn write(tensors: &[(String, Tensor)]) -> Result<Vec<u8>, Problem> {
    let failed = |e: &dyn ToString| Problem::damaged(FORMAT, e);
    let mut archive = ZipWriter::new(Cursor::new(Vec::new()));
    let stored = SimpleFileOptions::default().compression_method(zip::CompressionMethod::Stored);
    for (name, tensor) in tensors {
        archive
            .start_file(format!("{name}.npy"), stored)
            .map_err(|e| failed(&e))?;
        archive
            .write_all(&npy::write(name, tensor)?)
            .map_err(|e| failed(&e))?;
    }
    Ok(archive.finish().map_err(|e| failed(&e))?.into_inner())
}
