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

# Bounds go test where no lane does, so that a test that hangs is named by its stack.
TIMEOUT=${TIMEOUT-60m}

# What the gate needs: the tests make real file systems, complete commands in three shells, and are compiled with cgo where
# a library of C is linked. What other lanes need besides, they install: test/tool/lane/lanes.go.
PACKAGES=${PACKAGES-attr acl btrfs-progs e2fsprogs fish gcc kmod libc6-dev mount strace util-linux xfsprogs zsh}

# What is checked is kept in memory: with a limit instead of a ratio it takes half of that, and less time.
lint=(env GOGC=off GOMEMLIMIT=4GiB go tool "-modfile=$PWD/test/tool/linter/go.mod" golangci-lint-kube-api-linter)
# The modules beside this one that lint-all checks like it.
LINTED=${LINTED-test/suite/deploy test/suite/schema test/cluster test/cluster/dns test/tool/generate}

step() { printf '\n== %s\n' "$1"; }
