//! Runs the C tests of the policies' rules and of the policy library: `rules/*.c`, where a scripted
//! kernel calls one op after another. Each is a test here under its own name.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// A C file with tests and its program, compiled once.
struct Program {
    source: &'static str,
    built: OnceLock<PathBuf>,
}

impl Program {
    const fn new(source: &'static str) -> Self {
        Program {
            source,
            built: OnceLock::new(),
        }
    }

    fn path(&self) -> &Path {
        self.built
            .get_or_init(|| support::compile("rules", self.source))
    }

    fn run(&self, test: &str) {
        let output = Command::new(self.path())
            .arg(test)
            .output()
            .expect("it was just compiled");
        assert!(
            output.status.success(),
            "{test}: {}, {}",
            output.status,
            String::from_utf8_lossy(&output.stdout)
        );
    }

    /// The tests of the file are exactly those that run here.
    fn has_just(&self, names: &[&str]) {
        let output = Command::new(self.path())
            .output()
            .expect("it was just compiled");
        let listed = String::from_utf8(output.stdout).expect("names are ASCII");
        assert_eq!(listed.lines().collect::<Vec<_>>(), names);
    }
}

macro_rules! rules {
    ($module:ident: $($name:ident,)*) => {
        mod $module {
            static PROGRAM: super::Program = super::Program::new(stringify!($module));
            #[test]
            fn none_is_left_out() {
                PROGRAM.has_just(&[$(stringify!($name)),*]);
            }
            $(#[test]
            fn $name() {
                PROGRAM.run(stringify!($name));
            })*
        }
    };
}

rules! {
    dss:
        t1_goodness, t2_choice, t3_tie, t3_tie_by_list, t4_recalculation, t5_sequences, t6_yield,
        t6_yield_alone, t6_only_yielders, yield_realtime, t7_fork, t8_exit, t9_tick,
        t9_running_time, t10_placement_idle, t10_placement_oldest, t11_placement_busy,
        t11_placement_first_of_equals, t11_threshold, t12_realtime_placement,
        t13_2_3_99_lone_yielder, t13_2_3_99_yielder, t14_round_robin, t15_quantum, wakeup, displaced,
        displaced_after_sync_wakeup, address_space, blocking, woken_before_it_left, late_interrupt,
        attribute_change, policy_change, pinned, pinned_preempts, one_cpu, late_mask, failed_lookup, yielders,
        option_ranges,
}

rules! {
    library:
        list_like_an_array, list_budget, contexts_like_a_set, cached_mask, claimed_while_put_away,
        claimed_by_its_new_number, no_context_left, last_context_taken_by_another_cpu,
        too_many_cpus,
}

rules! {
    list_model: like_an_array, a_planted_fault_is_found, a_broken_link_is_found,
}

rules! {
    prio_model: like_a_model, a_planted_fault_is_found, a_broken_link_is_found, a_wrong_bit_is_found, constant_cost,
}

rules! {
    pls:
        t1_affinity_wins_and_ends_the_search, t2_within_the_bonus, t2_equal_is_not_better,
        t2_below_the_bonus, t3_recalculation, t3_idle, t3_idle_beside_expired, t3_expired_alone,
        t4_yielder_last, t4_yielder_alone, yielder_and_expired, t5_no_bonus_for_the_address_space,
        t6_fork, previous_task_first, not_schedulable, realtime_on_top, round_robin, tick_moves,
        choice_moves, exit_moves, nice_moves, policy_moves, wakeup, blocking, late_mask, pinned, pinned_preempts,
}

rules! {
    elsc:
        t1_index, t2_limit, t3_tasks_with_ticks_first, t4_recalculation_moves_nobody,
        t5_best_of_the_list, t5_uniprocessor, t5_previous_task_on_one_cpu, t6_only_the_top_list,
        t7_yielder_beside_another, t7_yielder_alone_in_the_top_list, t7_lone_yielder,
        yielder_below_the_top, yielder_expired, t8_beyond_the_limit, t9_idle, leaving_another_cpu,
        yielder_in_its_own_list, realtime, round_robin, running_tasks_are_out, displaced,
        charged_after_the_search, refiled, masks_do_not_count, masks_recalculation, masks_idle,
        late_mask, pinned, pinned_preempts,
}

