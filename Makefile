# Two commands do everything that a change needs: `make demo` and `make test`. Both fetch what is missing (see tools/setup).
.PHONY: help demo test test-all check lint docs bench bench-decisions soak vm-cost clean

help:
	@echo "make demo   set up, build, compare schedulers in simulation and in a real kernel"
	@echo "make test   set up, run the tests that every change has to pass, virtual machine included"
	@echo "make test-all  the tests that take long, too: every policy and rule in virtual machines, other builds"
	@echo "make check  format, lints and the tests that need no virtual machine"
	@echo "make docs   the documentation as a site with search (target/book)"
	@echo "make bench  switches per second and peak memory of the simulator"
	@echo "make soak   every scheduler under real programs in virtual machines, a minute each"
	@echo "make vm-cost  cost of schedulers in a virtual machine that counts instructions"
	@echo "make bench-decisions  the cost of each scheduler's choices (docs/decision-cost.md, docs/object-cost.md)"

demo:
	@tools/setup demo
	@tools/demo

test:
	@tools/setup test
	@tools/test

test-all:
	@tools/setup test-all
	@tools/test all

check: lint
	cargo test --locked

lint:
	cargo fmt --check --all
	cargo clippy --locked --all-targets -- -D warnings

docs:
	@tools/docs

bench:
	@tools/bench

soak:
	@tools/setup soak
	@tools/soak

vm-cost:
	@tools/setup soak
	@tools/vm-cost

bench-decisions:
	@cargo bench --locked --quiet -p schedlab-sim --bench decisions
	@cargo bench --locked --quiet -p schedlab-kernel --bench objects

clean:
	cargo clean
