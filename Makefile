# Rota: a Kubernetes controller on many replicas at once. `make help` lists the verbs.

SHELL := /bin/bash
.DEFAULT_GOAL := help
GO ?= go
KUBE := bin/rota-kube
LINT := bin/golangci-lint
GREMLINS := bin/gremlins
ARGS ?=

.PHONY: help
help: ## List the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

.PHONY: demo
demo: kube ## Run the whole story on a real control plane (ARGS="--objects 500 --output json")
	@$(GO) build -o bin/rota ./cmd/rota
	@bin/rota demo $(ARGS)

.PHONY: test
test: kube ## Run every test, those on the real API server included
	$(GO) vet ./...
	$(GO) test -race -short ./slot ./table ./plan ./member ./gate ./internal/store ./labeller ./delivery ./internal/sim .
	$(GO) test -race -parallel 6 -timeout 20m ./ctrlrt
	$(GO) test -timeout 30m $$($(GO) list ./... | grep -v /ctrlrt$$)
	$(MAKE) --no-print-directory check WHAT=fuzz TIME=3s
	cd tools/alerts && GOWORK=off $(GO) vet ./... && GOWORK=off $(GO) test -count=1 ./...
	cd kube && GOWORK=off $(GO) vet ./... && GOWORK=off $(GO) test ./...

# Of these, whatever there is of Kubernetes is types: that they compile says enough.
PURE := /(slot|table|plan|member|gate)$$|/internal/(sim|explore|mutant)(/|$$)

# -modfile does not go with a go.work above, and the children of tests build other modules: hence no GOFLAGS.
LATEST := -modfile=go.latest.mod
.PHONY: test-latest
test-latest: export GOWORK := off
test-latest: kube ## Run the tests with the newest controller-runtime and client-go (go.latest.mod)
	$(GO) mod tidy -diff
	$(GO) mod tidy -diff $(LATEST)
	$(GO) vet $(LATEST) ./...
	$(GO) test $(LATEST) -parallel 6 -timeout 30m $$($(GO) list ./... | grep -vE '$(PURE)')

.PHONY: tidy
tidy: ## Tidy both modfiles: go.mod has the lowest versions, go.latest.mod the newest
	GOWORK=off $(GO) mod tidy
	GOWORK=off $(GO) mod tidy $(LATEST)

.PHONY: kube
kube: ## Build the control plane that demo and tests run against (about 5 minutes on 2 cores, then cached)
	@$(GO) run ./internal/controlplane/cmd >/dev/null

# To have one for kubectl until Ctrl-C: bin/rota-kube up --audit --apiservers 2

.PHONY: footprint
footprint: kube ## Measure what replicas cost and write docs/memory.md (ARGS="--run ^join/", ARGS=--resume)
	@$(GO) build -o bin/footprint ./internal/footprint/cmd
	@bin/footprint $(ARGS)

.PHONY: chaos
chaos: kube ## Have members work through faults on a real API server (ARGS="--runs 400 --fence=false --faults pause-3,held-write -o json", ARGS=--short)
	@$(GO) build -o bin/chaos ./internal/chaos/cmd
	@bin/chaos $(ARGS)
# Each takes minutes or more, and what is said of it in docs/verification.md.
CHECKS := explore sim mutants mutate fuzz bench slow
.PHONY: check $(CHECKS:%=check-%)
check: $(if $(filter $(WHAT),$(CHECKS)),check-$(WHAT),check-what) ## Run one of the long checks: WHAT=explore, sim, mutants, mutate, fuzz, bench or slow

.PHONY: check-what
check-what:
	@echo 'make check WHAT=$(WHAT): must be one of $(CHECKS)' >&2; exit 2

# Search small worlds exhaustively, then run mutants of the scripts (STATES=50000000 MUTANTS=100000 ARGS="-scopes drain2").
check-explore:
	$(GO) run ./internal/explore/cmd -states $(or $(STATES),4000000) $(ARGS)
	MUTANTS=$(or $(MUTANTS),20000) $(GO) test -timeout 120m -v -run TestMutants ./member

# Run 50,000 seeds of the simulator and print what they covered (SEEDS=5000 ARGS="-all=false").
check-sim:
	$(GO) run ./internal/sim/cmd -seeds $(or $(SEEDS),50000) $(ARGS)

# Build bugs in, one at a time, and show which checks find them (ARGS="-all -mutants SkipDrain,OpenEpoch -o markdown").
check-mutants:
	@$(GO) run ./internal/mutant/cmd $(ARGS)

# Change operators in the pure packages, one at a time, and list those that no test notices (PACKAGES="gate table").
# Short tests, and no scripts made of others: each mutation runs them all. The coefficient is for machines that are busy.
check-mutate: export GOFLAGS := -short
check-mutate: export MUTANTS := 0
check-mutate: $(GREMLINS)
	@for p in $(or $(PACKAGES),gate table plan member); do $(GREMLINS) unleash --workers 1 --timeout-coefficient 20 -S lc ./$$p || exit 1; done

$(GREMLINS): tools/gremlins/go.mod
	cd tools/gremlins && GOFLAGS= $(GO) build -o ../../$(GREMLINS) github.com/go-gremlins/gremlins/cmd/gremlins

# Fuzz every decoder and the selectors (TIME=60s each).
check-fuzz:
	@set -e -o pipefail; grep -rl '^func Fuzz' --include='*_test.go' . | sort | while read -r file; do \
		for target in $$(sed -n 's/^func \(Fuzz[A-Za-z]*\).*/\1/p' $$file); do \
			echo "$$(dirname $$file) $$target"; \
			$(GO) test -run '^$$' -fuzz "^$$target$$" -fuzztime $(or $(TIME),60s) -fuzzminimizetime 1s $$(dirname $$file) </dev/null | grep -v '^fuzz: '; \
		done; \
	done

# Run what `make test` leaves out of the tests of tools, since it is slow and rarely finds anything.
check-slow: kube
	SLOW=1 $(GO) test -count=1 -timeout 30m ./internal/demo ./internal/chaos ./internal/controlplane ./internal/footprint

# Run the Go benchmarks.
check-bench:
	$(GO) test -run '^$$' -bench . -benchmem ./plan ./gate ./member ./table ./slot

.PHONY: lint
lint: $(LINT) ## Run golangci-lint, pinned in tools/go.mod
	$(LINT) run ./...

$(LINT): tools/go.mod
	cd tools && $(GO) build -o ../$(LINT) github.com/golangci/golangci-lint/v2/cmd/golangci-lint

.PHONY: clean
clean: ## Remove what was built
	rm -rf bin