rules! {
    o1:
        t1_no_sleep, t2_half_asleep, t3_always_asleep, t4_one_second, t5_stale_slot,
        t6_active_before_expired, t7_slices, t8_balance_rate, balance_after_a_late_tick,
        history_of_running, expiry, refreshed_by_tick, wakeup_preempts, fork_splits_slice,
        yield_steps_down, balance_takes_expired, balance_threshold, balance_next_longest, balance_not_running,
        idle_tick, constant_cost, fair_slices, nice_change, nice_change_keeps_the_array, realtime_placement, realtime_locks,
        realtime_mask, round_robin, late_interrupt, failed_lookup, random_operations,
        lost_its_cpu,
}

rules! {
    arrays_model: like_a_model, a_planted_fault_is_found, a_wrong_swap_is_found,
}

rules! {
    mq:
        t1_local, t1_order, add_publishes, t2_stolen, t2_repaired, t3_lock_not_free, t4_next_best,
        t4_best, t4_equals, t4_all_busy, t5_strict, t5_one_more, t6_expired_elsewhere, t6_recalculated, t6_recalculated_tie, t6_recalculated_yielded,
        recheck, t7_idle_longest, t7_last_cpu_first, t7_lock_not_free, t8_busy, t8_verified,
        t8_own_first, t8_threshold, t8_out_of_date, t9_mask, premature_idle, idle, missed,
        missed_asleep, recalculated_once, tie_goes_on, displaced, sync_only_adds, robbed_while_idle,
        recalculated_while_idle, recalculated_while_busy, woken_before_it_left, yield_with_nobody_waiting,
        yield_to_another_queue, yield_beside_expired, tick, realtime, realtime_placement,
        round_robin, policy_change, affinity_change, attribute_change, late_mask, pinned, pinned_preempts,
        cache_lines, option_ranges,
}

rules! {
    mq_local:
        rmq_t1_idle_beside_a_queue, rmq_t2_inversion, wakeup, sync_from_another_cpu, fork_stays,
        realtime, yield_locally, recalculation, pinned, pinned_preempts,
}

rules! {
    mq_pool:
        pool_t1_not_from_another_pool, pool_t2_all_is_mq, pool_t2_one_is_mq_local,
        pools_follow_nodes, placement, realtime, balance_timer, no_balance, balance_moves,
        balance_two_tasks, balance_not_one_task, balance_not_a_quarter, balance_more_than_a_quarter,
        balance_by_cpus, balance_not_allowed, balance_lock_not_free, balance_most_loaded, pinned, pinned_preempts,
}

rules! {
    o1_26:
        t1_slices, t2_bonus, t3_interactive_sleep, t4_granularity, t5_wakeup_gain, t6_running_costs,
        interactive, wait_counts, runnable_before, expiry, starvation, starvation_bound,
        starvation_by_nice, granularity, fork_splits_slice, exit_returns, yield_expires, wake_affine, wake_idle, wakeup_preempts,
        load, imbalance, balance, balance_warm_by_running, balance_keeps_array, balance_interval,
        balance_after_a_late_tick, balance_nodes, idle_tick, realtime, realtime_placement, constant_cost,
        fair_slices, nice_change, nice_change_keeps_the_array, random_operations,
        lost_its_cpu,
}

rules! {
    elsc_heap:
        a_heap_for_each_cpu_and_address_space, the_firsts_only, t2_choice, t3_previous_task_first,
        the_newest_of_equals, t4_recalculation, t4_recalculation_beside_others, t6_yield,
        t6_only_yielders, realtime, not_schedulable, nobody_schedulable, refiled, room_for_all,
        one_chain, one_chain_budget, late_mask, displaced, pinned, pinned_preempts,
}

rules! {
    heap_model: like_an_array, a_planted_fault_is_found, a_broken_tree_is_found, logarithmic, budget,
}

rules! {
    bmqs:
        history, history_of_a_run, goodness, history_decides, fork_to_the_shortest,
        fork_fewest_tasks, fork_here, wakeup, sync_only_adds, displaced, own_queue, tie_goes_on,
        recalculation, yield_alone, yield_to_another, balance_asks, balance_not_for_one,
        balance_whom, idle_cpus_balance, handed_over, not_handed_over_before, nothing_else_to_run,
        hand_over_lock_not_free, tick, exit_of_a_child, round_robin, blocking, woken_before_it_left,
        affinity_change, attribute_change, late_mask, pinned, pinned_preempts, option_ranges,
}

