# The two commands of the README are `make demo` and `make test`.
CARGO ?= cargo
# tests/tools.sh downloads goss to this directory. The directory is last in PATH, so that a goss of
# the machine is preferred.
TOOLS = $(abspath $(or $(CARGO_TARGET_DIR),target))/tools
export PATH := $(PATH):$(TOOLS)/bin

.PHONY: demo test test-long ten tools test-tools previous published lint fmt deny deny-if-installed fuzz packages bench bench-checks bench-members bench-playbooks

demo: tools
	@echo "remoor: building the program; the first build takes several minutes"
	$(CARGO) build --quiet --bins --examples
	$(CARGO) run --quiet --example demo -- $(if $(KEEP),--keep)

# Two test threads for each processor, because tests mostly wait.
THREADS = $(shell expr 2 \* $$(nproc))
IT = $(CARGO) test --test it --
SIM = $(CARGO) test --package remoor-engine --test sim --

# The gate of each change. Its goal is 25 minutes on two processors from a fresh clone. The output
# names the omitted tests in capitals; `make test-long` runs them. First, everything is compiled
# once. Then the phases run one after the other, the quick ones first. Tests of daemons mostly wait,
# so work for the processor runs beside them with a lower priority: the program of the previous
# version beside `it`, clippy beside faults and hosts. A failure of clippy is printed at once and
# fails the gate. `make lint` runs clippy alone.
test: test-tools fmt deny-if-installed
	$(CARGO) build --quiet --bins --examples --tests
	$(CARGO) test --lib -- --test-threads $(THREADS)
	$(CARGO) test --doc
	$(SIM)
	@echo "SKIPPED: THREE MANAGERS WITH A ROUND TRIP OF 300 MS: it needs a machine at rest; next: make long-distance"
	@mkdir -p $(LOGS); nice $(IT) versions:: --nocapture >$(LOGS)/versions.log 2>&1 & versions=$$!; \
	$(IT) --skip hosts:: --skip the_lab --skip loopback:: --skip faults:: --skip versions:: --skip distance:: --test-threads $(THREADS); tests=$$?; \
	wait $$versions || tests=1; cat $(LOGS)/versions.log; exit $$tests
	@{ nice -n 19 $(CLIPPY) || { echo "FAIL: clippy; next: make lint"; false; }; } & lint=$$!; \
	$(IT) faults:: --nocapture && $(IT) the_lab hosts:: loopback:: --test-threads 2 --nocapture; tests=$$?; \
	wait $$lint && exit $$tests

# All tests; they take hours. Each of the targets can be run alone, in any order. Each target writes
# a log to target/tmp/long-*.log, which begins with the commit and ends with "passed". `make -k
# test-long` continues after a failed target.
LONG = long-lib long-sim long-topics long-versions long-distance long-faults long-fuzz long-hosts long-durations
.PHONY: $(LONG)
test-long: $(LONG)

LOGS = $(or $(CARGO_TARGET_DIR),target)/tmp
# Runs a command. The log has the commit and the time first, then the output of the command. After a
# success, the last line of the log is `... passed`.
logged = @mkdir -p $(LOGS) && { git describe --always --dirty; date -u +%Y-%m-%dT%H:%M:%SZ; } >$(LOGS)/$@.log && \
	bash -o pipefail -c '{ $(1); } 2>&1 | tee -a $(LOGS)/$@.log' && echo "$@ passed" | tee -a $(LOGS)/$@.log

# The tests of `make test` that run more cases with REMOOR_LONG=1.
long-lib: test-tools
	$(call logged,REMOOR_LONG=1 $(CARGO) test --lib && REMOOR_LONG=1 $(IT) fuzzed:: killed::)

# 100,000 seeds of each simulation instead of 1,000.
long-sim:
	$(call logged,REMOOR_SIM_SEEDS=100000 $(SIM) --nocapture)

# Compares topics of Ansible's language with recorded results of Ansible. The programs
# `tests/corpus/ansible.py`, `tests/corpus/import.py` and `tests/goss/corpus.py` measure public
# content, which they clone.
long-topics: test-tools
	$(CARGO) build --quiet --bins
	$(call logged,REMOOR_ANSIBLE_PYTHON=$(TOOLS)/ansible/bin/python3 python3 tests/corpus/topics.py --work $(LOGS)/topics \
		--python $(TOOLS)/ansible/bin/python3 --remoor $(or $(CARGO_TARGET_DIR),target)/debug/remoor)

