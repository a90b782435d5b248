//! The life of a run, and how far it has come with its policy.

use std::cell::Cell;

/// Where a run is. Its value has one bit for each question that frequent paths ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
enum Phase {
    /// The workload's tasks are taken in. → `Loading`, or `Running` without a policy
    Setup = 0,
    /// The policy is loaded, and nothing else happens. → `Running`, `Stopping`
    Loading = ALONE | MUTE,
    /// Events happen. → `Stopping`, or `Closed` if none is left
    Running = 1 << 7,
    /// It is over as soon as no op is under way. → `Closed`
    Stopping = STOPS,
    /// It is over for whoever measures; the last ops return. → `Unloading`
    Closed = MUTE | STOPS | CLOSED,
    /// The policy is unloaded, and nothing else happens. → `Closed`
    Unloading = ALONE | MUTE | STOPS | CLOSED,
}

const ALONE: u8 = 1 << 0;
const MUTE: u8 = 1 << 1;
const STOPS: u8 = 1 << 2;
const CLOSED: u8 = 1 << 3;

/// How far loading a policy has come, which says what is called when it is unloaded.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum LoadStage {
    /// There is no scheduler: its table is refused (`bpf_scx_init_member()`). Nothing of it is ever called.
    Refused,
    /// `ops.exit()` is called.
    Scheduler,
    /// Its ops are known (`has_op`): those that dump, too.
    Ops,
    /// The root cgroup is the policy's (`SCX_TG_INITED`): `ops.cgroup_exit()`, too.
    Cgroups,
    /// sched_ext is enabled (`scx_enabled()`).
    Enabled,
}

/// Whether the policy serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// Its ops are called, as far as it is loaded.
    Serves,
    /// It has ended or broken a rule: its ops are passed by until it is unloaded (`scx_bypassing()`). Loading had come
    /// so far when that was decided.
    Ended(LoadStage),
    /// Its code cannot be called any more.
    Dead,
}

/// The phase of a run, with what is known of its policy. Only the transitions named here can be made.
pub(crate) struct Life {
    phase: Cell<Phase>,
    loaded: Cell<LoadStage>,
    standing: Cell<Standing>,
}

impl Default for Life {
    fn default() -> Self {
        Life {
            phase: Cell::new(Phase::Setup),
            loaded: Cell::new(LoadStage::Refused),
            standing: Cell::new(Standing::Serves),
        }
    }
}

impl Life {
    #[inline(always)]
    fn is(&self, question: u8) -> bool {
        self.phase.get() as u8 & question != 0
    }

    /// Only one path runs: loading or unloading. Nobody else can be waited for.
    #[inline(always)]
    pub fn is_alone(&self) -> bool {
        self.is(ALONE)
    }

    /// Nothing is recorded now.
    #[inline(always)]
    pub fn is_mute(&self) -> bool {
        self.is(MUTE)
    }

    /// The run is over as soon as no op is under way.
    #[inline(always)]
    pub fn is_stopping(&self) -> bool {
        self.is(STOPS)
    }

    /// Ops are called only by paths that load or unload the policy, or of tasks that come and go.
    #[inline(always)]
    pub fn restrains_ops(&self) -> bool {
        self.is(ALONE | STOPS)
    }

    /// The run is over for measurements: nothing more is recorded or counted.
    #[inline(always)]
    pub fn is_closed(&self) -> bool {
        self.is(CLOSED)
    }

    /// `scx_enabled()`.
    #[inline(always)]
    pub fn scx_enabled(&self) -> bool {
        self.loaded.get() == LoadStage::Enabled
    }

    /// `scx_bypassing()`: ops are no longer called.
    #[inline(always)]
    pub fn is_bypassing(&self) -> bool {
        self.standing.get() != Standing::Serves
    }

    /// The policy's code cannot be called any more.
    #[inline(always)]
    pub fn is_policy_dead(&self) -> bool {
        self.standing.get() == Standing::Dead
    }

    /// Whether loading the policy has come so far.
    pub fn has_loaded(&self, part: LoadStage) -> bool {
        self.loaded.get() >= part
    }

    /// The policy's ops were known when its end was decided: it is asked what to print.
    pub fn dumps(&self) -> bool {
        matches!(self.standing.get(), Standing::Ended(loaded) if loaded >= LoadStage::Ops)
    }

