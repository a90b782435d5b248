//! Computes the results of the parts of a composed workload.

use schedlab_report::Measures;
use schedlab_trace::Instant;
use schedlab_workload::{Counters, Part};

/// Sets the measures of each part: its score as `NAME.score` and under its own name, its end, and its work. The score
/// of the whole is the score of the first part and stands for itself. `scored`: whether the run has a score.
///
/// Takes the counts that it reports out of the others. Returns notes on the parts for the reader.
pub fn measure(
    parts: &[Part],
    counters: &mut Counters,
    end: Instant,
    scored: bool,
    measures: &mut Measures,
) -> Vec<String> {
    let mut notes = Vec::new();
    for (i, part) in parts.iter().enumerate() {
        let name = &part.name;
        let became = part.end(counters, end);
        notes.extend(part.note(counters, became.score).filter(|_| scored));
        if let (Some(value), true) = (became.score, scored) {
            let score = &part.score;
            if i == 0 {
                measures.score(value, score.unit, score.higher_is_better);
                measures.float(score.name, value);
            }
            measures.part_score(name, value, score.unit, score.higher_is_better);
            measures.float(format!("{name}.{}", score.name), value);
        }
        measures.int(format!("{name}.makespan_ns"), became.makespan.ns());
        measures.int(format!("{name}.work"), became.work);
    }
    notes
}

/// A message of a run with notes behind it.
pub fn with_notes(message: Option<String>, notes: Vec<String>) -> Option<String> {
    let all: Vec<String> = message.into_iter().chain(notes).collect();
    (!all.is_empty()).then(|| all.join("; "))
}
