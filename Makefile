# SPDX-License-Identifier: Apache-2.0
#
# Entry point of the project: run `make setup`, then any target that `make help`
# lists. `make setup` is idempotent and records its results in build/stamps/. Each
# other target depends on the parts of the setup that it needs.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.DEFAULT_GOAL := help
MAKEFLAGS += --no-builtin-rules

ROOT := $(CURDIR)
PYTHON := /usr/bin/python3
export PATH := $(PATH):$(HOME)/.cargo/bin:/usr/sbin:/sbin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export SLUICE_ROOT := $(ROOT)
export SLUICE_PROTO_DIR := $(ROOT)/build/proto
export CARGO_TARGET_DIR ?= $(ROOT)/switch/target

# The switch under test: sluice-switch, or bmv2 if simple_switch_grpc is installed.
TARGET ?= sluice-switch
export TARGET
# Engine of sluice-switch (interpreter or native), for all targets that start sluice-switch.
ENGINE ?=
ifneq ($(ENGINE),)
export SLUICE_ENGINE := $(ENGINE)
endif
# FUZZ selects one target of `make fuzz` (default: all). SECONDS is the running time of each target. Without SECONDS,
# each target runs a fixed number of inputs.
FUZZ ?=
SECONDS ?=
# Arguments for the program that a make target runs, for example: make ptf ARGS=outbound_policy.
ARGS ?=

STAMPS := build/stamps
CONTROLLER := .venv/controller/bin
PTF := .venv/ptf/bin
SHELL_VENV := .venv/shell/bin
BENCH := .venv/bench/bin
PIP_INSTALL := pip install --quiet --no-build-isolation
NATIVE := controller/src/sluice/_native.abi3.so
SWITCH := $(CARGO_TARGET_DIR)/release/sluice-switch
# Makes cargo show its progress on a terminal, and nowhere else.
QUIET := $(shell test -t 2 || echo --quiet)
TIMED := $(ROOT)/switch/timed

##@ Start here

.PHONY: help
help: ## List all targets
	@awk 'BEGIN { FS = ":.*## " } \
	  /^##@/ { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@printf '\nVariables: TARGET=sluice-switch|bmv2, ENGINE=interpreter|native, ARGS="..." (passed on), ADDR=HOST:PORT (make shell)\n'

.PHONY: setup
setup: $(STAMPS)/apt $(STAMPS)/controller $(STAMPS)/ptf $(STAMPS)/shell switch ## Install packages, make virtual environments, build; safe to repeat

.PHONY: demo
demo: setup-run ## Run the demo: two sites and two transit routers, then policy and ESP; explains and checks each step
	@PYTHONPATH=topo:testkit/src $(PYTHON) -m sluice_topo.demo --target $(TARGET) $(ARGS)

.PHONY: demo-takeover
demo-takeover: setup-run ## Run the demo of `sluice up`: a running router is taken over and given back under traffic
	@PYTHONPATH=topo:testkit/src $(PYTHON) -m sluice_topo.takeover_demo

.PHONY: shell
shell: $(STAMPS)/shell ## Start p4runtime-shell on a running switch: the demo's, or ADDR=HOST:PORT
	@PYTHONPATH=topo:testkit/src $(PYTHON) -m sluice_topo.shell $(if $(ADDR),--address $(ADDR)) $(ARGS)

##@ Tests

.PHONY: test
test: CASES ?= 1
test: check unit loom memcheck ptf e2e ## Run all checks and tests that a change must pass

.PHONY: check
check: check-rust check-python check-p4 check-docker docs ## Check format, lints, types and import rules, and that no generated file is stale

.PHONY: check-rust
check-rust: $(STAMPS)/proto $(STAMPS)/cargo
	cd switch && cargo fmt --all --check
	cd controller/native && cargo fmt --check
	cd switch && $(TIMED) "lints of the switch" cargo clippy $(QUIET) --locked --workspace --all-targets -- -D warnings
	cd controller/native && cargo clippy --quiet --locked --all-targets -- -D warnings

