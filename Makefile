SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# All is compiled once, as for images: without cgo, which only the race detector needs, without the paths of this work
# tree, so that another one has use of it too, and without what a debugger reads, which takes an eighth of the time: for
# that, go build alone. The race detector makes every process wait for a second at its end unless told otherwise.
export CGO_ENABLED := 0
COMPILED := -trimpath -gcflags=all=-dwarf=false -ldflags=-w
export GOFLAGS := $(filter-out $(COMPILED),$(GOFLAGS)) $(COMPILED)
# With four times the garbage, compilers and API servers need a quarter less of the processors.
GOGC ?= 400
export GOGC
# What needs the cluster takes longest, so what else is compiled or checked makes way for it. The tests themselves,
# which measure, do not. What golangci-lint vets is not vetted again.
ASIDE := nice -n 10
TEST := go test -vet=off
TEST_ASIDE := $(ASIDE) $(TEST) -exec 'nice -n -10'
RACE_ASIDE := CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 $(ASIDE) go test -vet=off -race -exec 'nice -n -10 env CGO_ENABLED=0'

# How long each fuzz target runs.
FUZZTIME ?= 20s
# Arguments of the benchmark: make bench BENCH=-quick
BENCH ?=
# Arguments of the comparison with a peer: make bench-claims CLAIMS='3 --at-once 1,20'
CLAIMS ?=
# Arguments of the tests in a cluster: make e2e E2E='-run Block -v'
E2E ?=
# What make test must not leave out: a test that would skip for lack of one of these fails. docs/testing.md has them all.
REQUIRE ?= root,uml,cluster,nodes,third-node,ganesha,shm
# all: make test runs also what takes long, and looks for data races where there are clients of Kubernetes.
HOLDFAST_TESTS ?=
export HOLDFAST_TESTS
# How many nodes the tests in a cluster have; some of those that take long need three.
NODES := $(if $(filter all,$(HOLDFAST_TESTS)),3,2)
# Bounds the whole run of make test, so that a test that hangs is named by its stack.
TIMEOUT ?= 60m

# The tests make real file systems, serve them over NFS, measure with fio, and start a second kernel; -race needs a C compiler.
PACKAGES := attr acl btrfs-progs dbus-daemon e2fsprogs fio gcc kmod libc6-dev mount nfs-ganesha nfs-ganesha-vfs user-mode-linux util-linux xfsprogs
# What needs an API server without Holdfast, and what needs a cluster with it. One package after the other: they share it.
# Most of the first list take away kinds that others need, so they have an API server of their own; both take as long.
INSTALL_TESTS := ./operator/nodejob ./operator/first ./kube/apply ./operator/snapshots ./operator/cluster ./operator/upgrade
API_TESTS := ./test/api ./backend/cluster ./operator/nfsserver ./provisioner
CLUSTER_TESTS := ./bench ./test/e2e ./test/e2e/accidents ./test/e2e/kube ./test/e2e/operator ./test/e2e/upgrade
# With clients of Kubernetes, data races are looked for when there is time: the clients take minutes to be compiled for
# that, and tests that ask an API server take twice as long.
KUBERNETES_TEST := $(if $(filter all,$(HOLDFAST_TESTS)),$(RACE_ASIDE),$(TEST_ASIDE))
# What is checked is kept in memory: with a limit instead of a ratio it takes half of that, and less time.
LINT := env GOGC=off GOMEMLIMIT=4GiB go tool -modfile=$(CURDIR)/test/tools/go.mod golangci-lint
# The modules beside this one that are checked like it. Of test/cluster, what wires Kubernetes together in a few lines
# is checked only when there is time: for it all of Kubernetes is compiled.
LINTED := test/deploy test/schema test/cluster test/cluster/dns test/tools/generate
LEAVE_OUT := $(if $(filter all,$(HOLDFAST_TESTS)),^$$,/test/cluster/kubernetes$$)

step = @printf '\n== %s\n' "$(1)"

.PHONY: help
help: ## list the targets
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: build
build: ## compile bin/holdfast
	$(call step,build)
	go build -o bin/holdfast ./cmd/holdfast

.PHONY: run
run: root deps build ## show one volume's life on a pool made for it (root)
	$(call step,run)
	go run ./test/demo -binary bin/holdfast

.PHONY: test
test: root deps build ## install what is missing, then check and test all but what takes long (root)
	@HOLDFAST_BINARY=$(CURDIR)/bin/holdfast $(MAKE) --no-print-directory --jobs=6 test-cluster lint generated test-hosts test-api-install test-api-rest test-of-clusters

