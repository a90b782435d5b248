//! The program of a task: its behaviour, the action under way and the wait for others.

use std::cell::{Cell, Ref, RefCell};

use schedlab_trace::{CpuId, Duration, Instant};
use schedlab_workload::{Action, Behaviour, Context, Counters, Outcome, Rng};

use crate::state::shared::Buffer;

/// The state with which a task that is switched in goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Exec {
    /// Its behaviour is asked for the next action.
    Next,
    /// It computes for `left_ns`.
    User,
    /// It is in a system call for another `left_ns`; then the action takes effect.
    Kernel,
    /// The action takes effect (again, if it had blocked).
    Effect,
}

/// How far a wait is that another task ends for good: at a barrier, for a condition, an event or the end of a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stay {
    /// There is none. → `Entered`, `Early`
    None,
    /// It was ended before it was entered. → `Over`, `None`, `Relocking`
    Early,
    /// It has entered the barrier, is in the list of waiters or has released the mutex. → `Over`
    Entered,
    /// It was ended after that. → `None`, `Relocking`
    Over,
    /// It wants the mutex back. → `None`
    Relocking,
}

/// A task's part. The order is that in memory, what a switch looks at first.
#[repr(C)]
pub(crate) struct Program {
    exec: Cell<Exec>,
    stay: Cell<Stay>,
    /// Lines per millisecond that cross the bus for what it does in user mode.
    traffic: Cell<u32>,
    /// The rest of its computation or of its time in the kernel.
    left_ns: Cell<u64>,
    /// When it last began an action, and how many it has begun then without time.
    last_action_at: Cell<u64>,
    idle_actions: Cell<u32>,
    action: RefCell<Option<Action>>,
    /// `None`: it has ended.
    behaviour: RefCell<Option<Box<dyn Behaviour>>>,
    /// The outcome of the last action, for the behaviour.
    outcome: Cell<Outcome>,
    /// The buffer of the message that it is writing.
    message: Cell<Option<Buffer>>,
    rng: RefCell<Rng>,
}

impl Program {
    reads! { exec: Exec, left_ns: u64, traffic: u32 }

    sets! {
        finish_stretch(): left_ns = 0;
        /// Goes on to the next action.
        end_action(): exec = Exec::Next;
        /// Keeps the outcome for the behaviour.
        tell(outcome: Outcome): outcome = outcome;
        relocked(): stay = Stay::None;
        write_into(buffer: Buffer): message = Some(buffer);
        take_message() -> Option<Buffer>: message = None;
    }

    pub fn new(behaviour: Box<dyn Behaviour>, rng: Rng) -> Program {
        Program {
            exec: Cell::new(Exec::Next),
            stay: Cell::new(Stay::None),
            traffic: Cell::new(0),
            left_ns: Cell::new(0),
            last_action_at: Cell::new(u64::MAX),
            idle_actions: Cell::new(0),
            action: RefCell::new(None),
            behaviour: RefCell::new(Some(behaviour)),
            outcome: Cell::new(Outcome::Done),
            message: Cell::new(None),
            rng: RefCell::new(rng),
        }
    }

    /// Asks the behaviour for the next action.
    #[inline(always)]
    pub fn next(&self, now: Instant, cpu: CpuId) -> Action {
        let mut behaviour = self.behaviour.borrow_mut();
        let behaviour = behaviour.as_mut();
        let behaviour = behaviour.expect("a task that runs has a behaviour");
        let mut rng = self.rng.borrow_mut();
        behaviour.next(&mut Context {
            now,
            outcome: self.outcome.replace(Outcome::Done),
            cpu,
            rng: &mut rng,
        })
    }

    /// Counts an action that begins at `now`. Returns how many there were since time last passed for the task.
    #[inline(always)]
    pub fn count_action(&self, now: u64) -> u32 {
        let nr = match self.last_action_at.replace(now) == now {
            true => self.idle_actions.get() + 1,
            false => 0,
        };
        self.idle_actions.set(nr);
        nr
    }

    /// Computes for `ns`, for which `traffic` lines per millisecond cross the bus.
    #[inline(always)]
    pub fn compute(&self, ns: u64, traffic: u32) {
        self.left_ns.set(ns);
        self.traffic.set(traffic);
        self.exec.set(Exec::User);
    }

    /// Computes for `ns` instead of the action that was under way.
    pub fn compute_instead(&self, ns: u64) {
        self.compute(ns, self.traffic.get());
    }

