//! Packed parts of trace.dat and of Perfetto's traces.

use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// How a part is packed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Packing {
    #[default]
    None,
    Zlib,
    Zstd,
}

/// Unpacks bytes that become `size` at most; `None` if they are damaged or become more.
pub(crate) fn unpacked(packing: Packing, bytes: &[u8], size: usize) -> Option<Vec<u8>> {
    let mut all = Vec::new();
    match packing {
        Packing::None => all.extend_from_slice(bytes),
        Packing::Zlib => {
            let from = ZlibDecoder::new(bytes);
            from.take(size as u64 + 1).read_to_end(&mut all).ok()?;
        }
        Packing::Zstd => {
            // It fails where the memory that it is given ends.
            all = vec![0; size];
            let used = zstd_safe::decompress(&mut all[..], bytes).ok()?;
            all.truncate(used);
            all.shrink_to_fit();
        }
    }
    (all.len() <= size).then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A frame without a size, with one block (RFC 8878).
    fn frame(kind: u32, size: usize, block: &[u8]) -> Vec<u8> {
        let is_last = 1;
        let head = (size as u32) << 3 | kind << 1 | is_last;
        let mut all = vec![0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58];
        all.extend(&head.to_le_bytes()[..3]);
        all.extend(block);
        all
    }

    #[test]
    fn no_part_becomes_larger_than_it_may() {
        let repeated = frame(1, 100_000, &[7]);
        let unpacked = |size| unpacked(Packing::Zstd, &repeated, size);
        assert_eq!(unpacked(100_000), Some(vec![7; 100_000]));
        assert_eq!(unpacked(99_999), None);
        assert_eq!(unpacked(0), None);
    }

    /// No block may become more than 128 KiB. This one has 31 sequences, each of one literal and of a match of 131,074
    /// bytes with the offset 1.
    #[test]
    fn a_block_does_not_become_more_than_the_format_allows() {
        let literals = [31 << 3 | 1, 7];
        let (of_literals, of_offset, of_match) = (1, 2, 52);
        let sequences = [31, 0x54, of_literals, of_offset, of_match];
        // Read from the end on: a mark, and for each sequence the rest of its offset and of its match's length.
        let mut bits = vec![true];
        for _ in 0..31 {
            bits.extend([false; 2]);
            bits.extend([true; 16]);
        }
        bits.reverse();
        let bytes = bits.chunks(8).map(|bits| {
            let bits = bits.iter().rev();
            bits.fold(0u8, |byte, bit| byte << 1 | u8::from(*bit))
        });
        let mut block = [&literals[..], &sequences].concat();
        block.extend(bytes);
        let bomb = frame(2, block.len(), &block);
        assert!(bomb.len() < 100);
        assert_eq!(unpacked(Packing::Zstd, &bomb, 8 << 20), None);
    }
}