.PHONY: test-all
test-all: ## the same with what takes long (root)
	@$(MAKE) --no-print-directory test HOLDFAST_TESTS=all TIMEOUT=120m

.PHONY: test-noisy
test-noisy: ## the same as make test, beside somebody who takes 3/7 of every processor (root)
	@go run ./test/neighbour $(MAKE) --no-print-directory test

# All but the last beside each other: what asks an API server waits more than it computes, and the rest computes. The
# cluster takes longest, so it begins.
.PHONY: test-hosts
test-hosts: root deps
	$(call step,test of units and of hosts)
	@clients=$$(go list -test -f '{{range .Deps}}{{.}} {{end}}{{.ImportPath}}' ./... | sed -n 's|.*k8s\.io/client-go/.* \(.*\)\.test$$|\1|p'); \
	others=$$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vxFf <(go list $(INSTALL_TESTS) $(API_TESTS) $(CLUSTER_TESTS))); \
	go build -tags crashpoints -o bin/holdfast-crashpoints ./cmd/holdfast; \
	export HOLDFAST_CRASHING_BINARY=$(CURDIR)/bin/holdfast-crashpoints HOLDFAST_REQUIRE=$(REQUIRE); \
	failed=0; \
	$(RACE_ASIDE) -count=1 -timeout $(TIMEOUT) ./test/uml $$(grep -vxF "$$clients" <<<"$$others") || failed=1; \
	$(KUBERNETES_TEST) -count=1 -timeout $(TIMEOUT) $$(grep -xF "$$clients" <<<"$$others") || failed=1; \
	exit $$failed

.PHONY: test-api-install
test-api-install: root deps cluster-program
	$(call step,test of the API in a cluster without Holdfast and its kinds)
	$(call test-on-api,install,$(INSTALL_TESTS))

.PHONY: test-api-rest
test-api-rest: root deps cluster-program
	$(call step,test of the API in a cluster without Holdfast)
	$(call test-on-api,api,$(API_TESTS),deploy/crds)

.PHONY: test-of-clusters
test-of-clusters: root deps cluster-program
	$(call step,test of the test cluster)
	cd test/schema && go test -count=1 -timeout $(TIMEOUT) .
	cd test/cluster && HOLDFAST_REQUIRE=$(REQUIRE) go test -count=1 -timeout $(TIMEOUT) . ./artifact ./config ./guest ./host ./image ./locker ./pki

# fresh CLUSTER: it begins with nothing, and goes with this shell. What another run has left would fail the tests of this one.
fresh = setsid --fork bin/cluster -name $(1) down-after $$$$ </dev/null >/dev/null 2>&1; \
trap 'bin/cluster -name $(1) down >/dev/null' EXIT; \
bin/cluster -name $(1) down >/dev/null

# test-on-api CLUSTER,PACKAGES,KINDS: of kinds that are there from the beginning, no package brings and removes its own.
define test-on-api
@$(call fresh,$(1)); \
bin/cluster -name $(1) up; \
config=$$(bin/cluster -name $(1) kubeconfig); \
$(if $(3),"$$(dirname "$$config")/bin/kubectl" --kubeconfig "$$config" apply --server-side -k $(3) >/dev/null;) \
HOLDFAST_API=$(1) HOLDFAST_REQUIRE=$(REQUIRE),api $(KUBERNETES_TEST) -p 1 -count=1 -timeout $(TIMEOUT) $(2)
endef

.PHONY: test-cluster
test-cluster: root deps cluster-program
	$(call step,test in a cluster)
	@$(call fresh,test); \
	HOLDFAST_IMAGES=$(CURDIR)/bin/images test/cluster/install test $(NODES); \
	failed=0; \
	(cd test/deploy && HOLDFAST_CLUSTER=test HOLDFAST_REQUIRE=$(REQUIRE) $(TEST) -count=1 -timeout $(TIMEOUT) ./...) || failed=1; \
	HOLDFAST_CLUSTER=test HOLDFAST_REQUIRE=$(REQUIRE) $(TEST) -p 1 -count=1 -timeout $(TIMEOUT) $(CLUSTER_TESTS) || failed=1; \
	exit $$failed

# Not beside the images: both compile much of Kubernetes, and install packages.
.PHONY: cluster-program
cluster-program: images
	go build -C test/cluster -o ../../bin/cluster .