.PHONY: check-python
check-python: $(STAMPS)/controller $(STAMPS)/ptf $(STAMPS)/docs
	$(CONTROLLER)/ruff check --quiet .
	$(CONTROLLER)/ruff format --quiet --check .
	cd controller && ../$(CONTROLLER)/mypy
	$(CONTROLLER)/mypy --config-file mypy.ini testkit/src testkit/tests topo p4src/build.py p4src/build_tna.py packaging/licences.py
	MYPYPATH=packaging/tests $(CONTROLLER)/mypy --config-file mypy.ini packaging/tests
	$(CONTROLLER)/mypy --config-file mypy.ini --python-executable $(PTF)/python ptf-tests bench switch/conformance switch/crates/esp switch/foreign
	$(CONTROLLER)/mypy --config-file mypy.ini --python-executable .venv/docs/bin/python docs/site
	cd controller && ../$(CONTROLLER)/lint-imports

.PHONY: check-p4
check-p4:
	$(PYTHON) p4src/build.py --check
	$(PYTHON) switch/programs/build.py --check
	$(PYTHON) switch/crates/p4runtime-suite/program/build.py --check

.PHONY: check-docker
check-docker: $(STAMPS)/venv-controller
	$(CONTROLLER)/hadolint --failure-threshold info $(shell git ls-files 'docker/*Dockerfile')

.PHONY: unit
unit: unit-rust unit-python ## Run the unit tests, Rust and Python

.PHONY: unit-rust
unit-rust: $(STAMPS)/proto ## Run the unit tests of the switch and of the controller's native module
	cd switch && $(TIMED) "tests of the switch" cargo test $(QUIET) --locked --workspace --no-run
	cd switch && cargo test --quiet --locked --workspace
	cd controller/native && cargo test --quiet --locked --no-default-features

.PHONY: unit-python
unit-python: $(STAMPS)/controller $(STAMPS)/ptf $(STAMPS)/promtool switch ## Run the unit tests of the controller and of the test kit
	cd controller && ../$(CONTROLLER)/python -m pytest -q --ignore tests/integration
	@# The integration tests use a switch in a network namespace. The native module has one thread,
	@# which stays in the namespace of its first use. So these tests run in a separate process.
	cd controller && ../$(CONTROLLER)/python -m pytest -q tests/integration
	cd testkit && ../$(CONTROLLER)/python -m pytest -q
	cd switch/conformance && ../../$(PTF)/python -m pytest -q
	cd switch && cargo build --quiet --release --locked -p sluice-esp --example esp-frames
	cd switch/crates/esp && ../../../$(PTF)/python -m pytest -q tests

.PHONY: ptf
ptf: $(STAMPS)/ptf switch ## Run the PTF suite on TARGET
	PYTHONPATH=ptf-tests $(PTF)/python -m sluice_ptf --target $(TARGET) $(ARGS)

.PHONY: e2e
e2e: setup-run $(STAMPS)/shell ## Test FRR, controller and switch together, in namespaces, on TARGET
	$(CONTROLLER)/python -m pytest -q -c topo/pytest.ini topo/e2e topo/interop $(ARGS)

# Options: ARGS="--packets N --seed S". Packets for which the test fails are saved under build/prove.
.PHONY: prove
prove: setup-run ## Test with a million hostile packets, random restarts and kills under traffic that no packet leaks or is lost
	PYTHONPATH=topo:testkit/src $(CONTROLLER)/python -m sluice_adversary --target $(TARGET) $(ARGS)
	$(if $(filter sluice-switch,$(TARGET)),PYTHONPATH=topo:testkit/src $(CONTROLLER)/python -m sluice_adversary --engine --packets 200000)
	cd controller && SLUICE_RESTART_SEEDS=200 ../$(CONTROLLER)/python -m pytest -q tests/policy/test_restarts.py
	SLUICE_RESTARTS=200 $(CONTROLLER)/python -m pytest -q -c topo/pytest.ini topo/e2e/one_router/test_policy_restarts.py
	$(MAKE) --no-print-directory prove-restarts ARGS=

