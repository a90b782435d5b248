//! The attributes of a task that decide its class and its priority (kernel/sched/syscalls.c).

use schedlab_workload::{Reservation, SchedClass};

use crate::contract::consts;
use crate::state::pi::Inherited;

#[derive(Clone, Copy)]
pub(crate) struct Attributes {
    pub policy: SchedClass,
    pub nice: i8,
    /// By the waiters for its mutexes.
    pub inherited: Inherited,
}

impl Attributes {
    /// Whether the effective priority is a real-time one, its own or an inherited one.
    #[inline]
    pub fn is_realtime(&self) -> bool {
        !self.is_deadline() && self.rt_priority() > 0
    }

    /// `rt_priority` by its own policy, 0 for others.
    #[inline]
    pub fn own_rt_priority(&self) -> u8 {
        match self.policy {
            SchedClass::Fifo(priority) | SchedClass::RoundRobin(priority) => priority,
            _ => 0,
        }
    }

    /// The effective real-time priority, 0 for others.
    #[inline]
    pub fn rt_priority(&self) -> u8 {
        match self.inherited {
            Inherited::RealTime(priority) => priority.max(self.own_rt_priority()),
            _ => self.own_rt_priority(),
        }
    }

    /// Its own reservation, if it is under SCHED_DEADLINE.
    #[inline]
    pub fn reservation(&self) -> Option<Reservation> {
        match self.policy {
            SchedClass::Deadline(reservation) => Some(reservation),
            _ => None,
        }
    }

    /// `is_dl_boosted()`.
    #[inline]
    pub fn is_boosted_by_deadline(&self) -> bool {
        matches!(self.inherited, Inherited::Deadline(_))
    }

    /// `dl_prio()` of the effective priority.
    #[inline]
    pub fn is_deadline(&self) -> bool {
        self.reservation().is_some() || self.is_boosted_by_deadline()
    }

    /// `task_struct::prio`, the effective priority: −1 of the deadline class, 0 to 98 real-time, then nice levels.
    #[inline]
    pub fn prio(&self) -> i32 {
        match self.rt_priority() {
            _ if self.is_deadline() => -1,
            0 => 120 + i32::from(self.nice),
            priority => 99 - i32::from(priority),
        }
    }

    /// The effective priority as far as classes distinguish it: nice levels are one.
    #[inline]
    pub fn level(&self) -> i32 {
        self.prio().min(100)
    }

    /// Load weight (`task_struct::se.load`).
    #[inline]
    pub fn load_weight(&self) -> u32 {
        match self.policy {
            SchedClass::Idle => consts::WEIGHT_IDLEPRIO,
            _ => consts::load_weight(self.nice),
        }
    }
}
