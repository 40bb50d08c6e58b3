# The two commands of the README are `make demo` and `make test`.
CARGO ?= cargo
# After what the machine has: goss, as tests/tools.sh fetches it.
export PATH := $(PATH):$(abspath $(or $(CARGO_TARGET_DIR),target))/tools/bin

.PHONY: demo test test-long ten tools test-tools previous published lint fmt deny deny-if-there fuzz bench bench-checks bench-members bench-playbooks

demo: tools
	$(CARGO) build --quiet --bins --examples
	$(CARGO) run --quiet --example demo -- $(if $(KEEP),--keep)

# Two for each processor: most of a test's time is waiting.
THREADS = $(shell expr 2 \* $$(nproc))
IT = $(CARGO) test --test it --
SIM = $(CARGO) test --package remoor-engine --test sim --

# The gate of each change. Its goal is 25 minutes on two processors from a fresh clone. Its output names in capitals what it
# leaves out; the pieces of `make test-long` run that. Everything is compiled first and once. Then one phase follows the other,
# the quick ones first. Fault and host tests mostly wait, so clippy runs at the same time with the lowest priority. A failure
# of clippy is printed at once and fails the gate. `make lint` runs clippy alone.
test: test-tools fmt deny-if-there
	$(CARGO) build --quiet --bins --examples --tests
	$(CARGO) test --lib -- --test-threads $(THREADS)
	$(SIM)
	$(IT) --skip hosts:: --skip the_lab --skip loopback:: --skip faults:: --skip versions:: --test-threads $(THREADS)
	$(IT) versions:: --nocapture
	@{ nice -n 19 $(CLIPPY) || { echo "FAIL: clippy; next: make lint"; false; }; } & lint=$$!; \
	$(IT) faults:: --nocapture && $(IT) the_lab hosts:: loopback:: --test-threads 2 --nocapture; tests=$$?; \
	wait $$lint && exit $$tests

# All tests: hours. The pieces can be run one by one, in any order. Each leaves its log in target/tmp/long-*.log, which begins
# with the commit and ends with "passed". `make -k test-long` continues after a piece that failed.
LONG = long-lib long-sim long-versions long-faults long-fuzz long-hosts long-durations
.PHONY: $(LONG)
test-long: $(LONG)

LOGS = $(or $(CARGO_TARGET_DIR),target)/tmp
# Runs a command and keeps what it says, with the commit before it and the result after it.
logged = @mkdir -p $(LOGS) && { git describe --always --dirty; date -u +%Y-%m-%dT%H:%M:%SZ; } >$(LOGS)/$@.log && \
	bash -o pipefail -c '{ $(1); } 2>&1 | tee -a $(LOGS)/$@.log' && echo "$@ passed" | tee -a $(LOGS)/$@.log

# The tests of `make test` that take more cases here.
long-lib: test-tools
	$(call logged,REMOOR_LONG=1 $(CARGO) test --lib && REMOOR_LONG=1 $(IT) fuzzed:: killed::)

# 100,000 seeds of each simulation instead of 1,000.
long-sim:
	$(call logged,REMOOR_SIM_SEEDS=100000 $(SIM) --nocapture)

# Managers of this version and of the previous one in one cluster, whether or not a format has changed.
long-versions: previous
	$(call logged,$(IT) versions:: --nocapture)

# 500 rounds of all faults, with a seed that is said, instead of 8 rounds of 8 faults with one seed.
long-faults: test-tools
	$(CARGO) build --quiet --bins --examples
	$(call logged,REMOOR_LONG=1 REMOOR_FAULT_SEED=$${REMOOR_FAULT_SEED:-$$(date +%s)} REMOOR_FAULT_ROUNDS=500 $(IT) faults:: --nocapture)

# Ten minutes of libFuzzer for each target.
long-fuzz: test-tools
	$(call logged,REMOOR_FUZZ_SECONDS=600 tests/fuzz/run.sh)

# All stories on real hosts, instead of one for each mechanism.
long-hosts: test-tools
	$(CARGO) build --quiet --bins --examples
	$(call logged,REMOOR_STORIES=all $(IT) the_lab hosts:: loopback:: --test-threads 2 --nocapture)

# The same with the durations of production: hours.
long-durations: test-tools
	$(CARGO) build --quiet --bins --examples
	$(call logged,REMOOR_LONG=1 REMOOR_STORIES=all $(IT) hosts:: --test-threads 1 --nocapture)

# Ten runs in a row of the host tests with the program that users run, strict: nothing is told twice, and the first failure
# ends it and counts from one again. Two hours and more, as root; begun again on the same code it goes on where it was ended.
TEN = $(or $(CARGO_TARGET_DIR),target)/tmp
CODE = Cargo.toml Cargo.lock src crates tests playbooks checks templates
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
		REMOOR_STORIES=all REMOOR_PROFILE=release REMOOR_STRICT=1 REMOOR_LAB_REQUIRED=1 $(CARGO) test --test it -- hosts:: --test-threads 1 --nocapture \
			>$$log 2>&1 || result=FAILED; \
		echo "$$code $$commit run $$run $$at $$result in $$(($$(date +%s) - began)) s" | tee -a $(TEN)/ten-runs.log; \
		if [ $$result = FAILED ]; then grep -aE '^(FAIL|Error|thread)' $$log | tee -a $(TEN)/ten-runs.log; \
			echo "all of it: $$log"; exit 1; fi; \
	done

lint: fmt
	$(CLIPPY)

fmt:
	$(CARGO) fmt --all --check

# In a build directory of its own, so that nothing waits for its lock. It shares nothing with a build but compiled macros.
CLIPPY = $(CARGO) clippy --quiet --target-dir $(or $(CARGO_TARGET_DIR),target)/clippy --all-targets -- -D warnings

# What may be depended upon (deny.toml). Advisories need a database from the network, so they are asked for by hand. `make deny`
# installs cargo-deny, which takes minutes; `make test` uses it where it is installed, and nothing waits for its compilation.
DENY = $(CARGO) deny --log-level error check bans licenses sources
deny:
	@command -v cargo-deny >/dev/null || { echo "remoor: installing cargo-deny with cargo"; \
		$(CARGO) install --quiet --locked --debug cargo-deny; }
	$(DENY)

deny-if-there:
	@if command -v cargo-deny >/dev/null; then $(DENY); \
		else echo "SKIPPED: CARGO DENY: it is not installed; next: make deny" >&2; fi

# What others wrote, as check files and templates, or send, as digests and gossip, in forms that nobody would write: no fault
# and no hang, for a minute each by libFuzzer. REMOOR_FUZZ_SECONDS=3600 for a long look.
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

# The program of the previous version, which runs in one cluster with this one in tests/it/versions.rs. It is named by the file of
# its formats.
PREVIOUS = $(shell sed -n 's/^\# commit //p' tests/fixtures/formats.txt)
previous:
	$(CARGO) build --quiet --bins --examples
	@tests/previous.sh $(PREVIOUS)

# After a publication: this commit is the previous version from now on.
published:
	REMOOR_PUBLISHED=$$(git rev-parse --short HEAD) $(IT) --exact formats::types::the_formats_of_the_previous_version_are_known
