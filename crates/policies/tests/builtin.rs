//! Every policy that comes with the program loads, is documented, and asks for what it should.

use std::cell::{Cell, RefCell};

use schedlab_abi::{KernelVersion, NativePolicy};
use schedlab_engine::policy::{
    Answer, Env, OpCall, Policy as _, Reply, Request, Shared, TaskView, ThisCpu,
};
use schedlab_fiber::{Fibers, State, Switch};
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet, Scheduler, TaskId};
use schedlab_workload::{Rng, SchedClass};

/// A virtual kernel that answers always the same and notes what it was asked.
struct Notes {
    answer: Reply,
    asked: RefCell<Vec<Request>>,
}

impl Answer for Notes {
    fn answer(&self, request: Request) -> Reply {
        self.asked.borrow_mut().push(request);
        self.answer.clone()
    }

    fn fault(&self, message: String) -> ! {
        panic!("{message}")
    }
}

/// Calls an op and returns what it asked for.
fn call(machine: &Machine, policy: &NativePolicy, op: &OpCall, answer: Reply) -> Vec<Request> {
    let kernel = Notes {
        answer,
        asked: RefCell::default(),
    };
    let switch = Switch::default();
    let shared = Shared {
        cache: RefCell::new(CacheModel::new(machine)),
        random: RefCell::new(Rng::new(1)),
    };
    let (cpu, horizon) = (ThisCpu::new(CpuId(0)), Cell::new(u64::MAX));
    cpu.op.set(Some(op.kind()));
    let env = Env {
        cpu: &cpu,
        shared: &shared,
        horizon: &horizon,
        kernel: &kernel,
    };
    let mut fiber = Fibers::new(&switch);
    fiber
        .spawn(|| assert_eq!(policy.call(&env, op), 0))
        .unwrap();
    assert_eq!(fiber.resume(0), State::Done);
    drop(fiber);
    kernel.asked.take()
}

#[test]
fn every_policy_loads_and_says_what_it_is() {
    assert!(schedlab_policies::builtin().len() >= 2);
    let machine = Machine::builtin("laptop").unwrap();
    for file in schedlab_policies::builtin() {
        let object = file.object();
        // A name in C, and in the kernel, has no hyphen.
        let identifier = file.name.replace('-', "_");
        assert_eq!(object.ops_name(), format!("{identifier}_ops"));
        assert_eq!(file.doc().missing(), Vec::<&str>::new(), "{}", file.name);
        let selection = schedlab_policies::select(&Scheduler::plain(file.name)).unwrap();
        let policy = selection.load(&machine, KernelVersion::V7_2).unwrap();
        assert_eq!(policy.info().name, identifier);
        for option in object.options() {
            assert!(
                option.doc.is_some(),
                "{}: `{}` has no comment",
                file.name,
                option.name
            );
        }
        // Mute options and their conditions name existing values.
        for (name, while_) in file.doc().mute {
            assert!(object.options().iter().any(|option| option.name == name));
            let text = format!("{}:{while_}", file.name);
            schedlab_policies::select(&Scheduler::parse(&text)).unwrap();
        }
    }
}

#[test]
fn vtime_inserts_by_virtual_time_with_the_slice_that_was_asked_for() {
    let machine = Machine::builtin("laptop").unwrap();
    let selection = schedlab_policies::select(&Scheduler::parse("vtime:slice_us=3000")).unwrap();
    let policy = selection.load(&machine, KernelVersion::V7_2).unwrap();
    let asked = call(&machine, &policy, &OpCall::Init, Reply::Int(0));
    assert_eq!(asked, [Request::CreateDsq { dsq: 0, node: -1 }]);

    let task = TaskId(3);
    let allowed = CpuSet::all(machine.topology.nr_cpus());
    policy.sync_task(
        task,
        &TaskView {
            comm: "worker",
            tgid: task.pid(),
            parent: None,
            nice: 0,
            class: SchedClass::Normal,
            prio: 120,
            weight: 100,
            allowed: &allowed,
            address_space: Some(1),
            flags: 0,
            migration_disabled: false,
            cgroup: schedlab_workload::CgroupId::ROOT,
        },
    );
    policy.set_vtime(task, 7_000_000);
    let op = OpCall::Enqueue { task, enq_flags: 1 };
    let asked = call(&machine, &policy, &op, Reply::Bool(true));
    let expected = Request::DsqInsertVtime {
        task,
        dsq: 0,
        slice: 3_000_000,
        vtime: 7_000_000,
        enq_flags: 1,
    };
    assert_eq!(asked, [expected]);
}

#[test]
fn wrong_names_and_options_are_told_with_the_choices() {
    let error = |text| {
        let selected = schedlab_policies::select(&Scheduler::parse(text));
        selected.unwrap_err().to_string()
    };
    assert!(error("nosuch").starts_with("no scheduler is called nosuch: choose one of "));
    assert_eq!(
        error("vtime:slice=1"),
        "vtime has no option `slice` (did you mean `slice_us`?): choose one of slice_us"
    );
    assert!(error("no/such.bpf.c").starts_with("no/such.bpf.c: "));
}
