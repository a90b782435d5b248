//! The JSON document: `{"schema": 1, "results": [ … ]}`, one entry per run.
//!
//! To read it: `schedlab sim cpu -s fifo --json - | jq '.results[].measures'`.

use std::io::{self, Write};

use crate::{Document, RunResult};

/// Writes the document, indented, with a newline at its end.
///
/// # Errors
/// If `out` fails.
pub fn write(results: &[RunResult], mut out: impl Write) -> io::Result<()> {
    serde_json::to_writer_pretty(&mut out, &Document::new(results))?;
    out.write_all(b"\n")?;
    out.flush()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Measures;

    #[test]
    fn the_document_has_the_agreed_form() {
        let mut measures = Measures::default();
        measures.int("schedule.calls", 3);
        measures.text("score_unit", "messages/s");
        let result = RunResult {
            workload: "chat".into(),
            asked: "chat:rooms=20".into(),
            params: vec![
                ("rooms".into(), "20".into()),
                ("pin".into(), "false".into()),
            ],
            scheduler: "a:x=1".into(),
            machine: "m".into(),
            cpus: 2,
            seed: u64::MAX,
            exit: crate::Exit::ErrorStall,
            message: Some("runnable task stall".into()),
            replay: "schedlab sim".into(),
            measures,
            histograms: vec![("runqueue.len".into(), vec![(1, 1, 3)])],
            ..RunResult::default()
        };
        let mut bytes = Vec::new();
        write(&[result], &mut bytes).unwrap();
        assert_eq!(bytes.last(), Some(&b'\n'));
        let found: serde_json::Value = serde_json::from_slice(&bytes).unwrap();
        let expected = serde_json::json!({"schema": 1, "results": [{
            "workload": "chat", "params": {"rooms": "20", "pin": "false"}, "scheduler": "a:x=1",
            "machine": "m", "cpus": 2, "seed": u64::MAX, "exit": "error_stall",
            "message": "runnable task stall", "replay": "schedlab sim",
            "measures": {"schedule.calls": 3, "score_unit": "messages/s"},
            "histograms": {"runqueue.len": [[1, 1, 3]]}
        }]});
        assert_eq!(found, expected);
    }
}