# RESTART_PROOFS says how often each part is killed while traffic passes. The results go to build/prove/restarts.json.
RESTART_PROOFS ?= controller=100 zebra=20 neighbor=20 bgpd=20 fpm=20 switch=50
.PHONY: prove-restarts
prove-restarts: setup-run ## Run the last part of `make prove`: kill the controller, FRR, the FPM connection and the switch many times
	@mkdir -p build/prove
	SLUICE_RESTART_PROOFS="$(RESTART_PROOFS)" SLUICE_RESTART_RECORD=build/prove/restarts.json \
	  $(CONTROLLER)/python -m pytest -q -s -c topo/pytest.ini topo/e2e/restarts $(ARGS)

# The tests have three VRFs with the same addresses, which the kernel keeps apart by VRF devices. This machine's kernel
# may lack VRF devices, so the tests run on an emulated machine.
.PHONY: prove-vrfs
prove-vrfs: setup-run ## Test VRFs with kernel VRF devices, on Debian's stock kernel in emulation (installs QEMU)
	topo/debian_kernel/run bash -ec 'cd controller; ../$(CONTROLLER)/python -m pytest -q -p no:cacheprovider \
	  tests/sources/test_vrf_devices.py; cd ..; \
	  $(CONTROLLER)/python -m pytest -q -p no:cacheprovider -c topo/pytest.ini topo/e2e/test_isolated_vrfs.py'

# This machine's kernel may lack VLAN devices, so the tests run on an emulated machine with Debian's stock kernel. That
# kernel lacks tcx, so steering uses tc filters there.
.PHONY: prove-takeover
prove-takeover: setup-run ## Test `sluice up` with VLANs, on Debian's stock kernel in emulation (installs QEMU)
	topo/debian_kernel/run bash -ec '$(CONTROLLER)/python -m pytest -q -p no:cacheprovider -c topo/pytest.ini \
	  topo/e2e/takeover/test_vlans.py $(ARGS)'

# The tests run IKE and ESP against other implementations. `make e2e` already includes those tests that need no ESP in
# the kernel. ARGS="-x topo/interop/test_strongswan.py" runs only this file.
INTEROP_TESTS = $(filter topo/interop/%,$(ARGS))
INTEROP_UNITS = cd controller; ../$(CONTROLLER)/python -m pytest -q -p no:cacheprovider \
	  tests/sources/test_xfrm.py tests/sources/test_xfrm_states.py; cd ..;
.PHONY: interop
interop: setup-run ## Test against strongSwan, Libreswan, `ip xfrm` and Linux's own ESP, on Debian's stock kernel in emulation
	topo/interop/install
	topo/debian_kernel/run bash -ec '$(if $(INTEROP_TESTS),,$(INTEROP_UNITS)) \
	  $(CONTROLLER)/python -m pytest -q -p no:cacheprovider -c topo/pytest.ini \
	  $(or $(INTEROP_TESTS),topo/interop --ignore topo/interop/test_libipsec.py) $(filter-out $(INTEROP_TESTS),$(ARGS))'

.PHONY: differential
differential: $(STAMPS)/ptf switch ## Compare sluice-switch with BMv2 on random packets and tables
	PYTHONPATH=ptf-tests $(PTF)/python -m sluice_ptf.differential $(ARGS)

.PHONY: require-p4c
require-p4c:
	@test -n "$(P4C)" || { echo "conformance: P4C is not set; give the path of p4c's source tree: make conformance P4C=PATH" >&2; exit 2; }

.PHONY: conformance
conformance: require-p4c $(STAMPS)/ptf switch ## Run p4c's v1model tests: make conformance P4C=<path of p4c's tree>
	PYTHONPATH=switch/conformance $(PTF)/python -m sluice_conformance --p4c "$(P4C)" $(ARGS)

