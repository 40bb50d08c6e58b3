# The two commands of the README are `make demo` and `make test`.
CARGO ?= cargo
# After what the machine has: goss, as tests/tools.sh fetches it.
export PATH := $(PATH):$(abspath $(or $(CARGO_TARGET_DIR),target))/tools/bin

.PHONY: demo test test-long ten tools test-tools previous lint deny fuzz bench bench-checks bench-members bench-playbooks

demo: tools
	$(CARGO) build --quiet --bins --examples
	$(CARGO) run --quiet --example demo -- $(if $(KEEP),--keep)

# Two for each processor: most of a test's time is waiting.
THREADS = $(shell expr 2 \* $$(nproc))

# One after the other: the hosts are not to share the processors with ten thousand simulated fleets. But what is compiled is
# compiled at once, since half of a crate's time is of one processor.
test: test-tools lint deny
	$(CARGO) build --quiet --bins --examples --tests
	@tests/previous.sh $(PREVIOUS) & tests/fuzz/run.sh --build && wait $$!
	$(CARGO) test --lib -- --test-threads $(THREADS)
	$(CARGO) test --test it -- --skip hosts:: --skip the_lab --skip loopback:: --skip faults:: --test-threads $(THREADS)
	$(CARGO) test --test it -- faults:: --nocapture
	tests/fuzz/run.sh
	$(CARGO) test --test it -- the_lab hosts:: loopback:: --test-threads 2 --nocapture

# The same with ten times the seeds, and the scenarios with the durations of production: hours.
test-long: test-tools
	$(CARGO) build --quiet --bins --examples
	@tests/previous.sh $(PREVIOUS)
	$(CARGO) test --lib
	REMOOR_SIM_SEEDS=100000 $(CARGO) test --test it -- --skip hosts:: --skip the_lab --skip loopback:: --skip faults::
	REMOOR_LONG=1 REMOOR_FAULT_ROUNDS=500 $(CARGO) test --test it -- faults:: --nocapture
	REMOOR_FUZZ_SECONDS=600 tests/fuzz/run.sh
	REMOOR_LONG=1 $(CARGO) test --test it -- the_lab hosts:: loopback:: --test-threads 1 --nocapture

# Ten runs in a row of the host tests with the program that users run, strict: nothing is told twice, and the first failure
# ends it and counts from one again. Two hours and more, as root; begun again on the same code it goes on where it was ended.
TEN = $(or $(CARGO_TARGET_DIR),target)/tmp
CODE = Cargo.toml Cargo.lock src tests playbooks checks templates
ten: test-tools
	$(CARGO) build --quiet --release --bins --example contiv-standin
	$(CARGO) test --quiet --test it --no-run
	@mkdir -p $(TEN) && touch $(TEN)/ten-runs.log; trap 'echo "ended by hand: this run does not count"; exit 130' INT TERM; \
	code=$$(git ls-files -s $(CODE) | git hash-object --stdin | cut -c1-12); commit=$$(git describe --always); \
	before=$$(awk -v code="$$code" '$$1 == code { n = /passed/ ? n + 1 : 0 } END { print n + 0 }' $(TEN)/ten-runs.log); \
	echo "$$before of ten passed with this code before"; \
	for run in $$(seq $$((before + 1)) 10); do \
		git diff --quiet $$commit -- $(CODE) || { echo "commit first: a run is of something that others can have"; exit 1; }; \
		began=$$(date +%s); at=$$(date -u +%Y-%m-%dT%H:%M:%SZ); log=$(TEN)/ten-run-$$run.log; result=passed; \
		REMOOR_PROFILE=release REMOOR_STRICT=1 REMOOR_LAB_REQUIRED=1 $(CARGO) test --test it -- hosts:: --test-threads 1 --nocapture \
			>$$log 2>&1 || result=FAILED; \
		echo "$$code $$commit run $$run $$at $$result in $$(($$(date +%s) - began)) s" | tee -a $(TEN)/ten-runs.log; \
		if [ $$result = FAILED ]; then grep -aE '^(FAIL|Error|thread)' $$log | tee -a $(TEN)/ten-runs.log; \
			echo "all of it: $$log"; exit 1; fi; \
	done

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --quiet --all-targets -- -D warnings

# What may be depended upon (deny.toml). Advisories need a database from the network, so they are asked for by hand.
deny:
	@command -v cargo-deny >/dev/null || echo "remoor: installing cargo-deny with cargo"
	@command -v cargo-deny >/dev/null || $(CARGO) install --quiet --locked --debug cargo-deny \
		|| echo "SKIPPED: CARGO DENY: it can't be installed here"
	@! command -v cargo-deny >/dev/null || $(CARGO) deny --log-level error check bans licenses sources

# What others wrote, as check files and templates, or send, as digests and gossip, in forms that nobody would write: no fault
# and no hang, for a minute each. REMOOR_FUZZ_SECONDS=3600 for a long look.
fuzz:
	tests/fuzz/run.sh

# The figures of docs/performance.md, measured here and now; an hour, as root. REMOOR_BENCH_ROUNDS=3 is a first look.
FIGURES = $(or $(CARGO_TARGET_DIR),target)/tmp/figures
bench: tools
	$(CARGO) build --quiet --release --bins --example contiv-standin
	rm -f $(FIGURES)-*.md
	$(CARGO) bench --quiet --bench engine
	$(CARGO) bench --quiet --bench hosts
	@echo; echo "| what | at least | found | command |"; echo "|---|---|---|---|"
	@cat $(FIGURES)-hosts.md $(FIGURES)-engine.md

# Checks and digests beside the tools that do the like, those that are installed; it says which are not. Minutes, as root.
bench-checks: test-tools
	$(CARGO) build --quiet --release --bins
	REMOOR_LAB_PACKAGES=python3-testinfra $(CARGO) bench --quiet --bench checks
	$(CARGO) bench --quiet --bench files

# How long nobody answers when the leader of three managers dies or goes, and how many decisions they take beside Debian's etcd in
# the same run. Any user; REMOOR_BENCH_ROUNDS=3 is a first look, REMOOR_BENCH_ONLY=failover,transfer,writes,joins a part.
bench-members: test-tools
	$(CARGO) build --quiet --release --bins
	$(CARGO) bench --quiet --bench members

# A playbook beside ansible-core, mitogen, pyinfra, cf-agent and puppet, which come by pip and apt into target/tmp; it says which
# can't. Any user; REMOOR_BENCH_ROUNDS=1 REMOOR_BENCH_HOSTS=1 is a first look.
bench-playbooks: test-tools
	$(CARGO) build --quiet --release --bins
	$(CARGO) bench --quiet --bench playbooks

# Says what it gets before it does, and what is missing where it can't.
tools:
	@tests/tools.sh

test-tools:
	@tests/tools.sh test

# The program as it was published last, which runs in one cluster with this one in tests/it/versions.rs. Named anew with each
# publication.
PREVIOUS = 052f548
previous:
	$(CARGO) build --quiet --bins --examples
	@tests/previous.sh $(PREVIOUS)
