//! Where a policy's global variables and its maps' values lie for the cache model.

use crate::dwarf::{Types, Variable};

/// Where a global variable lies, in the object and for the cache model.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placed {
    pub address: u64,
    pub bytes: u64,
    pub modelled: u64,
}

/// Where large globals begin for the cache model, from [`address::GLOBALS`]; small ones are below.
const LARGE_GLOBALS: u64 = 0x800_0000;
/// Where map values begin.
pub(crate) const MAP_VALUES: u64 = 0xc00_0000;
/// A small global has a line of its own; the odd stride spreads them over the sets.
const SMALL_STRIDE: u64 = 4_096 + 64;

/// Gives every global variable its place in the modelled address space.
///
/// Compilers order variables as they like, so the place comes from the name alone: a small
/// variable has a slot by a hash of its name, large ones follow each other in the order of names.
// Model: two small globals never share a cache line, as they may in a kernel.
pub(crate) fn place(types: &Types, variables: &[Variable]) -> Vec<Placed> {
    let mut by_name: Vec<&Variable> = variables.iter().collect();
    by_name.sort_by(|a, b| (&a.name, a.line).cmp(&(&b.name, b.line)));
    let in_order = by_name.into_iter().map(|variable| {
        let bytes = types.size(variable.type_at);
        (variable.name.as_str(), variable.address, bytes)
    });
    place_in_order(in_order)
}

/// The same of an object's: name, address, bytes.
pub(crate) fn place_globals(globals: &[(String, u64, usize)]) -> Vec<Placed> {
    let mut by_name: Vec<&(String, u64, usize)> = globals.iter().collect();
    by_name.sort();
    let in_order = by_name.into_iter();
    place_in_order(in_order.map(|(name, address, bytes)| (name.as_str(), *address, *bytes as u64)))
}

fn place_in_order<'n>(variables: impl Iterator<Item = (&'n str, u64, u64)>) -> Vec<Placed> {
    let slots = LARGE_GLOBALS / SMALL_STRIDE;
    let mut taken = std::collections::BTreeSet::new();
    let mut large = LARGE_GLOBALS;
    let mut placed = Vec::new();
    for (name, address, bytes) in variables {
        let offset = if bytes <= SMALL_STRIDE {
            let mut slot = hash(name) % slots;
            while !taken.insert(slot) {
                slot = (slot + 1) % slots;
            }
            slot * SMALL_STRIDE
        } else {
            let offset = large;
            large += bytes.next_multiple_of(128) + 64;
            offset
        };
        placed.push(Placed {
            address,
            bytes,
            modelled: schedlab_machine::address::GLOBALS + offset % MAP_VALUES,
        });
    }
    placed.sort_by_key(|placed| placed.address);
    placed
}

/// FNV-1a.
fn hash(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3)
    })
}
