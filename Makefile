# Rota: a Kubernetes controller on many replicas at once. `make help` lists the verbs.

SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
LINT := bin/golangci-lint
GREMLINS := bin/gremlins
ARGS ?=

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

# As test/controlplane/assets builds the control plane, with the same versions: what both have in common is compiled once.
KUBE_BUILD := GOGC=$(or $(GOGC),400) CGO_ENABLED=0 GOWORK=off $(GO) build -modfile=tools/versions/v0.24.1.mod -gcflags=all=-dwarf=false -ldflags='-s -w'

.PHONY: demo
demo: $(if $(findstring --kubeconfig,$(ARGS)),,kube) ## Run the whole story on a real control plane (ARGS="--objects 500 --output json")
	@[ -e bin/rota-demo ] || echo "Compiling the demo, which takes minutes with empty caches"
	@$(KUBE_BUILD) -o bin/rota-demo ./cmd/rota-demo
	@bin/rota-demo $(ARGS)

# What has dependencies that the main module must not have, and tests, is a module of its own.
MODULES := bench/

# `make lint` runs go vet. Under -short tests use a control plane only if they call controlplane.Essential.
.PHONY: test
test: kube ## Run what needs no real time, and a short part on the real API server (all the rest: make test-all)
	$(GO) test -short -vet=off -p 3 -timeout 30m $$($(GO) list ./... | grep -vE '$(MEASURING)')

# What measures, and the tools around it.
MEASURING := /test/(conformance|habits|incidents)(/|$$)

.PHONY: test-all
test-all: test ## Run all tests, most of them on the real API server (slow ones: make check WHAT=slow)
	@$(MAKE) --no-print-directory test-kube test-pure

# Less garbage collection, also in the compiler, saves an eighth of the CPU time for more memory (`GOGC=100 make test`).
test test-demos test-planes test-pure test-latest test-latest-planes $(MODULES): export GOGC := $(or $(GOGC),400)

# Leases run out on a machine that is too busy, so only a few packages that start control planes run at once: they
# mostly wait. The demos run before the others.
.PHONY: test-kube test-demos test-planes test-pure
test-kube: test-demos test-planes
test-demos:
	$(GO) test -vet=off -p 3 -timeout 30m $(DEMOS)
test-planes: kube
	@bin/rota-kube assets -controller-manager >/dev/null # a few packages need it
	$(GO) test -vet=off -p 3 -timeout 60m \
		$$(($(GO) list $(WAIT); $(ON_KUBE)) | grep -vxFf <($(GO) list $(DEMOS) $(BUT)) | awk '!seen[$$0]++')
# What -short leaves out, of packages without a control plane.
test-pure:
	$(GO) test -vet=off -p 2 -timeout 30m $$(($(LONGER); $(GO) list ./... | grep -E '$(MEASURING)') | sort -u | \
		grep -vxFf <($(ON_KUBE); $(GO) list $(WAIT) $(DEMOS)))

# The packages whose tests start control planes. What takes longest begins first; conformance starts programs.
ON_KUBE := $(GO) list -test -f '{{.ImportPath}} {{join .Deps " "}} ' ./... | \
	sed -n 's|\.test .*/test/controlplane .*||p'
WAIT := ./internal/delivery ./ctrlrt ./cmd/rota ./internal/dispatch/keeper ./internal/dispatch/app ./test/conformance
DEMOS := ./demo ./demo/dispatch ./apiservers/front/agent

# What has goroutines, and runs with -race although users do not bring along what it is built with.
RACE := ./dispatch/client ./internal/gate ./internal/dispatch/access ./internal/server
# What has tests that -short leaves out, in this module.
LONGER := $(GO) list $$(grep -rl --include='*_test.go' --exclude-dir=bench --exclude-dir=tools 'testing[.]Short()' . | xargs -n1 dirname | sort -u)