rules! {
    ule:
        t1_score, t2_priority, t3_calendar, t4_slices, t5_balance_period, t6_balance, t6_balanced,
        t6_one_move, balance_next_receiver, t7_history, cpu_use, preemption, notify, choice, slice_and_preemption, slices_by_load,
        calendar_clock, calendar_goes_on, worst_batch_thread_runs, fork_and_exit, wakeup_refills,
        placement_warm, placement_busy, placement_cores, steal, yield_stays_in_the_slot,
        constant_cost, random_operations, lost_its_cpu, option_ranges,
}

rules! {
    rb_model: like_a_sorted_array, a_planted_fault_is_found, a_wrong_colour_is_found, a_wrong_least_is_found, depth_is_bounded,
}

rules! {
    skip_model: like_a_sorted_array, a_planted_fault_is_found, a_broken_link_is_found, cost,
}

rules! {
    bfs:
        t1_ratios, t2_distances, t3_passed_deadline, t4_sleeper_keeps_its_deadline,
        earliest_deadline, slice, alone, one_queue, cache_distance, levels, idle_priority,
        idle_priority_wakes, idle_priority_bound, realtime_in_order, placement, placement_by_level,
        affinity, fork_, yield_, iso_limit, bound_of_waiting, attribute_change, fifo_yield,
        option_ranges,
}

rules! {
    muqss:
        t1_earliest_of_all, t1_lock_not_free, t1_no_lock_free, t1_previous_task,
        t2_not_interactive, t2_longer_queue, t3_order, idle_priority, recheck, first_at_hand,
        shared_queues, placement, sleeper_keeps_its_deadline, slice, round_robin,
        attribute_change, fifo_yield,
}

rules! {
    cfs:
        t1_factor, t2_period, t3_slices, t4_virtual_time, t5_sleeper, idle_policy_least_turn,
        t6_wakeup_preemption, wakeup_preempts, least_virtual_time_runs, tick_ends_a_turn, tick_ends_a_lead, tick_alone,
        fork_, fork_child_first, yield_, yield_batch, policies, moved, hint_of_one_who_went_elsewhere,
        moved_by_the_local_queue, fairness_bound, idle_takes, idle_is_short,
        idle_leaves_warm_caches, balance_interval, bound_queue, balance, offline_cpus, placement, fork_goes_to_the_idlest,
        active_balance, active_balance_one_of_two, active_balance_by_mask, active_balance_not_allowed,
        active_balance_no_idle_core, active_balance_own_core, active_balance_in_a_row,
        active_balance_too_late, active_balance_not_alone, attribute_change, option_ranges,
}

rules! {
    eevdf:
        t1_eligible, t2_join, t2_negative_lag, t3_shorter_request_first, t4_deadline, slice,
        slice_of_later_kernels, request_fulfilled, parity, parity_ends_with_eligibility,
        short_request_preempts, short_request_off, sleep_keeps_lag, fork_, yield_, moved,
        idle_leaves_warm_caches, balance_interval, bound_queue, like_a_plain_search, fairness_bound,
        option_ranges,
}

rules! {
    feature:
        slices, out_of_balance, load_decays, rbtree_least_runtime, linkedlist_least_runtime, fifo_arrival,
        election_cost, runtime_is_charged, slice_ends, slice_of_the_pick, slice_alone, slice_infinite, interrupted,
        turn_ends_beside_higher_class, turn_ends_beside_changes, yields, no_wakeup_preemption,
        sleepers_do_not_hoard, moved_runtime, metric_runnable, metric_blocked,
        metric_used, source, balance_not_running, balance_not_allowed, conflict_fails, idle_event,
        periodic_never, periodic_random, periodic_nr_cores, executors_draw, executor_all,
        executor_node, executor_offline, executor_core, nobody_waits, unblock_off, placement_reach,
        placement_of_equals, placement_mask, random_rbtree, random_linkedlist, random_fifo,
        lost_its_cpu, clock_while_alone, turn_ended_before_it_lost_its_cpu,
}
