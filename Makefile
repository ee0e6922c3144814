SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# How long each fuzz target runs.
FUZZTIME ?= 20s
# Arguments of the benchmark: make bench BENCH=-quick
BENCH ?=
# What make test must not leave out: a test that would skip for lack of one of these fails.
REQUIRE ?= root,uml
# Bounds the whole run of make test, so that a test that hangs is named by its stack.
TIMEOUT ?= 60m

# The tests make real file systems, measure with fio, and start a second kernel; -race needs a C compiler.
PACKAGES := attr acl btrfs-progs e2fsprogs fio gcc kmod libc6-dev mount user-mode-linux util-linux xfsprogs
LINT := go tool -modfile=test/tools/go.mod golangci-lint

step = @printf '\n== %s\n' "$(1)"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-10s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile bin/holdfast
	$(call step,build)
	CGO_ENABLED=0 go build -o bin/holdfast ./cmd/holdfast

.PHONY: run
run: root deps build ## show one volume's life on a pool made for it (root)
	$(call step,run)
	go run ./test/demo -binary bin/holdfast

.PHONY: test
test: root deps build vet lint ## install what is missing, then run everything (root)
	$(call step,test)
	HOLDFAST_REQUIRE=$(REQUIRE) go test -race -count=1 -timeout $(TIMEOUT) ./...

.PHONY: test-fast
test-fast: ## run what needs no root and no installed packages
	go test -short ./...

.PHONY: images
images: root ## build the container images without a registry, one line each: NAME REFERENCE ARCHIVE (root)
	$(call step,images)
	images/build

.PHONY: up
up: root ## start a real Kubernetes here, install Holdfast, make a claim and a pod that writes to it (root)
	test/cluster/try

.PHONY: down
down: root ## remove all that make up made (root)
	cd test/cluster && go run . down
	if [ -e /var/lib/holdfast/.trial ]; then rm -rf /var/lib/holdfast; fi

.PHONY: kubeconfig
kubeconfig: ## print the path of the kubeconfig of make up
	@cd test/cluster && go run . kubeconfig

.PHONY: vet
vet: ## check with go vet
	$(call step,vet)
	go vet ./...
	go vet -tags crashpoints ./...

.PHONY: lint
lint: ## check style and import directions with golangci-lint
	$(call step,lint)
	$(LINT) run

.PHONY: fmt
fmt: ## format the source
	$(LINT) fmt

.PHONY: bench
bench: root deps build ## measure every engine against the raw pool, as a table (root)
	go run ./test/bench -binary bin/holdfast $(BENCH)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@go test -list '^Fuzz' ./... \
	| awk '/^Fuzz/ { name[n++] = $$1 } /^ok/ { while (n) print $$2, name[--n] }' \
	| while read -r package target; do \
		printf '\n== fuzz %s %s\n' "$$package" "$$target"; \
		go test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
	done

.PHONY: deps
deps: ## install the Debian packages that the tests need, where missing
	@missing=$$(for p in $(PACKAGES); do dpkg-query -W -f '$${Status}' $$p 2>/dev/null | grep -q ' installed$$' || echo $$p; done); \
	if [ -n "$$missing" ]; then \
		printf '\n== deps: %s\n' "$$(echo $$missing)"; \
		apt-get update -qq; \
		DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing >/dev/null; \
	fi

.PHONY: root
root: ## stop where the caller is not root
	@[ "$$(id -u)" = 0 ] || { echo "this target makes and mounts file systems: run it as root; make test-fast needs none" >&2; exit 1; }

.PHONY: clean
clean: ## remove what was built
	rm -rf bin
	go clean -testcache