.PHONY: require-tree
require-tree:
	@test -n "$(TREE)" || { echo "foreign: TREE is not set; give the folder with the repositories of other projects: make foreign TREE=PATH (switch/foreign/README.md)" >&2; exit 2; }

# The Python that runs scripts of other projects. It needs mininet, scapy, ptf and gRPC.
FOREIGN_PYTHON ?= python3
.PHONY: foreign
foreign: require-tree switch ## Run scripts of other projects, written for BMv2, on TARGET: make foreign TREE=<folder of their repositories>
	SLUICE_SWITCH=$(SWITCH) $(FOREIGN_PYTHON) switch/foreign/run.py --target $(TARGET) $(ARGS) "$(TREE)"

.PHONY: fuzz
fuzz: $(STAMPS)/proto $(STAMPS)/cargo ## Fuzz programs, packets and P4Runtime: SECONDS=N for each, FUZZ=packet for one
	cd switch && cargo build --quiet --locked --profile fuzz -p sluice-fuzz
	$(CARGO_TARGET_DIR)/fuzz/sluice-fuzz run $(FUZZ) $(if $(SECONDS),--seconds $(SECONDS)) --artifacts build/fuzz $(ARGS)

# Valgrind emulates a CPU without AVX-512, so the tests run the code for such CPUs. The test no_packet_allocates is
# skipped, because it replaces malloc, and so does valgrind.
MEMCHECK := valgrind --quiet --error-exitcode=9 --leak-check=full --show-leak-kinds=definite --errors-for-leak-kinds=definite
.PHONY: memcheck
memcheck: $(STAMPS)/apt ## Run the tests of lookup structures and ESP engine under valgrind, CASES=N inputs for each property (default 4, in `make test` 1)
	cd switch && PROPTEST_CASES=$(or $(CASES),4) CARGO_TARGET_X86_64_UNKNOWN_LINUX_GNU_RUNNER="$(MEMCHECK)" \
	  cargo test --quiet --release --locked -p sluice-pages -p sluice-fib -p sluice-exact -p sluice-classifier -p sluice-esp --lib --tests \
	  -- --skip no_packet_allocates

.PHONY: loom
loom: $(STAMPS)/cargo ## Try every interleaving of readers and writer of the tables, in small cases
	cd switch && RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/loom \
	  cargo test --quiet --release --locked -p sluice-tables --lib left_right

# Miri interprets the tests, which is slow, so they run fewer inputs and steps. The tests of groups are skipped, because
# groups have no unsafe code.
.PHONY: miri
miri: $(STAMPS)/proto ## Run the tests of lookup structures and tables under Miri (nightly toolchain); CASES=N inputs for each property (default 2)
	@cargo +nightly miri --version >/dev/null 2>&1 || \
	  { echo "miri: the nightly toolchain with Miri is not installed; run: rustup toolchain install nightly --component miri,rust-src" >&2; exit 2; }
	cd switch && PROPTEST_CASES=$(or $(CASES),2) MIRIFLAGS="-Zmiri-disable-isolation" CARGO_TARGET_DIR=$(CARGO_TARGET_DIR)/miri \
	  cargo +nightly miri test --quiet --locked -p sluice-pages -p sluice-fib -p sluice-exact -p sluice-classifier -p sluice-tables \
	  --lib --tests -- --skip group::

STRUCTURES := lpm4-full lpm6-full lpm-auto exact ternary multipath
BENCHES := $(STRUCTURES) spd-cache esp p4-cpu writes forwarding new-flows flow-eviction flow-invalidation rule-scale route-load failover

.PHONY: bench
bench: $(addprefix bench-,$(BENCHES)) ## Run the benchmarks against other implementations; results go to bench/results. make bench-NAME runs one of them

