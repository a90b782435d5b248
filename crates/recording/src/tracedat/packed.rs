//! Packed parts of version 7.

use std::io::Read;

use flate2::read::ZlibDecoder;
use ruzstd::decoding::StreamingDecoder;

use super::head::Packing;

/// Unpacks bytes that become `size` at most; `None` if they are damaged or become more.
pub(super) fn unpacked(packing: Packing, bytes: &[u8], size: u64) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    let mut take = |from: &mut dyn Read| from.take(size + 1).read_to_end(&mut all).ok();
    match packing {
        Packing::None => take(&mut &*bytes)?,
        Packing::Zlib => take(&mut ZlibDecoder::new(bytes))?,
        Packing::Zstd => take(&mut StreamingDecoder::new(bytes).ok()?)?,
    };
    (all.len() as u64 <= size).then_some(all)
}
