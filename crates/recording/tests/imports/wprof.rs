//! JSON lines as `wprof -J` writes them.

use schedlab_recording::{Context, Event, Left, Tid, What};

use crate::story::{comm, prio, story};

fn task(key: &str, tid: Tid) -> String {
    let name = comm(tid).text();
    match tid {
        0 => format!("\"{key}\":{{\"pid\":0,\"comm\":\"{name}\"}}"),
        _ => format!("\"{key}\":{{\"tid\":{tid},\"pid\":9,\"comm\":\"{name}\",\"pcomm\":\"p\"}}"),
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The story; each interrupt has a line of its own behind its wakeup.
pub fn file() -> String {
    let mut text = "{\"version\":\"3.1\",\"dur\":0.3,\"timer_freq_hz\":0,\"stacks\":[\"offcpu\"],\"stack_cnt\":1,\"pmus\":[]}\n\
        {\"id\":1,\"frames\":[\"[K] schedule+0x8e\"],\"srcs\":[\"\"]}\n"
        .to_owned();
    for event in story() {
        let (ts, cpu) = (seconds(event.at_ns), event.cpu);
        let mut line = |kind: &str, rest: &str| {
            text += &format!("{{\"ts\":{ts},\"t\":\"{kind}\",\"cpu\":{cpu},{rest}}}\n");
        };
        let current = event.current.unwrap();
        match event.what {
            What::Switch {
                prev, left, next, ..
            } => {
                let state = match left {
                    Left::Runnable => "preempted",
                    Left::Sleeps => "interruptible_sleep",
                    Left::Uninterruptible => "killable_sleep",
                    Left::Stopped => "stopped",
                    Left::Dead => "task_dead",
                };
                line(
                    "switch",
                    &format!(
                        "{},{},\"prev_state\":\"{state}\",\"prev_prio\":{},\"next_prio\":{}",
                        task("prev", prev),
                        task("next", next),
                        prio(prev),
                        prio(next)
                    ),
                );
            }
            What::Waking { task: woken, .. } => {
                line(
                    "waking",
                    &format!("{},{}", task("waker", current), task("wakee", woken)),
                );
                let kind = match event.context {
                    Context::Hard => "hardirq",
                    Context::Soft => "softirq",
                    _ => continue,
                };
                let (begin, end) = (seconds(event.at_ns - 100), seconds(event.at_ns + 100));
                let task = task("task", current);
                text += &format!(
                    "{{\"ts\":{end},\"t\":\"{kind}\",{task},\"dur\":0.0000002,\"start_ts\":{begin},\"cpu\":{cpu},\"action\":\"x\"}}\n"
                );
            }
            What::New { task: woken } => line(
                "wakeup_new",
                &format!("{},{}", task("waker", current), task("wakee", woken)),
            ),
            What::Fork { parent, child } => line(
                "fork",
                &format!("{},{}", task("task", parent), task("child", child)),
            ),
            other => panic!("{other:?}"),
        }
    }
    text
}

/// Outside of interrupts the context is unknown, and processes come before the events that name their tasks.
#[test]
fn wprof_holds_the_story_and_its_processes() {
    let (events, about) = crate::events(file().as_bytes()).unwrap();
    let (processes, others): (Vec<Event>, Vec<Event>) = events
        .into_iter()
        .partition(|event| matches!(event.what, What::Process { .. }));
    let mut expected = story();
    for event in &mut expected {
        if event.context == Context::Task {
            event.context = Context::Unknown;
        }
    }
    assert_eq!(others, expected);
    let processes: Vec<What> = processes.into_iter().map(|event| event.what).collect();
    let of = |task| What::Process { task, process: 9 };
    assert_eq!(processes, [of(10), of(12), of(11)]);
    assert_eq!(about.format, "JSON of wprof, version 3.1");
    assert_eq!(about.passed_over, 2);
}