# With make e2e KUBECONFIG=FILE in any cluster with Holdfast in it: an exported KUBECONFIG alone is not meant.
GIVEN := $(if $(filter command line,$(origin KUBECONFIG)),$(abspath $(KUBECONFIG)))

.PHONY: e2e
e2e: $(if $(GIVEN),,root deps) ## test in a real cluster of three kernels, which stays until make down (root), or in that of KUBECONFIG=FILE
	$(if $(GIVEN),,test/cluster/install e2e 3)
	$(call step,e2e)
	HOLDFAST_TESTS=all $(if $(GIVEN),HOLDFAST_KUBECONFIG=$(GIVEN) HOLDFAST_REQUIRE=cluster,HOLDFAST_CLUSTER=e2e HOLDFAST_REQUIRE=$(REQUIRE)) go test -count=1 -timeout $(TIMEOUT) -p 1 ./test/e2e/... $(E2E)

.PHONY: test-fast
test-fast: ## run what needs no root and no installed packages
	go test -short ./...

.PHONY: images
images: root ## build the container images without a registry, one line each: NAME REFERENCE ARCHIVE (root)
	$(call step,images)
	@mkdir -p bin
	images/build | tee bin/images.new
	@mv bin/images.new bin/images

.PHONY: up
up: root ## start a real Kubernetes here, install Holdfast, make a claim and a pod that writes to it (root)
	test/cluster/try

.PHONY: down
down: root ## remove all that make up and make e2e made (root)
	cd test/cluster && go run . down && go run . -name e2e down
	if [ -e /var/lib/holdfast/.trial ]; then rm -rf /var/lib/holdfast; fi

.PHONY: kubeconfig
kubeconfig: ## print the path of the kubeconfig of make up
	@cd test/cluster && go run . kubeconfig

.PHONY: local-run
local-run: build ## run the operator alone, outside of the cluster that KUBECONFIG names; the one inside stands by
	bin/holdfast controller --operator-alone --kubeconfig "$${KUBECONFIG:-$$HOME/.kube/config}"

.PHONY: generate
generate: ## write what follows from api/v1 and deploy: deepcopy, clients, CRDs, manifests
	test/tools/generate/run

.PHONY: install-manifest
install-manifest: ## print what installs the image of VERSION=v1, for kubectl apply -f -
	@[[ "$(VERSION)" =~ ^[A-Za-z0-9]([A-Za-z0-9._-]{0,61}[A-Za-z0-9])?$$ ]] || { echo "VERSION=$(VERSION): give the tag of an image, such as VERSION=v1" >&2; exit 1; }
	@sed -e 's|^\( *image: holdfast/holdfast:\)dev$$|\1$(VERSION)|' -e 's|^\( *app.kubernetes.io/version: \)dev$$|\1$(VERSION)|' deploy/install.yaml

.PHONY: generated
generated: ## check that what is generated is what make generate writes
	$(call step,generated)
	$(ASIDE) test/tools/generate/run -check

.PHONY: lint
lint: ## check style and import directions with golangci-lint
	$(call step,lint)
	$(ASIDE) $(LINT) run --allow-parallel-runners
	@for module in $(LINTED); do \
		cd $(CURDIR)/$$module; \
		$(ASIDE) $(LINT) run --allow-parallel-runners $$(go list -f '{{.Dir}}' ./... | grep -v '$(LEAVE_OUT)'); \
	done
	go vet -tags crashpoints ./crashpoint # go vet is one of the linters, but for this

.PHONY: fmt
fmt: ## format the source
	$(LINT) fmt

.PHONY: bench
bench: root deps build ## measure every engine against the raw pool, as a table (root)
	go run ./test/bench -binary bin/holdfast $(BENCH)

.PHONY: bench-claims
bench-claims: root deps ## measure claims and pods beside local-path-provisioner, in turns in one cluster (root)
	test/bench/peer/run $(CLAIMS)

.PHONY: fuzz
fuzz: ## run every fuzz target for FUZZTIME (20s)
	@for module in . test/schema; do \
		go -C $$module test -list '^Fuzz' ./... \
		| awk '/^Fuzz/ { name[n++] = $$1 } /^ok/ { while (n) print $$2, name[--n] }' \
		| while read -r package target; do \
			printf '\n== fuzz %s %s\n' "$$package" "$$target"; \
			go -C $$module test -run '^$$' -fuzz "^$$target\$$" -fuzztime $(FUZZTIME) "$$package"; \
		done; \
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