    /// `ns` of a system call go by, then `action` takes effect.
    #[inline(always)]
    pub fn enter_kernel(&self, ns: u64, action: Action) {
        self.left_ns.set(ns);
        *self.action.borrow_mut() = Some(action);
        self.exec.set(Exec::Kernel);
    }

    /// Makes the computation longer by `ns`.
    #[inline(always)]
    pub fn extend(&self, ns: u64) {
        self.left_ns.set(self.left_ns.get() + ns);
    }

    /// Takes the part that is done off the stretch under way.
    #[inline(always)]
    pub fn shorten(&self, ns: u64) {
        self.left_ns.set(self.left_ns.get().saturating_sub(ns));
    }

    /// Goes on to what follows a stretch of user or kernel time, if that is done.
    #[inline(always)]
    pub fn leave_stretch(&self, is_user: bool) {
        if self.left_ns.get() == 0 {
            self.exec
                .set(if is_user { Exec::Next } else { Exec::Effect });
        }
    }

    /// Returns the action under way.
    pub fn action(&self) -> Ref<'_, Option<Action>> {
        self.action.borrow()
    }

    /// Takes the action under way if it is a sleep. Returns how long.
    #[inline(always)]
    pub fn take_sleep(&self) -> Option<Duration> {
        let mut action = self.action.borrow_mut();
        let Some(Action::Sleep(time)) = *action else {
            return None;
        };
        *action = None;
        Some(time)
    }

    /// Takes the action under way, which takes effect.
    pub fn take_action(&self) -> Action {
        let action = self.action.borrow_mut().take();
        action.expect("an effect has its action")
    }

    /// Tries the effect again later.
    pub fn retry(&self, action: Action) {
        *self.action.borrow_mut() = Some(action);
        self.exec.set(Exec::Effect);
    }

    /// Ends the wait of the task for good.
    pub fn grant(&self) {
        self.stay.set(match self.stay.get() {
            Stay::None | Stay::Early => Stay::Early,
            Stay::Entered | Stay::Over => Stay::Over,
            Stay::Relocking => unreachable!("a wait is ended once"),
        });
    }

    /// Enters the wait. Returns whether it had not been entered yet.
    pub fn enter_wait(&self) -> bool {
        let (next, enters) = match self.stay.get() {
            Stay::None => (Stay::Entered, true),
            Stay::Early => (Stay::Over, true),
            stay => (stay, false),
        };
        self.stay.set(next);
        enters
    }

    pub fn has_entered_wait(&self) -> bool {
        matches!(self.stay.get(), Stay::Entered | Stay::Over)
    }

    /// Leaves the wait if another task has ended it. Returns whether that is so.
    pub fn leave_wait(&self) -> bool {
        self.leave_wait_for(Stay::None)
    }

    /// The same of the wait for a condition, whose mutex the task wants back.
    pub fn relock(&self) -> bool {
        self.leave_wait_for(Stay::Relocking)
    }

    fn leave_wait_for(&self, next: Stay) -> bool {
        let is_over = matches!(self.stay.get(), Stay::Early | Stay::Over);
        if is_over {
            self.stay.set(next);
        }
        is_over
    }

    /// Returns whether it wants the mutex of a condition back.
    pub fn is_relocking(&self) -> bool {
        self.stay.get() == Stay::Relocking
    }

    pub fn behaviour(&self) -> Ref<'_, Option<Box<dyn Behaviour>>> {
        self.behaviour.borrow()
    }

    /// Ends it, with the task or the run. Adds the counts of its behaviour to `counters`.
    pub fn end(&self, counters: &mut Counters) {
        if let Some(behaviour) = self.behaviour.borrow_mut().take() {
            behaviour.report(counters);
        }
        self.action.borrow_mut().take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_entered_and_ended_in_any_order() {
        let behaviour = schedlab_workload::stream(1, 0);
        let program = Program::new(crate::testing::task("t", |_, _| None).behaviour, behaviour);
        assert!(!program.leave_wait() && program.enter_wait() && !program.enter_wait());
        program.grant();
        assert!(program.has_entered_wait() && program.leave_wait() && !program.has_entered_wait());
        // Signalled before it lets go of its mutex.
        program.grant();
        assert!(!program.has_entered_wait() && program.enter_wait());
        assert!(program.relock() && program.is_relocking() && !program.relock());
        program.relocked();
        assert!(!program.is_relocking() && !program.leave_wait());
    }
}