# These packages use only types of Kubernetes, if anything, or are tools that users do not link: it is enough that they
# compile.
PURE := /(slot|dispatch/client)$$|/internal/(protocol|gate|work|delivery/stream|dispatch/(queue|wire))(/|$$)
TOOLS := /cmd/|/(apiservers|demo)(/|$$)|/examples/dispatch(/|$$)|/examples/website/python$$|/internal/(server|cli/adopt|dispatch/(access|workers|app))(/|$$)|/test/(conformance|controlplane|mutant|rig|sim|streamtest)(/|$$)

# -modfile does not work with a go.work above. It is not in GOFLAGS, because tests start builds of other modules.
LATEST := -modfile=go.latest.mod
# From the lowest versions to the newest.
MODFILES := go.mod $(sort $(wildcard tools/versions/*.mod)) go.latest.mod
.PHONY: test-latest test-latest-planes
test-latest test-latest-planes: export GOWORK := off
test-latest: SHORT ?= -short
# -race has everything built anew, so it is used with these versions alone. TestScenarios would take most of the
# processor's time: check-slow runs it so.
test-latest: kube ## Run tests with -race and the newest controller-runtime and client-go (go.latest.mod; SHORT= for all)
	$(foreach f,$(MODFILES),$(GO) mod tidy -diff -modfile=$(f) &&) true
	$(GO) vet $(LATEST) ./...
	$(GO) test $(LATEST) -vet=off -race $(SHORT) -skip '^TestScenarios$$' -p 2 -timeout 30m $(RACE) \
		$$($(GO) list ./... | grep -vE '$(PURE)|$(TOOLS)')
# All of what depends most on the versions.
test-latest-planes: kube
	$(GO) test $(LATEST) -vet=off -p 2 -timeout 30m ./ctrlrt ./internal/delivery

.PHONY: tidy
tidy: export GOWORK := off
tidy: ## Tidy all modfiles: go.mod has the lowest versions, tools/versions those between, go.latest.mod the newest
	$(foreach f,$(MODFILES),$(GO) mod tidy -modfile=$(f) &&) true

.PHONY: kube
kube: ## Find, download or build kube-apiserver and etcd, and print their folder (KUBERNETES=1.33: build those)
	@[ -e bin/rota-kube ] || echo "Compiling rota-kube, which takes a minute with empty caches"
	@$(KUBE_BUILD) -o bin/rota-kube ./test/controlplane/cmd
	@folder=$$(bin/rota-kube assets $(if $(KUBERNETES),-kubernetes $(KUBERNETES))) \
		$(if $(filter kube,$(MAKECMDGOALS)),&& echo "KUBEBUILDER_ASSETS=$$folder")

# To run a control plane for kubectl until Ctrl-C: bin/rota-kube up --audit --apiservers 2

.PHONY: bench
bench: kube ## Measure ways to run an operator on replicas beside each other, and write docs/benchmarks.md (ARGS="-objects 80000")
	@cd bench && $(GO) build -o ../bin/bench ./cmd
	@bin/bench $(ARGS)

.PHONY: chaos
chaos: kube ## Run members through faults on a real API server (ARGS=--short, ARGS="--faults pause-3")
	@$(GO) build -o bin/chaos ./test/rig/chaos/cmd
	@bin/chaos $(ARGS)

# Each of these takes minutes or more. docs/verification.md says what they do.
CHECKS := sim mutants mutate fuzz bench ranges tools versions slow front incidents site skew vulns kubernetes adopt
.PHONY: check $(CHECKS:%=check-%)
check: check-$(or $(filter $(WHAT),$(CHECKS)),what) ## Run a long check: WHAT=sim, for instance. Without WHAT it names them all

.PHONY: check-what
check-what:
	@echo 'make check WHAT=$(WHAT): must be one of $(sort $(CHECKS))' >&2; exit 2

# Run 50,000 seeds of the simulator and print what they covered (SEEDS=5000 ARGS="-all=false"); count messages among 1,000.
check-sim:
	SIM_MEMBERS=1000 $(GO) test -count=1 -run TestMessages ./test/sim
	$(GO) run ./test/sim/cmd -seeds $(or $(SEEDS),50000) $(ARGS)

# Build bugs in, one at a time, and make sure that a check finds each (ARGS="-run TestBugs/OpenEpoch").
check-mutants: kube
	SLOW=1 $(GO) test -count=1 -v -timeout 120m -run TestBugs ./test/mutant $(ARGS)

# Change operators in the pure packages, one at a time, and list those that no test notices (PACKAGES="gate protocol/table").
# Only short tests, because each mutation runs all of them. The coefficient is for busy
# machines.
check-mutate: export GOFLAGS := -short
check-mutate: $(GREMLINS)
	@for p in $(or $(PACKAGES),gate protocol/table protocol/plan protocol/planner protocol/member); do \
		$(GREMLINS) unleash --workers 1 --timeout-coefficient 20 -S lc ./internal/$$p || exit 1; \
	done

$(GREMLINS): # Go's checksum database vouches for it
	GOFLAGS= GOBIN=$(CURDIR)/bin $(GO) install github.com/go-gremlins/gremlins/cmd/gremlins@v0.6.0

# Fuzz every decoder and the selectors (TIME=60s each).
check-fuzz:
	@set -e -o pipefail; grep -rl '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(TIME),60s) -fuzzminimizetime 1s \
				$$(dirname $$file) </dev/null | grep -v '^fuzz: '; \
		done; \
	done

# Run the tests of charts, alerts, releases, the commands of docs/start.md and benchmarks (SHORT=-short: no benchmarks).
check-tools: kube
	@$(MAKE) --no-print-directory -j 3 $(MODULES) $(SCRIPTS)

# Scripts around ready-made tools: Helm, kubectl, actionlint, and promtool, which Debian has in the package prometheus.
SCRIPTS := test/charts tools/alerts tools/release tools/start
.PHONY: $(SCRIPTS)
test/charts: bin/helm
$(SCRIPTS):
	$@/test.sh

.PHONY: $(MODULES)
$(MODULES): export GOWORK := off
$(MODULES):
	cd $@ && $(GO) vet ./... && $(GO) test -vet=off -count=1 -timeout 30m $(SHORT) ./...

# Run the tests of internal/upstream, ctrlrt, internal/engine and internal/delivery with each pair of controller-runtime
# and client-go that Rota works with, and the demo with some, and print how many passed (ARGS=v0.23 SHORT=-short
# DEMO=none).
check-versions: kube
	@SHORT="$(SHORT)" DEMO="$(DEMO)" tools/versions/check.sh $(ARGS)

# Run the tests of tools that `make test` leaves out, because they are slow and rarely find anything.
check-slow: kube
	$(GO) test -race -count=1 -timeout 30m -run '^TestScenarios$$' ./internal/engine
	SLOW=1 ROTA_RUNS=5 $(GO) test -count=1 -timeout 30m ./ctrlrt ./internal/delivery ./test/rig/chaos \
		./test/controlplane ./demo ./test/habits ./rotatest ./examples/website/sharded

# Do to an operator what goes wrong at night, ask the command what is wrong, and print what it says, and how soon.
check-incidents: kube
	SLOW=1 $(GO) test -count=1 -v -timeout 40m ./test/incidents -lease 15s $(ARGS)

# Run members, commands, dispatchers and workers of the commits in test/rig/skew/BEFORE with those of this one. The first
# time their programs are built, from git's history (BEFORE=0601e9d: only that one).
check-skew: kube
	SLOW=1 BEFORE="$(BEFORE)" $(GO) test -count=1 -v -timeout 60m ./test/rig/skew $(ARGS)
	SLOW=1 $(GO) test -count=1 -run TestOlderOperators ./test/charts

# Try Rota on each version of Kubernetes that there is a modfile of, and print what docs/versions.md says of it. A
# version takes 5 minutes, and 12 of processor time for the first build (ARGS="1.33 1.37").
check-kubernetes:
	@tools/kubernetes.sh $(ARGS)

# Scaffold an operator with kubebuilder, adopt it with `rota adopt --write`, and run two replicas of it; compare what is
# found in operators in production.
check-adopt: kube
	SLOW=1 $(GO) test -count=1 -v -timeout 40m ./test/adopt

# Measure how fast clients get to another API server through the front, and hold it to 2 s. It needs HAProxy, and a
# machine that does nothing else.
check-front: kube
	MEASURE=1 $(GO) test -count=1 -v -run 'TestFront$$' ./apiservers/front/agent

# Build the documentation's site and check its links. The first time it compiles Hugo. It needs npm. `cd tools/site && go
# run . -serve localhost:1313` shows the site.
check-site: export GOWORK := off
check-site:
	cd tools/site && npm ci --ignore-scripts --no-audit --no-fund && $(GO) vet ./... && \
		$(GO) test -vet=off -count=1 -timeout 30m ./...

# Look for known vulnerabilities in what users link, and in what releases link. It asks vuln.go.dev.
check-vulns: bin/govulncheck
	bin/govulncheck ./...
	GOFLAGS=-modfile=go.latest.mod bin/govulncheck ./cmd/rota ./examples/website/sharded

# Run the Go benchmarks.
check-bench:
	$(GO) test -run '^$$' -bench . -benchmem ./internal/protocol/... ./internal/gate ./slot
# Walk long histories of joins and crashes, and show how many runs members have (STEPS=100000).
	STEPS=$(or $(STEPS),10000) $(GO) test -count 1 -timeout 60m -v -run TestRunsStayFew ./internal/protocol/plan

# Hold a short run of `make bench` to the ratios in bench/ranges.json.
check-ranges: kube
	@cd bench && $(GO) build -o ../bin/bench ./cmd
	@bin/bench -objects 2000 -strategies leader,leader-warm,drain-label,filter,slot-label \
		-scenarios churn,join,leave -page bin/ranges.md -ranges bench/ranges.json $(ARGS)

.PHONY: lint
lint: $(LINT) ## Run golangci-lint, pinned in tools/go.mod
	$(LINT) run ./...
	cd bench && GOWORK=off ../$(LINT) run ./...

$(LINT): tools/go.mod
	cd tools && $(GO) build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

# What makes a release. GoReleaser and syft are in modules of their own, because of what they depend on.
RELEASE_TOOLS := $(addprefix bin/,goreleaser syft helm crane rota-release)
.PHONY: release-tools release-dry-run
release-tools: $(RELEASE_TOOLS)
release-dry-run: release-tools ## Build a release of HEAD twice, compare both, and look into it (COLD=1)
	tools/release/dry-run.sh

$(RELEASE_TOOLS) bin/govulncheck: export GOWORK := off
bin/goreleaser bin/syft bin/rota-release: export GOFLAGS := -trimpath
bin/goreleaser: tools/goreleaser/go.mod
	cd tools/goreleaser && $(GO) build -ldflags '-s -w' -o ../../$@ tool
bin/syft: tools/syft/go.mod # SBOMs name its version
	cd tools/syft && version=$$($(GO) list -m -f '{{.Version}}' github.com/anchore/syft) && \
		$(GO) build -ldflags "-s -w -X main.version=$$version" -o ../../$@ tool
bin/helm bin/crane bin/govulncheck: tools/release/go.mod
	cd tools/release && $(GO) build -o ../../bin/ $$($(GO) list tool | grep '/$(@F)$$')
bin/rota-release: $(wildcard tools/release/*.go) tools/release/go.mod
	cd tools/release && $(GO) build -o ../../$@ .

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