# BGP_TABLE=FILE names a file with a real routing table. ARGS="--rounds N" sets the number of rounds.
export BGP_TABLE
.PHONY: $(addprefix bench-,$(STRUCTURES))
$(addprefix bench-,$(STRUCTURES)): bench-%: bench-program bench-peers $(STAMPS)/bench
	PYTHONPATH=testkit/src $(BENCH)/python -m bench.structures $* $(ARGS)
	@test ! -e bench/results/$*.json || $(BENCH)/python -m bench.plot $*

.PHONY: bench-esp
bench-esp: bench-program setup-run $(STAMPS)/ptf ## Compare ESP with the AEAD of its library, DPDK's tool, strongSwan, and forwarding in clear
	PYTHONPATH=testkit/src $(PTF)/python -m bench.esp $(ARGS)
	PYTHONPATH=ptf-tests $(PTF)/python -m bench.esp_router $(ARGS)

.PHONY: bench-spd-cache
bench-spd-cache: setup-run $(STAMPS)/ptf $(STAMPS)/bench ## Compare the flow cache with the rules tier, a linear search and punts, for rules 1 to 100,000
	PYTHONPATH=ptf-tests $(PTF)/python -m bench.spd_cache $(ARGS)
	@test ! -e bench/results/spd-cache.json || $(BENCH)/python -m bench.plot spd-cache

.PHONY: bench-p4-cpu
bench-p4-cpu: setup-run $(STAMPS)/ptf $(STAMPS)/bench
	PYTHONPATH=ptf-tests $(PTF)/python -m bench.p4_cpu $(ARGS)
	$(BENCH)/python -m bench.plot p4-cpu p4-cpu-veth

.PHONY: bench-writes bench-forwarding bench-new-flows bench-route-load bench-failover
bench-writes bench-forwarding bench-new-flows bench-route-load bench-failover: bench-%: setup-run $(STAMPS)/ptf
	PYTHONPATH=ptf-tests $(PTF)/python -m bench.$(subst -,_,$*) $(ARGS)

# These benchmarks import the controller, so they run in its virtual environment.
.PHONY: bench-flow-eviction bench-flow-invalidation bench-rule-scale
bench-flow-eviction bench-flow-invalidation bench-rule-scale: bench-%: setup-run
	PYTHONPATH=.:testkit/src $(CONTROLLER)/python -m bench.$(subst -,_,$*) $(ARGS)

.PHONY: bench-stalls
bench-stalls: setup-run ## Measure how long a full table stalls the controller's event loop; cannot fail, compares nothing
	cd controller && PYTHONPATH=src ../$(CONTROLLER)/python tests/measure_stalls.py $(ARGS)

.PHONY: bench-host-packets
bench-host-packets: setup-run ## Measure how long pings to the router take while clients read a full table; cannot fail, compares nothing
	PYTHONPATH=.:testkit/src $(CONTROLLER)/python -m bench.host_packets $(ARGS)

.PHONY: bench-bfd
bench-bfd: setup-run ## Measure how long BFD packets stop when the controller is killed and started; cannot fail, compares nothing
	cd topo && PYTHONPATH=.:../testkit/src ../$(CONTROLLER)/python -m e2e.restarts.measure_bfd $(ARGS)

.PHONY: bench-plots
bench-plots: $(STAMPS)/bench ## Draw the plots of bench/results again
	$(BENCH)/python -m bench.plot

.PHONY: bench-program
bench-program: $(STAMPS)/cargo
	cd switch && cargo build --quiet --release --locked -p sluice-bench

# Builds the comparison with DPDK's lookup structures if DPDK is installed. Otherwise the results say that DPDK is
# missing.
PEERS := build/bench/peers_dpdk.so
.PHONY: bench-peers
bench-peers:
	@if pkg-config --exists libdpdk; then $(MAKE) --no-print-directory $(PEERS); else \
	  rm -f $(PEERS); echo "bench: DPDK is not installed (Debian: libdpdk-dev, pkg-config), so the goals of the comparison with DPDK will not be met"; fi

$(PEERS): bench/peers/dpdk.c
	@mkdir -p $(@D)
	$(CC) -std=gnu11 -O3 -Wall -Wextra -Werror -fPIC -shared -fvisibility=hidden \
	  $$(pkg-config --cflags libdpdk) -march=native -o $@ $< -Wl,--as-needed $$(pkg-config --libs libdpdk)


