//! Every policy that comes with the program loads, is documented, and asks for what it should.

use schedlab_abi::KernelVersion;
use schedlab_engine::policy::{Env, OpCall, Policy as _, Probes, Reply, Request, Step, TaskView};
use schedlab_machine::{CacheModel, Machine};
use schedlab_trace::{CpuId, CpuSet, Instant, LockPath, TaskId};
use schedlab_workload::{Rng, SchedClass};

fn env<'a>(
    machine: &'a Machine,
    cache: &'a mut CacheModel,
    probes: &'a mut Probes,
    random: &'a mut Rng,
) -> Env<'a> {
    Env {
        cpu: CpuId(0),
        now: Instant::ZERO,
        carry_ps: 0,
        horizon: Instant::from_ns(u64::MAX),
        path: LockPath::Wakeup,
        machine,
        cache,
        probes,
        random,
    }
}

#[test]
fn every_policy_loads_and_says_what_it_is() {
    assert!(schedlab_policies::builtin().len() >= 2);
    let machine = Machine::builtin("laptop").unwrap();
    for file in schedlab_policies::builtin() {
        let object = file.object();
        assert_eq!(object.ops_name(), format!("{}_ops", file.name));
        assert_eq!(file.doc().missing(), Vec::<&str>::new(), "{}", file.name);
        let selection = schedlab_policies::select(file.name).unwrap();
        let policy = selection.load(&machine, KernelVersion::V7_2).unwrap();
        assert_eq!(policy.info().name, file.name);
        for option in object.options() {
            assert!(
                option.doc.is_some(),
                "{}: `{}` has no comment",
                file.name,
                option.name
            );
        }
    }
}

#[test]
fn vtime_inserts_by_virtual_time_with_the_slice_that_was_asked_for() {
    let machine = Machine::builtin("laptop").unwrap();
    let selection = schedlab_policies::select("vtime:slice_us=3000").unwrap();
    let mut policy = selection.load(&machine, KernelVersion::V7_2).unwrap();
    let mut cache = CacheModel::new(&machine);
    let (mut probes, mut random) = (Probes::default(), Rng::new(1));
    let mut env = env(&machine, &mut cache, &mut probes, &mut random);
    let step = policy.call(&mut env, OpCall::Init);
    assert_eq!(step, Step::Ask(Request::CreateDsq { dsq: 0, node: -1 }));
    assert_eq!(policy.reply(&mut env, Reply::Int(0)), Step::Done(0));

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
            weight: 100,
            allowed: &allowed,
            address_space: Some(1),
            flags: 0,
            migration_disabled: false,
        },
    );
    policy.set_vtime(task, 7_000_000);
    let step = policy.call(&mut env, OpCall::Enqueue { task, enq_flags: 1 });
    let expected = Request::DsqInsert {
        task,
        dsq: 0,
        slice: 3_000_000,
        vtime: Some(7_000_000),
        enq_flags: 1,
    };
    assert_eq!(step, Step::Ask(expected));
    assert_eq!(policy.reply(&mut env, Reply::Bool(true)), Step::Done(0));
}

#[test]
fn wrong_names_and_options_are_told_with_the_choices() {
    let error = |text| schedlab_policies::select(text).unwrap_err().to_string();
    assert!(error("nosuch").starts_with("no scheduler is called nosuch: choose one of "));
    assert_eq!(
        error("vtime:slice=1"),
        "vtime has no option `slice`: choose one of slice_us"
    );
    assert!(error("no/such.bpf.c").starts_with("no/such.bpf.c: "));
}
