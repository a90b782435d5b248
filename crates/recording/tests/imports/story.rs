//! The events that every format holds.

use schedlab_recording::{Comm, Context, Event, Left, Tid, What};

/// A task's name: `t10`; the idle task has the kernel's name for it.
pub fn comm(tid: Tid) -> Comm {
    match tid {
        0 => Comm::new(b"swapper"),
        _ => Comm::new(format!("t{tid}").as_bytes()),
    }
}

/// A task's priority.
pub fn prio(tid: Tid) -> i32 {
    if tid == 11 { 100 } else { 120 }
}

fn event(at_ns: u64, cpu: u32, current: Tid, context: Context, what: What) -> Event {
    Event {
        at_ns,
        cpu,
        current: Some(current),
        context,
        what,
    }
}

fn switch(at_ns: u64, cpu: u32, prev: Tid, left: Left, next: Tid) -> Event {
    let what = What::Switch {
        prev,
        prev_comm: comm(prev),
        prev_prio: prio(prev),
        left,
        next,
        next_comm: comm(next),
        next_prio: prio(next),
    };
    event(at_ns, cpu, prev, Context::Task, what)
}

fn waking(at_ns: u64, cpu: u32, current: Tid, context: Context, task: Tid) -> Event {
    let comm = comm(task);
    event(at_ns, cpu, current, context, What::Waking { task, comm })
}

/// Task 10 creates 12 on CPU 0, and wakes 11, which runs on CPU 1 and is interrupted there by what wakes 10. Task 12 runs
/// for a fifth of a second, which no page counts without a time of its own. Then 11 ends.
pub fn story() -> Vec<Event> {
    use Context::{Hard, Soft, Task};
    vec![
        switch(1_000_000, 0, 0, Left::Runnable, 10),
        event(
            1_010_000,
            0,
            10,
            Task,
            What::Fork {
                parent: 10,
                child: 12,
            },
        ),
        event(1_010_500, 0, 10, Task, What::New { task: 12 }),
        waking(1_020_000, 0, 10, Task, 11),
        switch(1_022_000, 1, 0, Left::Runnable, 11),
        switch(1_030_000, 0, 10, Left::Sleeps, 12),
        waking(1_040_000, 1, 11, Hard, 10),
        switch(200_040_000, 0, 12, Left::Runnable, 10),
        waking(200_041_000, 1, 11, Soft, 12),
        switch(200_050_000, 0, 10, Left::Uninterruptible, 12),
        switch(200_060_000, 1, 11, Left::Dead, 0),
        switch(200_070_000, 0, 12, Left::Sleeps, 0),
    ]
}

/// The same as text of ftrace.
pub fn text() -> String {
    let line = |event: &Event| {
        let flags = match event.context {
            Context::Hard => "d.h2.",
            Context::Soft => "d.s2.",
            _ => "d..2.",
        };
        let current = event.current.unwrap();
        let (s, ns) = (event.at_ns / 1_000_000_000, event.at_ns % 1_000_000_000);
        let what = match event.what {
            What::Switch {
                prev, left, next, ..
            } => {
                let state = match left {
                    Left::Runnable => "R",
                    Left::Sleeps => "S",
                    Left::Uninterruptible => "D",
                    Left::Stopped => "T",
                    Left::Dead => "X",
                };
                format!(
                    "sched_switch: prev_comm={} prev_pid={prev} prev_prio={} prev_state={state} ==> next_comm={} next_pid={next} next_prio={}",
                    comm(prev).text(),
                    prio(prev),
                    comm(next).text(),
                    prio(next)
                )
            }
            What::Waking { task, .. } => format!(
                "sched_waking: comm={} pid={task} prio={} target_cpu=000",
                comm(task).text(),
                prio(task)
            ),
            What::New { task } => format!(
                "sched_wakeup_new: comm={} pid={task} prio=120 target_cpu=000",
                comm(task).text()
            ),
            What::Fork { parent, child } => format!(
                "sched_process_fork: comm={} pid={parent} child_comm={} child_pid={child}",
                comm(parent).text(),
                comm(child).text()
            ),
            other => panic!("{other:?}"),
        };
        format!(
            "  {}-{current} [{:03}] {flags} {s}.{ns:09}: {what}\n",
            comm(current).text(),
            event.cpu
        )
    };
    let lines: String = story().iter().map(line).collect();
    format!("# tracer: nop\n{lines}")
}

/// The number of a state in a kernel from 4.14 on.
pub fn state(left: Left) -> u64 {
    match left {
        Left::Runnable => 0x100,
        Left::Sleeps => 1,
        Left::Uninterruptible => 2,
        Left::Stopped => 4,
        Left::Dead => 0x10,
    }
}

/// `common_flags` of a context.
pub fn flags(context: Context) -> u8 {
    match context {
        Context::Hard => 0x09,
        Context::Soft => 0x11,
        _ => 0x01,
    }
}

#[test]
fn text_holds_the_story() {
    let (events, _) = crate::events(text().as_bytes()).unwrap();
    assert_eq!(events, story());
}
