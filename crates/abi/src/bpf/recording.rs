//! A scheduler as its own loader has loaded it: the steps that lead to it.

use std::collections::BTreeMap;

use schedlab_bpf::recorded::Recorded;
use schedlab_bpf::transcript::{Step, Transcript};

/// Holds the steps of a loader before it attached: a run of the scheduler begins with them.
#[derive(Debug)]
pub struct Recording {
    pub steps: Vec<Step>,
    pub places: Places,
}

/// The parts of a transcript in an object.
#[derive(Clone, Debug)]
pub struct Places {
    /// Numbers of maps in the object by their numbers in the transcript.
    pub maps: BTreeMap<usize, usize>,
    /// Sections of variables that programs may write.
    pub sections: BTreeMap<usize, String>,
    /// Functions by the numbers of programs.
    pub programs: BTreeMap<usize, usize>,
}

impl Recording {
    /// `kept` are the maps of the object that a host has.
    pub fn new(transcript: &Transcript, recorded: &Recorded, kept: &[usize]) -> Recording {
        let maps = kept.iter().map(|index| &recorded.maps[*index]).enumerate();
        let sections = recorded.sections.iter();
        let open = sections.filter(|(map, _)| !transcript.maps[**map].frozen);
        Recording {
            steps: transcript.steps.clone(),
            places: Places {
                maps: maps.map(|(index, map)| (*map, index)).collect(),
                sections: open.map(|(map, name)| (*map, name.clone())).collect(),
                programs: recorded.programs.clone(),
            },
        }
    }
}
