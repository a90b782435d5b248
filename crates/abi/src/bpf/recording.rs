//! A scheduler as its own loader has loaded it: the steps that lead to it.

use std::collections::BTreeMap;

use schedlab_bpf::recorded::Recorded;
use schedlab_bpf::transcript::{Step, Transcript};

use crate::map_def::MapDef;

/// Holds the steps of a loader before it attached: a run of the scheduler begins with them.
#[derive(Debug)]
pub struct Recording {
    pub steps: Vec<Step>,
    pub places: Places,
    /// Maps that lie in maps, and that no program refers to.
    pub inner: Vec<MapDef>,
}

/// The parts of a transcript in an object.
#[derive(Clone, Debug)]
pub struct Places {
    /// Numbers of maps of a run by their numbers in the transcript.
    pub maps: BTreeMap<usize, usize>,
    /// Sections of variables that programs may write.
    pub sections: BTreeMap<usize, String>,
    /// Functions by the numbers of programs.
    pub programs: BTreeMap<usize, usize>,
}

impl Recording {
    /// `kept` are the maps of the object that a host has; `inner` lie in them, and have their numbers in the transcript.
    pub fn new(
        transcript: &Transcript,
        recorded: &Recorded,
        kept: &[usize],
        inner: Vec<(usize, MapDef)>,
    ) -> Recording {
        let (in_maps, inner): (Vec<usize>, _) = inner.into_iter().unzip();
        let kept = kept.iter().map(|index| &recorded.maps[*index]);
        let maps = kept.chain(&in_maps).enumerate();
        let sections = recorded.sections.iter();
        let open = sections.filter(|(map, _)| !transcript.maps[**map].frozen);
        Recording {
            steps: transcript.steps.clone(),
            places: Places {
                maps: maps.map(|(index, map)| (*map, index)).collect(),
                sections: open.map(|(map, name)| (*map, name.clone())).collect(),
                programs: recorded.programs.clone(),
            },
            inner,
        }
    }
}