# Without ADDR, the suite starts a new switch for each case: sluice-switch, or BMv2 with TARGET=bmv2.
SUITE_ADDR := 127.0.0.1:59559
SUITE_FLAGS := --no-p4 --device-id 1 -- --grpc-server-addr $(SUITE_ADDR) --cpu-port 510
SUITE_SERVER := $(if $(filter bmv2,$(TARGET)),simple_switch_grpc --thrift-port 59390,$(SWITCH) --writes-from-any-connection) $(SUITE_FLAGS)

.PHONY: p4runtime-suite
p4runtime-suite: switch ## Test the P4Runtime specification case by case, on TARGET or on the server at ADDR
	$(CARGO_TARGET_DIR)/release/p4runtime-suite $(if $(ADDR),--server $(ADDR),--server $(SUITE_ADDR) --spawn "$(SUITE_SERVER)") $(ARGS)

##@ Build

.PHONY: switch
switch: $(STAMPS)/proto $(STAMPS)/cargo ## Build sluice-switch
	cd switch && $(TIMED) "sluice-switch" cargo build $(QUIET) --release --locked --workspace --exclude sluice-fuzz --exclude sluice-bench --bins

.PHONY: native
native: $(STAMPS)/proto $(STAMPS)/cargo ## Build the controller's native module
	cd controller/native && PYO3_BUILD_EXTENSION_MODULE=1 PYO3_PYTHON=$(PYTHON) $(TIMED) "native module" cargo build $(QUIET) --release --locked
	@install -m 755 $(CARGO_TARGET_DIR)/release/lib_native.so $(NATIVE).$$$$ && mv -f $(NATIVE).$$$$ $(NATIVE)

# The site includes the help texts of the commands, so it needs the built programs.
.PHONY: docs
docs: setup-run $(STAMPS)/docs ## Build the documentation as a site in build/site, for reading without a network
	$(CONTROLLER)/python -m sluice.config_reference --check $(ROOT)
	@NO_MKDOCS_2_WARNING=1 .venv/docs/bin/mkdocs build --quiet

##@ Install

PREFIX ?= /usr/local
DESTDIR ?=
SYSCONFDIR ?= /etc
DIST := build/dist
VERSION := $(shell packaging/version)
# Version of the Debian packages. To package the same version again, append a build number:
# make deb DEB_VERSION=VERSION+1.
DEB_VERSION ?= $(VERSION)
# Commit that the programs print if `make install` or `make deb` builds them. In other builds they print the commit of
# the checkout.
COMMIT = $(shell packaging/version commit)
WHEEL = $(shell ls $(ROOT)/$(DIST)/sluice-$(VERSION)-*.whl)
INSTALLED = SWITCH="$(SWITCH)" WHEEL="$(WHEEL)" PIP="$(ROOT)/$(CONTROLLER)/pip" PYTHON="$(PYTHON)" SYSCONFDIR="$(SYSCONFDIR)"

.PHONY: install
install: wheel release-switch ## Install switch, controller and units: PREFIX=/usr/local DESTDIR=
	$(INSTALLED) packaging/install "$(PREFIX)" "$(DESTDIR)" switch controller

.PHONY: wheel
wheel: $(STAMPS)/controller ## Build the controller as a Python wheel, with native module and pipeline: build/dist
	packaging/wheel $(CONTROLLER)/python "$(COMMIT)" "$(DIST)"

.PHONY: deb
deb: wheel release-switch ## Build the Debian packages sluice-switch and sluice: build/dist
	$(INSTALLED) SYSCONFDIR=/etc packaging/deb "$(DEB_VERSION)" "$(DIST)"

.PHONY: release-switch
release-switch: $(STAMPS)/proto $(STAMPS)/cargo
	cd switch && SLUICE_COMMIT="$(COMMIT)" $(TIMED) "sluice-switch" cargo build $(QUIET) --release --locked -p sluice-switch -p sluice-esp-process