    fn goes_on(&self, from: &[Phase], to: Phase) {
        let phase = self.phase.replace(to);
        assert!(from.contains(&phase), "{phase:?} is not followed by {to:?}");
    }

    /// One path runs alone from here: the first time it loads the policy, the second time it unloads it.
    pub fn begin_alone(&self) {
        let to = match self.is_closed() {
            true => Phase::Unloading,
            false => Phase::Loading,
        };
        self.goes_on(&[Phase::Setup, Phase::Closed], to);
    }

    /// That path has ended.
    pub fn end_alone(&self) {
        let to = match self.is_closed() {
            true => Phase::Closed,
            false if self.is_bypassing() => Phase::Stopping,
            false => Phase::Running,
        };
        self.goes_on(&[Phase::Loading, Phase::Unloading], to);
    }

    /// Events happen from here, under no policy.
    pub fn begin_without_policy(&self) {
        self.goes_on(&[Phase::Setup], Phase::Running);
    }

    /// Loading the policy has come further.
    pub fn load_to(&self, part: LoadStage) {
        assert_eq!(self.phase.get(), Phase::Loading, "{part:?} is loaded now");
        assert!(self.loaded.get() < part, "{part:?} is loaded once");
        self.loaded.set(part);
    }

    /// Ends the run soon. While a policy is loaded or unloaded it does nothing: `Kernel::execute()` looks afterwards whether
    /// the policy has ended or the workload has failed.
    pub fn stop(&self) {
        if matches!(self.phase.get(), Phase::Setup | Phase::Running) {
            self.phase.set(Phase::Stopping);
        }
    }

    /// The run is over for whoever measures.
    pub fn close(&self) {
        let from = [Phase::Setup, Phase::Running, Phase::Stopping];
        self.goes_on(&from, Phase::Closed);
    }

    /// The policy's end is decided, and so that of the run.
    pub fn end_policy(&self) {
        if !self.is_policy_dead() {
            self.standing.set(Standing::Ended(self.loaded.get()));
        }
        self.stop();
    }

    /// The policy, whose end is decided, cannot be called any more.
    pub fn policy_dies(&self) {
        assert!(self.is_bypassing(), "a policy that dies has been ended");
        self.standing.set(Standing::Dead);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_goes_through_its_phases() {
        let life = Life::default();
        assert!(!life.is_alone() && !life.is_mute() && !life.is_stopping());
        life.begin_alone();
        assert!(life.is_alone() && life.is_mute() && !life.is_closed());
        for part in [LoadStage::Scheduler, LoadStage::Ops, LoadStage::Enabled] {
            assert!(!life.scx_enabled());
            life.load_to(part);
        }
        life.end_alone();
        assert!(life.scx_enabled() && !life.is_alone() && !life.is_mute() && !life.is_stopping());
        life.end_policy();
        assert!(life.is_stopping() && life.is_bypassing() && life.dumps() && !life.is_mute());
        life.close();
        assert!(life.is_closed() && life.is_mute() && life.is_stopping() && !life.is_alone());
        life.begin_alone();
        assert!(life.is_alone() && life.is_mute() && life.is_closed());
        life.policy_dies();
        assert!(life.is_bypassing() && life.is_policy_dead());
        life.end_alone();
        assert!(life.is_mute() && life.is_closed() && !life.is_alone());
    }

    #[test]
    fn a_policy_that_ends_while_it_is_loaded_stops_the_run_afterwards() {
        let life = Life::default();
        life.begin_alone();
        life.load_to(LoadStage::Scheduler);
        life.end_policy();
        // Its ops were not known when it ended, whatever is loaded after that.
        life.load_to(LoadStage::Ops);
        assert!(life.is_alone() && !life.is_stopping() && !life.dumps());
        life.end_alone();
        assert!(life.is_stopping() && !life.scx_enabled());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let panics = |act: fn(&Life)| {
            let life = std::panic::AssertUnwindSafe(Life::default());
            std::panic::catch_unwind(|| act(&life)).is_err()
        };
        assert!(panics(Life::policy_dies));
        assert!(panics(Life::end_alone));
        assert!(panics(|life| life.load_to(LoadStage::Scheduler)));
        assert!(panics(|life| {
            life.begin_alone();
            life.close();
        }));
        assert!(panics(|life| {
            life.begin_without_policy();
            life.begin_alone();
        }));
        assert!(!panics(|life| {
            life.stop();
            life.close();
        }));
    }
}
