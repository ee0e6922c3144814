# shellcheck shell=bash
# The settings of all that make runs. What make or the environment gives goes before what is said here.

# All is compiled once, as for images: without cgo, which only the race detector needs, without the paths of this work
# tree, so that another one has use of it too, and without what a debugger reads, which takes an eighth of the time: for
# that, go build alone.
export CGO_ENABLED=0
compiled='-trimpath -gcflags=all=-dwarf=false -ldflags=-w'
case " ${GOFLAGS:-} " in
*" $compiled "*) ;;
*) export GOFLAGS="${GOFLAGS:+$GOFLAGS }$compiled" ;;
esac
# With four times the garbage, compilers and API servers need a quarter less of the processors.
export GOGC=${GOGC-400}

# all: runs also what takes long, and looks for data races where there are clients of Kubernetes.
export HOLDFAST_TESTS=${HOLDFAST_TESTS-}
# What must not be left out: a test that would skip for lack of one of these fails. docs/testing.md has them all.
REQUIRE=${REQUIRE-root,uml,cluster,nodes,third-node,ganesha,prometheus,chromium,shm,bash,zsh,fish}
# Bounds the whole run, so that a test that hangs is named by its stack.
TIMEOUT=${TIMEOUT-60m}

takes_long() { [[ " $HOLDFAST_TESTS " == *" all "* ]]; }
if takes_long; then REQUIRE+=,axe; fi # of the registry of npm, which need not be within reach of every make test

# How many nodes the tests in a cluster have; some of those that take long need three.
if [ -z "${NODES+set}" ]; then if takes_long; then NODES=3; else NODES=2; fi; fi

# The tests make real file systems, serve them over NFS, measure with fio, scrape them with Prometheus, look at the page with Chromium in a font that is the same everywhere, complete commands in three shells, and start a second kernel; -race needs a C compiler.
PACKAGES=${PACKAGES-attr acl btrfs-progs chromium dbus-daemon e2fsprogs fio fish fonts-inter gcc kmod libc6-dev mount nfs-ganesha nfs-ganesha-vfs prometheus user-mode-linux util-linux xfsprogs zsh}
# What make test-ceph needs beside those: a Ceph to run, and the libraries that go-ceph is linked with.
CEPH_PACKAGES=${CEPH_PACKAGES-ceph-common ceph-mds ceph-mgr ceph-mgr-modules-core ceph-mon ceph-osd iproute2 libcephfs-dev librados-dev librbd-dev}
if [ -n "${WITH_CEPH:-}" ]; then PACKAGES+=" $CEPH_PACKAGES"; fi

# What needs an API server without Holdfast, and what needs a cluster with it. One package after the other: they share it.
# Most of the first list take away kinds that others need, so they have an API server of their own; both take as long.
INSTALL_TESTS=${INSTALL_TESTS-./operator/nodejob ./operator/bootstrap ./kube/apply ./operator/snapshots ./operator/cluster ./operator/upgrade ./test/suite/helm}
API_TESTS=${API_TESTS-./test/suite/api ./backend/cluster ./operator/fencing ./operator/nfsserver ./operator/volume ./operator/volumecopy ./provisioner}
CLUSTER_TESTS=${CLUSTER_TESTS-./bench ./test/suite/e2e ./test/suite/e2e/accidents ./test/suite/e2e/kube ./test/suite/e2e/operator ./test/suite/e2e/upgrade}
# In a cluster with a Ceph beside it.
CEPH_CLUSTER_TESTS=${CEPH_CLUSTER_TESTS-./test/suite/e2e/ceph}

# What needs the cluster takes longest, so what else is compiled or checked makes way for it. The tests themselves,
# which measure, do not. What golangci-lint vets is not vetted again. The race detector makes every process wait for a
# second at its end unless configured otherwise.
aside=(nice -n 10)
test=(go test -vet=off)
race_aside=(env CGO_ENABLED=1 GORACE=atexit_sleep_ms=0 nice -n 10 go test -vet=off -race -exec 'nice -n -10 env CGO_ENABLED=0')
# With clients of Kubernetes, data races are looked for when there is time: the clients take minutes to be compiled for
# that, and tests that ask an API server take twice as long.
if takes_long; then kubernetes_test=("${race_aside[@]}"); else kubernetes_test=(nice -n 10 go test -vet=off -exec 'nice -n -10'); fi
bounded=(-count=1 -timeout "$TIMEOUT")

# What is checked is kept in memory: with a limit instead of a ratio it takes half of that, and less time.
lint=(env GOGC=off GOMEMLIMIT=4GiB go tool "-modfile=$PWD/test/tool/linter/go.mod" golangci-lint-kube-api-linter)
# The modules beside this one that are checked like it. Of test/tool/cluster, what wires Kubernetes together in a few lines
# is checked only when there is time: for it all of Kubernetes is compiled.
LINTED=${LINTED-test/suite/deploy test/suite/schema test/tool/cluster test/tool/cluster/dns test/tool/generate}
if takes_long; then leave_out='^$'; else leave_out='/test/tool/cluster/kubernetes$'; fi

step() { printf '\n== %s\n' "$1"; }
