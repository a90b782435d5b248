//! Why was a sched_ext scheduler ejected? From the kernel's exit text and debug dump to the culprit, the evidence, the
//! kernel's rule and what usually cures it.
//!
//! A pure function of a text: [`explain`] reads it whatever stands around it ([`read`]), and knows the messages of Linux
//! 6.12 to 7.2 ([`messages`]) and where a stalled task waits ([`stall`]). It knows no engine; what the simulator writes
//! it reads as it reads the kernel's.
#![forbid(unsafe_code)]

mod culprit;
mod dump;
mod explanation;
mod finding;
pub mod messages;
mod pattern;
mod read;
mod results;
mod stall;

pub use culprit::Culprit;
pub use dump::Kind;
pub use explanation::Explanation;
pub use finding::Certainty;
pub use results::ejection as of_result;

/// Why a text cannot be explained.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum NoEjection {
    /// Nothing of sched_ext is in it.
    #[error(
        "it holds no sched_ext exit message and no debug dump: give it the loader's whole output or the output of `dmesg`"
    )]
    Nothing,
    /// The scheduler never ran.
    #[error(
        "the verifier refused the scheduler, so it never ran: `schedlab run --vm -s FILE WORKLOAD` names the line"
    )]
    Refused,
    /// Results in which all went well.
    #[error("no scheduler in these results was ejected")]
    NoneEjected,
}

/// Explains each ejection that a text reports, in its order.
///
/// # Errors
/// If it reports none.
pub fn explain(text: &[u8]) -> Result<Vec<Explanation>, NoEjection> {
    if text.trim_ascii_start().starts_with(b"{")
        && let Some(ejections) = results::read_document(text)
    {
        return match ejections.is_empty() {
            true => Err(NoEjection::NoneEjected),
            false => Ok(ejections.iter().map(explanation::explain).collect()),
        };
    }
    let told = read::read(text);
    if !told.ejections.is_empty() {
        return Ok(told.ejections.iter().map(explanation::explain).collect());
    }
    match read::lone_message(text) {
        Some(ejection) => Ok(vec![explanation::explain(&ejection)]),
        None if told.has_refusal => Err(NoEjection::Refused),
        None => Err(NoEjection::Nothing),
    }
}

/// Explains one result of a run; `None` if its scheduler was not ejected.
pub fn explain_result(
    scheduler: &str,
    exit: &str,
    message: Option<&str>,
    exit_code: Option<i64>,
    dump: &str,
) -> Option<Explanation> {
    let ejection = of_result(scheduler, exit, message, exit_code, dump)?;
    Some(explanation::explain(&ejection))
}