# Tests managers of this version and of the previous one in one cluster, even if no format has
# changed.
long-versions: previous
	$(call logged,$(IT) versions:: --nocapture)

# Three managers with a round trip of 300 ms. The test checks that the leader stays the same. Other
# work on the machine could make the test fail, so `make test` omits it.
long-distance:
	$(CARGO) build --quiet --bins --examples
	$(call logged,$(IT) distance:: --nocapture)

# 500 rounds of all faults. `make test` runs 8 rounds of 8 faults. Each run has a new seed, which
# the test prints.
long-faults: test-tools
	$(CARGO) build --quiet --bins --examples
	$(call logged,REMOOR_LONG=1 REMOOR_FAULT_SEED=$${REMOOR_FAULT_SEED:-$$(date +%s)} REMOOR_FAULT_ROUNDS=500 $(IT) faults:: --nocapture)

# Ten minutes of libFuzzer for each target.
long-fuzz: test-tools
	$(call logged,REMOOR_FUZZ_SECONDS=600 tests/fuzz/run.sh)

# All stories on real hosts. `make test` runs one story for each mechanism.
long-hosts: test-tools
	$(CARGO) build --quiet --bins --examples
	$(call logged,REMOOR_STORIES=all $(IT) the_lab hosts:: loopback:: --test-threads 2 --nocapture)

# All stories on real hosts with the durations of production. They take hours.
long-durations: test-tools
	$(CARGO) build --quiet --bins --examples
	$(call logged,REMOOR_LONG=1 REMOOR_STORIES=all $(IT) hosts:: --test-threads 1 --nocapture)

# Runs the host tests ten times in a row with the release build. No test is repeated after a
# failure: the first failure ends the series, and the next series begins with run 1. A series takes
# more than two hours and needs root. An interrupted series is continued if the code is the same.
TEN = $(or $(CARGO_TARGET_DIR),target)/tmp
CODE = Cargo.toml Cargo.lock src crates tests playbooks checks templates
ten: test-tools
	$(CARGO) build --quiet --release --bins --example contiv-standin
	$(CARGO) test --quiet --test it --no-run
	@mkdir -p $(TEN) && touch $(TEN)/ten-runs.log; trap 'echo "interrupted: this run does not count"; exit 130' INT TERM; \
	code=$$(git ls-files -s $(CODE) | git hash-object --stdin | cut -c1-12); commit=$$(git describe --always); \
	before=$$(awk -v code="$$code" '$$1 == code { n = /passed/ ? n + 1 : 0 } END { print n + 0 }' $(TEN)/ten-runs.log); \
	echo "$$before of ten runs have passed with this code"; \
	for run in $$(seq $$((before + 1)) 10); do \
		git diff --quiet $$commit -- $(CODE) || { echo "uncommitted changes; next: commit them, because the log names the commit"; exit 1; }; \
		began=$$(date +%s); at=$$(date -u +%Y-%m-%dT%H:%M:%SZ); log=$(TEN)/ten-run-$$run.log; result=passed; \
		REMOOR_STORIES=all REMOOR_PROFILE=release REMOOR_STRICT=1 REMOOR_LAB_REQUIRED=1 $(CARGO) test --test it -- hosts:: --test-threads 1 --nocapture \
			>$$log 2>&1 || result=FAILED; \
		echo "$$code $$commit run $$run $$at $$result in $$(($$(date +%s) - began)) s" | tee -a $(TEN)/ten-runs.log; \
		if [ $$result = FAILED ]; then grep -aE '^(FAIL|Error|thread)' $$log | tee -a $(TEN)/ten-runs.log; \
			echo "full log: $$log"; exit 1; fi; \
	done

# The Debian package and the RPM package of this commit, in target/packages. The release build takes
# many minutes.
packages:
	packaging/build.sh

lint: fmt
	$(CLIPPY)

fmt:
	$(CARGO) fmt --all --check

