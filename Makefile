# make TARGET does test/run/run TARGET, after what the target needs; make help lists them. Settings, such as TIMEOUT=2h
# or E2E='-run Block -v', are given to make and are in test/run/env.sh.
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help

# make e2e KUBECONFIG=FILE is in any cluster with Holdfast in it. One that is only exported is not meant.
GIVEN := $(if $(filter command line,$(origin KUBECONFIG)),$(abspath $(KUBECONFIG)))

##@ For users
help: ## list the targets
	@awk '/^##@/ { printf "\n%s\n", substr($$0, 5) } /^[a-z0-9-]+:.*## / { split($$0, t, /:.*## /); printf "  make %-17s %s\n", t[1], t[2] }' Makefile

run: root deps build ## show one volume's life on a pool made for it (root)

up: root ## start a real Kubernetes here, install Holdfast, make a claim and a pod that writes to it (root)

down: root ## remove all that make up and make e2e made (root)

kubeconfig: ## print the path of the kubeconfig of make up
install-manifest: ## print what installs the image of VERSION=v1, for kubectl apply -f -

test: root deps build ## install what is missing, then check and test all that must pass before a change lands (root)
	@test/run/run lane gate

e2e: export HOLDFAST_KUBECONFIG := $(GIVEN)
e2e: $(if $(GIVEN),,root deps) ## test in a real cluster that stays until make down (root), or in any: KUBECONFIG=FILE

bench: root deps build ## measure every engine against the raw pool, as a table: BENCH=-quick (root)

##@ For developers
build: ## compile bin/holdfast

test-fast: ## run what needs no root and no installed packages

test-all: root deps build ## test what make test leaves out, lane by lane, and go on where the last call ended: BUDGET=150m (root)
	@test/run/run lane all

test-status: build ## say which lanes have passed on this tree
	@test/run/run lane status

stress: root deps build ## run one test again and again beside a neighbour: T=operator/volume.TestLoss_X N=50 (root)
	@test/run/run $@
unit: ## run tests with the flags of the project, and with the API server of make api-server: P=./agent RUN=TestLease

api-server: root ## start an API server for make unit that stays until make down (root)

e2e-one: root deps ## run e2e tests in the cluster of make e2e, with what has changed in it: T=TestClaim_Data (root)

lanes: build ## list the lanes of tests; make lane-NAME runs one (root)
	@test/run/run lane

lane-%: root deps build
	@test/run/run lane $*

test-noisy: root deps build ## make test, beside a process that takes 3/7 of every processor (root)
	@test/run/run $@

local-run: build ## run the operator alone, outside of the cluster that KUBECONFIG names; the one inside stands by

generate: ## write what follows from api/v1beta1 and deploy: deepcopy, clients, CRDs, manifests
generated: ## check that what is generated is what make generate writes

lint: ## check style and import directions with golangci-lint
lint-all: ## the same in the other modules, and with the tags of Ceph

fmt: ## format the source

bench-claims: root deps ## measure claims and pods beside local-path-provisioner, in turns: CLAIMS='3 --at-once 1,20' (root)

fuzz: ## run every fuzz target for FUZZTIME (20s)
images: root ## build the container images without a registry, one line each: NAME REFERENCE ARCHIVE (root)

release: root ## make the release VERSION=v1.2.3 of this commit in bin/release: images, manifest, chart, bundle, SBOM, notes (root)
release-check: root ## make the release twice, compare all bytes, start what is for arm64 (root)
licences: build ## check that all that is linked into bin/holdfast and the program of the image ceph has a licence that is allowed
vulncheck: ## look for known vulnerabilities in both with govulncheck, which asks vuln.go.dev, or VULNDB=URL

deps: ## install the Debian packages that the tests need, where missing
root: ## stop where the caller is not root
size: ## count the lines of Go that are written by hand
clean: ## remove what was built

SCRIPTED := run up down kubeconfig install-manifest e2e bench build test-fast unit api-server e2e-one local-run generate generated lint lint-all fmt bench-claims \
	fuzz images release release-check licences vulncheck deps root size clean
$(SCRIPTED):
	@test/run/run $@

.PHONY: help test test-all test-status stress lanes test-noisy $(SCRIPTED)
