//! CPUs that go, as the policy sees it.

use std::cell::RefCell;
use std::rc::Rc;

use schedlab_machine::Topology;
use schedlab_trace::{CpuId, CpuSet, Instant, TaskId};

use crate::Hotplug;
use crate::contract::consts::{errno, pick_idle};
use crate::contract::policy::OpKind::*;
use crate::contract::policy::{OpCall, Reply, Request};
use crate::testing::*;

fn goes_offline(cpu: u32, ms: u64) -> Hotplug {
    Hotplug {
        at: Instant::from_ns(ms * 1_000_000),
        cpu: CpuId(cpu),
        online: false,
    }
}

/// A task on `cpu` that computes for a moment after `ms`.
fn late(cpu: u32, ms: u64) -> schedlab_workload::TaskSpec {
    let mut spec = on_cpus(hog("late", 1), &cpu.to_string());
    spec.start = Instant::from_ns(ms * 1_000_000);
    spec
}

/// The answers to `requests` one after the other in ops.running() of the last task.
fn asked_by_last(
    mut scenario: crate::Scenario,
    hotplug: Vec<Hotplug>,
    requests: Vec<Request>,
) -> Vec<Reply> {
    let replies = Rc::new(RefCell::new(Vec::new()));
    let kept = replies.clone();
    let last = TaskId(scenario.workload.tasks.len() as u32 - 1);
    scenario.hotplug = hotplug;
    let policy = Stub::new(&[Running, CpuOffline, CpuOnline], move |a, op| {
        let (kept, requests) = (kept.clone(), requests.clone());
        async move {
            if (OpCall::Running { task: last }) == op {
                for request in requests {
                    let reply = a.ask(request).await;
                    kept.borrow_mut().push(reply);
                }
            }
            0
        }
    });
    run_checked(scenario, policy).is_done();
    replies.take()
}

fn pick_idle_cpu(nr_cpus: usize, flags: u64) -> Request {
    Request::PickCpu {
        allowed: CpuSet::all(nr_cpus),
        node: None,
        flags,
        any: false,
    }
}

/// The answers to `requests` on CPU 1. CPUs 0 and 2 are one core, 1 and 3 the other; CPU 2 has gone, and CPU 0 idles
/// since.
fn asked_beside_half_a_core(requests: Vec<Request>) -> Vec<Reply> {
    let mut machine = machine(1);
    machine.topology = Topology::new(1, 1, 2, 2);
    let tasks = vec![late(0, 10), late(1, 20)];
    let scenario = crate::Scenario::new(machine, workload(Vec::new(), tasks), 1);
    asked_by_last(scenario, vec![goes_offline(2, 5)], requests)
}

/// `cpu_smt_mask()` has the CPUs that are online: a core is wholly idle when those are.
#[test]
fn a_core_of_which_a_thread_is_offline_may_idle_wholly() {
    let pick = pick_idle_cpu(4, pick_idle::CORE);
    assert_eq!(asked_beside_half_a_core(vec![pick]), [Reply::Int(0)]);
}

/// An offline CPU has no siblings (`remove_siblinginfo()`): asking for it leaves the rest of its core wholly idle.
#[test]
fn an_offline_cpu_is_no_part_of_its_core() {
    let claim = Request::TestAndClearIdle { cpu: 2 };
    let requests = vec![claim, pick_idle_cpu(4, pick_idle::CORE)];
    let expected = [Reply::Bool(false), Reply::Int(0)];
    assert_eq!(asked_beside_half_a_core(requests), expected);
}

/// A thread that is back is a part of its core again: where it is busy, its core is not wholly idle.
#[test]
fn a_cpu_that_is_back_is_a_part_of_its_core() {
    let mut machine = machine(1);
    machine.topology = Topology::new(1, 1, 2, 2);
    let mut busy = late(2, 15);
    busy.behaviour = hog("busy", 20).behaviour;
    let tasks = vec![busy, late(0, 20), late(1, 25)];
    let scenario = crate::Scenario::new(machine, workload(Vec::new(), tasks), 1);
    let mut back = goes_offline(2, 10);
    back.online = true;
    let pick = pick_idle_cpu(4, pick_idle::CORE);
    let replies = asked_by_last(scenario, vec![goes_offline(2, 5), back], vec![pick]);
    assert_eq!(replies, [Reply::Int(-errno::EBUSY)]);
}

/// `handle_hotplug()` updates the topology while the CPU that goes is still online: with it not all share a cache.
#[test]
fn the_cpu_that_goes_still_counts_for_the_topology() {
    let replies = Rc::new(RefCell::new(Vec::new()));
    let kept = replies.clone();
    let policy = Stub::new(&[CpuOffline], move |a, op| {
        let kept = kept.clone();
        async move {
            if (OpCall::CpuOffline { cpu: CpuId(3) }) == op {
                let request = Request::SelectCpuDfl {
                    task: TaskId(0),
                    prev_cpu: 1,
                    wake_flags: 0,
                };
                let reply = a.ask(request).await;
                kept.borrow_mut().push(reply);
            }
            0
        }
    });
    // CPUs 0 and 1 share a cache, 2 and 3 another one. CPU 2 has gone; CPU 1 is busy.
    let tasks = vec![periodic("p", 100, 50_000, 2), on_cpus(hog("busy", 30), "1")];
    let mut scenario = scenario(1, tasks);
    scenario.machine.topology = Topology::new(1, 2, 2, 1);
    scenario.hotplug = vec![goes_offline(2, 5), goes_offline(3, 10)];
    run_checked(scenario, policy).is_done();
    assert_eq!(replies.take(), [Reply::Cpu(0, true)]);
}

/// `sched_cpu_deactivate()` comes long before `set_cpu_online()`.
#[test]
fn the_cpu_that_goes_is_still_online_for_the_policy() {
    let masks = Rc::new(RefCell::new(Vec::new()));
    let kept = masks.clone();
    let policy = Stub::new(&[CpuOffline, CpuOnline], move |a, op| {
        let kept = kept.clone();
        async move {
            if let OpCall::CpuOffline { .. } = op {
                let reply = a.ask(Request::OnlineMask).await;
                kept.borrow_mut().push(reply);
            }
            0
        }
    });
    let mut scenario = scenario(2, vec![hog("p", 10)]);
    scenario.hotplug = vec![goes_offline(1, 5)];
    run_checked(scenario, policy).is_done();
    assert_eq!(masks.take(), [Reply::Mask(CpuSet::all(2))]);
}

/// A CPU that was busy goes idle as it goes: no CPU is to find it idle after that.
#[test]
fn a_busy_cpu_that_goes_is_not_idle() {
    let tasks = vec![hog("p", 10), hog("q", 10), late(0, 25)];
    let idle = Request::IdleMask {
        node: None,
        smt: false,
    };
    let requests = vec![idle, pick_idle_cpu(2, 0)];
    let replies = asked_by_last(scenario(2, tasks), vec![goes_offline(1, 5)], requests);
    let nobody = [Reply::Mask(CpuSet::empty(2)), Reply::Int(-errno::EBUSY)];
    assert_eq!(replies, nobody);
}