# clippy has its own target directory, so that clippy and builds do not wait for each other's lock.
# Separate directories cost little, because the two could share only compiled macros.
CLIPPY = $(CARGO) clippy --quiet --target-dir $(or $(CARGO_TARGET_DIR),target)/clippy --all-targets -- -D warnings

# Checks the dependencies by the rules of deny.toml. Advisories need a database from the network. If
# the database can't be downloaded, a line in capitals says so. `make deny` installs cargo-deny,
# which takes minutes. `make test` uses cargo-deny only if it is installed.
DENY = $(CARGO) deny --log-level error check bans licenses sources && \
	if $(CARGO) deny --log-level off fetch db 2>/dev/null; \
	then $(CARGO) deny --log-level error --offline check advisories; \
	else echo "SKIPPED: ADVISORIES: THEIR DATABASE CAN'T BE DOWNLOADED; next: cargo deny check advisories" >&2; fi
deny:
	@command -v cargo-deny >/dev/null || { echo "remoor: installing cargo-deny with cargo"; \
		$(CARGO) install --quiet --locked --debug cargo-deny; }
	$(DENY)

deny-if-installed:
	@if command -v cargo-deny >/dev/null; then $(DENY); \
		else echo "SKIPPED: CARGO DENY: it is not installed; next: make deny" >&2; fi

# Runs each fuzz target with libFuzzer for a minute. Arbitrary check files, templates, playbooks,
# inventories, digests, gossip, join requests, Raft messages, replies of executors and backups must
# cause no panic and no hang. With REMOOR_FUZZ_SECONDS=3600
# each target runs for an hour.
fuzz:
	tests/fuzz/run.sh

# Measures the figures of docs/performance.md on this machine. It takes an hour and needs root.
# REMOOR_BENCH_ROUNDS=3 gives a first result.
FIGURES = $(or $(CARGO_TARGET_DIR),target)/tmp/figures
bench: tools
	$(CARGO) build --quiet --release --bins --example contiv-standin
	rm -f $(FIGURES)-*.md
	$(CARGO) bench --quiet --bench engine
	$(CARGO) bench --quiet --bench hosts
	@echo; echo "| what | goal | measured | command |"; echo "|---|---|---|---|"
	@cat $(FIGURES)-hosts.md $(FIGURES)-engine.md

# Compares checks and digests with similar tools. The output names the tools that are not installed;
# they are omitted. It takes minutes and needs root.
bench-checks: test-tools
	$(CARGO) build --quiet --release --bins
	REMOOR_LAB_PACKAGES=python3-testinfra $(CARGO) bench --quiet --bench checks
	$(CARGO) bench --quiet --bench files

# Measures how long a cluster of three managers does not answer after its leader dies or leaves, and
# how many decisions it makes. Debian's etcd is measured in the same run. Any user can run this.
# REMOOR_BENCH_ROUNDS=3 gives a first result. REMOOR_BENCH_ONLY=failover,transfer,writes,joins
# selects measurements.
bench-members: test-tools
	$(CARGO) build --quiet --release --bins
	$(CARGO) bench --quiet --bench members

# Compares a playbook run with ansible-core, mitogen, pyinfra, cf-agent and puppet. pip and apt
# install these tools into target/tmp; the output names each tool that can't be installed. Any user
# can run this. REMOOR_BENCH_ROUNDS=1 REMOOR_BENCH_HOSTS=1 gives a first result.
bench-playbooks: test-tools
	$(CARGO) build --quiet --release --bins
	$(CARGO) bench --quiet --bench playbooks

# Installs missing tools. Prints the names of the tools first, and later the names of the tools that
# it can't install.
tools:
	@tests/tools.sh

test-tools:
	@tests/tools.sh test

# Builds the program of the previous version. tests/it/versions.rs runs the previous version and
# this version in one cluster. The file with the formats of the previous version names its commit.
PREVIOUS = $(shell sed -n 's/^\# commit //p' tests/fixtures/formats.txt)
previous:
	$(CARGO) build --quiet --bins --examples
	@tests/previous.sh $(PREVIOUS)

# Records this commit as the previous version. Run this after a publication.
published:
	REMOOR_PUBLISHED=$$(git rev-parse --short HEAD) $(IT) --exact formats::types::the_formats_of_the_previous_version_are_known
