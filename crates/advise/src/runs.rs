//! Makes runs, on some threads, until it is asked to stop.

use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicBool, Ordering};

use schedlab_report::RunResult;
use schedlab_sim::{Inputs, Prepared, SimError, SimSpec, batch};
use schedlab_trace::Listener;

/// How far the advice is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// The stage, for people.
    pub what: &'static str,
    /// Runs that are done.
    pub done: u64,
    /// Runs of the whole budget; 0 while that is not known.
    pub of: u64,
}

/// Makes runs and counts them.
pub struct Runs<'a> {
    inputs: Inputs,
    threads: NonZeroUsize,
    stop: &'a AtomicBool,
    show: &'a mut dyn FnMut(Progress),
    /// Runs that were made.
    pub made: u64,
    /// Runs that are to be made.
    pub of: u64,
}

impl<'a> Runs<'a> {
    /// Begins.
    pub fn new(
        threads: NonZeroUsize,
        stop: &'a AtomicBool,
        show: &'a mut dyn FnMut(Progress),
    ) -> Runs<'a> {
        Runs {
            inputs: Inputs::default(),
            threads,
            stop,
            show,
            made: 0,
            of: 0,
        }
    }

    /// Returns whether someone asked to stop.
    pub fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Reads what a run needs.
    ///
    /// # Errors
    /// If something that it names is not there or wrong.
    pub fn read(&mut self, spec: &SimSpec) -> Result<Prepared, SimError> {
        self.inputs.read(spec)
    }

    /// Makes runs; a run that was not begun before the stop has no result.
    pub fn make(&mut self, what: &'static str, specs: &[SimSpec]) -> Vec<Option<RunResult>> {
        let heard = self.listen(what, specs, |_| None::<Unheard>);
        heard
            .into_iter()
            .map(|one| one.map(|(result, _)| result))
            .collect()
    }

    /// Makes runs that are not counted.
    pub fn untold<L: Listener + Send>(
        &mut self,
        what: &'static str,
        specs: &[SimSpec],
        listener: impl Fn(usize) -> Option<L> + Sync,
    ) -> Vec<Option<(RunResult, Option<L>)>> {
        let made = self.made;
        let heard = self.listen(what, specs, listener);
        self.made = made;
        heard
    }

    /// Makes runs with a listener for some of them.
    pub fn listen<L: Listener + Send>(
        &mut self,
        what: &'static str,
        specs: &[SimSpec],
        listener: impl Fn(usize) -> Option<L> + Sync,
    ) -> Vec<Option<(RunResult, Option<L>)>> {
        let prepared: Vec<(usize, Result<Prepared, SimError>)> = specs
            .iter()
            .map(|spec| self.inputs.read(spec))
            .enumerate()
            .collect();
        let mut results: Vec<Option<(RunResult, Option<L>)>> = specs.iter().map(|_| None).collect();
        let (stop, of) = (self.stop, self.of);
        let made = &mut self.made;
        let show = &mut self.show;
        batch::each(
            &prepared,
            self.threads,
            || stop.load(Ordering::Relaxed),
            |(place, prepared)| {
                let mut listener = listener(*place);
                let run = prepared
                    .as_ref()
                    .map_err(ToString::to_string)
                    .and_then(|run| {
                        let hears = listener.as_mut().map(|one| one as &mut dyn Listener);
                        run.run(hears).map_err(|error| error.to_string())
                    });
                let result = match run {
                    Ok(result) => result,
                    // A scheduler that cannot be used here has lost.
                    Err(why) => RunResult {
                        exit: schedlab_report::Exit::NotRun,
                        message: Some(why),
                        ..RunResult::default()
                    },
                };
                (result, listener)
            },
            |heard| {
                if let Some((place, result)) = heard {
                    *made += 1;
                    results[place] = Some(result);
                }
                show(Progress {
                    what,
                    done: *made,
                    of,
                });
            },
        );
        results
    }
}

/// Stands for an absent listener.
struct Unheard;

impl Listener for Unheard {
    fn record(
        &mut self,
        _: schedlab_trace::Instant,
        _: schedlab_trace::CpuId,
        _: schedlab_trace::Event,
    ) {
    }
}
