//! State of a run: data that knows no executor.
//!
//! The fields of a part are its own. Others read them and change them by its functions; the macros below make those
//! of them that do nothing else.

/// Makes functions that return what a cell holds, `name: Type`, or `name of cell: Type` if the cell has another name.
macro_rules! reads {
    ($($name:ident $(of $cell:ident)?: $type:ty),* $(,)?) => { $(reads! { @ $name $($cell)?, $type })* };
    (@ $name:ident, $type:ty) => { reads! { @ $name $name, $type } };
    (@ $name:ident $cell:ident, $type:ty) => {
        #[inline(always)]
        pub fn $name(&self) -> $type {
            self.$cell.get()
        }
    };
}

/// Makes functions that set a cell, `name(arguments): cell = value;` each: the transitions that a part can make. With
/// `-> Type` before the colon they return what it held before.
macro_rules! sets {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $type:ty),*) $(-> $before:ty)?: $cell:ident = $value:expr;)*) => {
        $($(#[$doc])*
        #[inline(always)]
        pub fn $name(&self, $($arg: $type),*) $(-> $before)? {
            sets! { @ self.$cell, $value $(, $before)? }
        })*
    };
    (@ $cell:expr, $value:expr) => { $cell.set($value) };
    (@ $cell:expr, $value:expr, $before:ty) => { $cell.replace($value) };
}

pub(crate) mod account;
pub(crate) mod affinity;
pub(crate) mod attributes;
pub(crate) mod cgroup;
pub(crate) mod classes;
pub(crate) mod costs;
pub(crate) mod cpu;
pub(crate) mod deadline;
pub(crate) mod deferred;
pub(crate) mod dispatch;
pub(crate) mod domains;
pub(crate) mod dsq;
pub(crate) mod event_queue;
pub(crate) mod expired;
pub(crate) mod fair;
pub(crate) mod fair_group;
pub(crate) mod idle;
pub(crate) mod kick;
pub(crate) mod life;
pub(crate) mod lock;
pub(crate) mod memory;
pub(crate) mod object;
pub(crate) mod online;
pub(crate) mod op;
pub(crate) mod pi;
pub(crate) mod population;
pub(crate) mod program;
pub(crate) mod progress;
pub(crate) mod rt;
pub(crate) mod scx;
pub(crate) mod segment;
pub(crate) mod shared;
pub(crate) mod sorted;
pub(crate) mod stop;
pub(crate) mod task;
pub(crate) mod tcp;
pub(crate) mod traffic;
pub(crate) mod utilisation;
