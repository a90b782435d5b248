//! A policy that still points at tasks that have exited.

use std::path::Path;

use schedlab_report::Exit;
use schedlab_sim::{Scheduler, SimSpec};

const KEEPS: &str = r#"
#include <scx/common.bpf.h>

char _license[] SEC("license") = "GPL";

private(KEEPS) struct task_struct __kptr *last;

s32 BPF_STRUCT_OPS_SLEEPABLE(keeps_init)
{
	return scx_bpf_create_dsq(1, -1);
}

void BPF_STRUCT_OPS(keeps_enqueue, struct task_struct *p, u64 enq_flags)
{
	scx_bpf_dsq_insert(p, 1, SCX_SLICE_DFL, enq_flags);
}

void BPF_STRUCT_OPS(keeps_dispatch, s32 cpu, struct task_struct *prev)
{
	struct task_struct *p = bpf_kptr_xchg(&last, NULL);

	if (p) {
		bool inserted = scx_bpf_dsq_insert(p, SCX_DSQ_GLOBAL, 5, 0);

		bpf_printk("%d pid %d slice %llu cpu %d running %d", inserted, p->pid, p->scx.slice,
			   scx_bpf_task_cpu(p), scx_bpf_task_running(p));
		bpf_task_release(p);
	}
	scx_bpf_dsq_move_to_local(1, 0);
}

void BPF_STRUCT_OPS(keeps_exit_task, struct task_struct *p, struct scx_exit_task_args *args)
{
	struct task_struct *old;

	bpf_printk("exit %d", p->pid);
	old = bpf_kptr_xchg(&last, bpf_task_acquire(p));
	if (old)
		bpf_task_release(old);
}

SCX_OPS_DEFINE(keeps_ops,
	       .enqueue		= (void *)keeps_enqueue,
	       .dispatch	= (void *)keeps_dispatch,
	       .exit_task	= (void *)keeps_exit_task,
	       .init		= (void *)keeps_init,
	       .name		= "keeps");
"#;

/// `scx_bpf_dsq_insert()` of a task that has exited: 7.2 refuses it (`SCX_EV_INSERT_NOT_OWNED`), 6.18 takes it and
/// drops it when it carries it out. Neither ends the policy.
#[test]
fn a_task_that_has_exited_may_be_dispatched_in_vain() {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("keeps.bpf.c");
    std::fs::write(&path, KEEPS).expect("the folder for temporary files is writable");
    let printed = |kernel: &str| {
        let spec = SimSpec {
            cpus: Some(1),
            kernel: kernel.to_owned(),
            ..SimSpec::new(
                "cpu:tasks=3,loops=2,start=together",
                Scheduler::parse(&path.display().to_string()),
                "laptop",
            )
        };
        let result = schedlab_sim::run(&spec, None).expect("it can be begun");
        assert_eq!(result.exit, Exit::Done, "{:?}", result.message);
        result.printed
    };
    let told = |inserted, slice| {
        [
            "exit 1000".to_owned(),
            format!("{inserted} pid 1000 slice {slice} cpu 0 running 0"),
            "exit 1001".to_owned(),
            format!("{inserted} pid 1001 slice {slice} cpu 0 running 0"),
            "exit 1002".to_owned(),
        ]
    };
    assert_eq!(printed("7.2"), told(0, 0));
    assert_eq!(printed("6.18"), told(1, 5));
}