.PHONY: test-install
test-install: wheel release-switch ## Install by `make install`, by the wheel and by cargo, and run the installed programs (root)
	PYTHONPATH=testkit/src $(CONTROLLER)/python -m pytest -q -c packaging/tests/pytest.ini packaging/tests/test_install.py $(ARGS)

# The test upgrades to newer packages, which are built in build/dist-upgrade. Its mounts are in a separate mount
# namespace, so they end with the test.
.PHONY: test-packages
test-packages: deb ## Install, run, upgrade and remove the packages in a bare Debian 12 (mmdebstrap, systemd)
	@command -v mmdebstrap >/dev/null || { echo "test-packages: mmdebstrap is not installed (Debian: mmdebstrap)" >&2; exit 2; }
	$(INSTALLED) SYSCONFDIR=/etc packaging/deb "$(VERSION)+1" build/dist-upgrade
	PYTHONPATH=testkit/src unshare --mount --propagation private \
	  $(CONTROLLER)/python -m pytest -q -c packaging/tests/pytest.ini packaging/tests/test_packages.py $(ARGS)

# PACKAGES=given uses the packages of `make deb`. With PACKAGES=built an image compiles the packages, and this machine
# needs no toolchain.
PACKAGES ?= given
.PHONY: images
images: $(if $(filter given,$(PACKAGES)),deb) ## Build the container images with docker, podman or buildah (CONTAINERS=): docker/README.md
	PACKAGES=$(PACKAGES) COMMIT="$(COMMIT)" docker/images $(ARGS)

.PHONY: test-images
test-images: images ## Run a router, two sites and the demo in the images, in namespaces (buildah, root)
	@command -v buildah >/dev/null || { echo "test-images: buildah is not installed (Debian: buildah)" >&2; exit 2; }
	PYTHONPATH=testkit/src unshare --mount --propagation private \
	  $(CONTROLLER)/python -m pytest -q -c packaging/tests/pytest.ini packaging/tests/test_images.py

##@ Renew

.PHONY: images-lock
images-lock: ## Update the pins of the images: digests, versions of packages
	docker/lock

.PHONY: p4
p4: ## Compile p4src/ and switch/programs/ with the p4c on PATH, and update the committed outputs
	$(PYTHON) p4src/build.py
	$(PYTHON) switch/programs/build.py
	$(PYTHON) switch/crates/p4runtime-suite/program/build.py

# TNA_INCLUDE names the folders of core.p4 and tna.p4 if p4c runs from its build tree.
.PHONY: p4-tna
p4-tna: ## Compile the router for TNA with p4c's tofino backend (p4c-barefoot on PATH), and print its stages
	$(PYTHON) p4src/build_tna.py $(addprefix --include ,$(TNA_INCLUDE))

.PHONY: reference
reference: $(STAMPS)/controller ## Generate the tables of the configuration reference from the controller's schema
	$(CONTROLLER)/python -m sluice.config_reference $(ROOT)

.PHONY: lock
lock: ## Update requirements/*.lock from requirements/*.in
	requirements/lock

.PHONY: clean
clean: ## Remove stamps, copied .proto files, switch/target and the native module; environments and locks stay
	rm -rf build/stamps build/proto switch/target $(NATIVE)

# Builds and installs everything that the whole router needs to run.
.PHONY: setup-run
setup-run: $(STAMPS)/apt $(STAMPS)/controller switch

# ---- Parts of the setup. Each part has a stamp: a file whose date tells when the part was made ----

$(STAMPS):
	@mkdir -p $@

