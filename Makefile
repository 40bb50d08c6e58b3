# The two commands of the README are `make demo` and `make test`.
CARGO ?= cargo

.PHONY: demo test test-long tools test-tools lint bench

demo: tools
	$(CARGO) build --quiet --bins --examples
	$(CARGO) run --quiet --example demo -- $(if $(KEEP),--keep)

# One after the other: the hosts are not to share the processors with ten thousand simulated fleets.
test: test-tools lint
	$(CARGO) build --quiet --bins --examples
	$(CARGO) test --lib
	$(CARGO) test --test it -- --skip hosts:: --skip the_lab --skip loopback::
	$(CARGO) test --test it -- the_lab hosts:: loopback:: --test-threads 1 --nocapture

# The same with ten times the seeds, and the scenarios with the durations of production.
test-long: test-tools
	$(CARGO) build --quiet --bins --examples
	REMOOR_SIM_SEEDS=100000 REMOOR_LONG=1 $(CARGO) test --no-fail-fast

lint:
	$(CARGO) fmt --check
	$(CARGO) clippy --quiet --all-targets -- -D warnings

bench:
	$(CARGO) bench

# Says what it gets before it does, and what is missing where it can't.
tools:
	@tests/tools.sh

test-tools:
	@tests/tools.sh test