# Depends on cargo (order-only), so that the toolchain is checked first and its error comes before all others.
$(STAMPS)/apt: packages.apt | $(STAMPS) $(STAMPS)/cargo
	@missing=(); \
	for package in $$(sed 's/#.*//' packages.apt); do \
	  dpkg-query -W -f '$${Status}' "$$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$$package"); \
	done; \
	if (( $${#missing[@]} )); then \
	  echo "setup: Debian packages missing: $${missing[*]}"; \
	  if (( EUID )); then echo "setup: install them, or run \`make setup\` as root" >&2; exit 1; fi; \
	  echo "setup: installing them, log in $@.log"; \
	  export DEBIAN_FRONTEND=noninteractive; \
	  { apt-get -qq update && apt-get -qq -o DPkg::Lock::Timeout=900 -o Dpkg::Use-Pty=0 install -y --no-install-recommends "$${missing[@]}"; } \
	    > $@.log 2>&1 || { cat $@.log >&2; exit 1; }; \
	fi
	@touch $@

# Disk space in MB for building and testing, rounded up.
DISK_MB := 6000

$(STAMPS)/cargo: switch/Cargo.toml switch/check-toolchain | $(STAMPS)
	@switch/check-toolchain "$(CARGO_TARGET_DIR)" $(DISK_MB)
	@touch $@

# Unpacks Debian's package prometheus instead of installing it, because the installed package would start a server.
$(STAMPS)/promtool: $(STAMPS)/apt
	@rm -rf build/promtool && mkdir -p build/promtool
	@cd build/promtool && { apt-get -qq -o APT::Sandbox::User=root download prometheus 2>/dev/null || \
	  { apt-get -qq update; apt-get -qq -o APT::Sandbox::User=root download prometheus; }; } && \
	  dpkg-deb --fsys-tarfile prometheus_*.deb | tar -x --strip-components 3 ./usr/bin/promtool && rm prometheus_*.deb
	@touch $@

# $(call venv,DIR,LOCKS...) makes the virtual environment DIR with the packages of these locks.
define venv
	@echo "setup: $(1)"
	@test -x $(1)/bin/python || $(PYTHON) -m venv $(1)
	@$(1)/bin/pip install --quiet --require-hashes -r requirements/build.lock
	@$(1)/bin/$(PIP_INSTALL) --require-hashes $(foreach lock,$(2),-r requirements/$(lock).lock)
endef

$(STAMPS)/venv-controller: requirements/build.lock requirements/controller.lock requirements/dev.lock $(STAMPS)/apt | $(STAMPS)
	$(call venv,.venv/controller,controller dev)
	@$(CONTROLLER)/$(PIP_INSTALL) --no-deps -e controller -e testkit
	@touch $@

$(STAMPS)/controller: $(STAMPS)/venv-controller native
	@touch $@

$(STAMPS)/ptf: requirements/build.lock requirements/ptf.lock $(STAMPS)/apt | $(STAMPS)
	$(call venv,.venv/ptf,ptf)
	@$(PTF)/$(PIP_INSTALL) --no-deps -e testkit
	@touch $@

$(STAMPS)/shell: requirements/build.lock requirements/shell.lock $(STAMPS)/apt | $(STAMPS)
	$(call venv,.venv/shell,shell)
	@touch $@

$(STAMPS)/docs: requirements/build.lock requirements/docs.lock $(STAMPS)/apt | $(STAMPS)
	$(call venv,.venv/docs,docs)
	@touch $@

$(STAMPS)/bench: requirements/build.lock requirements/bench.lock $(STAMPS)/apt | $(STAMPS)
	$(call venv,.venv/bench,bench)
	@touch $@

# Copies the P4Runtime .proto files out of the Python package finsy. requirements/controller.lock fixes finsy's version.
$(STAMPS)/proto: $(STAMPS)/venv-controller
	@from="$$($(CONTROLLER)/python -c 'import importlib.util as u; print(u.find_spec("finsy").submodule_search_locations[0])')/proto"; \
	cd "$$from" && for file in p4/v1/*.proto p4/config/v1/*.proto google/rpc/status.proto; do \
	  install -D --preserve-timestamps -m 644 "$$file" "$(SLUICE_PROTO_DIR)/$$file"; \
	done
	@touch $@
