# shellcheck shell=bash
# What the lanes of test/tool/lane need, as targets of their own: they are given to test/run/run.

# lane NAME...: the lanes of these names, one after another.
lane() {
	go build -o bin/lane ./test/tool/lane
	[ "${1:-status}" != status ] || exec bin/lane "$@"
	export HOLDFAST_BINARY=$PWD/bin/holdfast
	in_memory
	# shellcheck disable=SC2086
	exec ${BESIDE:-} bin/lane "$@"
}

# stress: one test, N times, beside a neighbour.
stress() { BESIDE='go run ./test/tool/neighbour' lane stress "${T:-}" "${N:-50}"; }

# in_memory makes a directory in memory, where there is enough, for the lanes that are syncing often. It is removed when
# this process has ended.
in_memory() {
	awk '/^MemAvailable:/ { exit $2 < 12 * 1024 * 1024 }' /proc/meminfo || return 0
	local of
	for of in /tmp/mem.*; do # of processes that ended with their watcher
		[ ! -d "$of" ] || [ -d "/proc/${of#/tmp/mem.}" ] || { umount --lazy "$of" 2>/dev/null || :; rmdir "$of"; }
	done
	export HOLDFAST_MEMORY=/tmp/mem.$$
	mkdir -p "$HOLDFAST_MEMORY"
	mount -t tmpfs -o mode=1777 holdfast-tests "$HOLDFAST_MEMORY"
	setsid --fork bash -c 'tail --pid="$1" -f /dev/null; tries=60; until umount "$2"; do ((tries--)) || { umount --lazy "$2"; break; }; sleep 1; done; rmdir "$2"' \
		- $$ "$HOLDFAST_MEMORY" </dev/null >/dev/null 2>&1
}

crashing-binary() { go build -tags crashpoints -o bin/holdfast-crashpoints ./cmd/holdfast; }

cluster-program() { go build -C test/cluster -o ../../bin/cluster .; }

# The cluster of a lane with Holdfast in it, and how many nodes.
golden-cluster() { holdfast-cluster golden 1; }
deploy-cluster() { holdfast-cluster deploy 1; }
e2e-cluster() { holdfast-cluster e2e-lane 3; }
cephpools-cluster() {
	images/build ceph >bin/images-ceph
	holdfast-cluster cephpools 3
	# shellcheck disable=SC2046
	bin/cluster -name cephpools load-image $(awk '$1 == "ceph" || $1 == "csi-attacher" { print $3 }' bin/images bin/images-ceph)
}

holdfast-cluster() { HOLDFAST_IMAGES=$PWD/bin/images test/cluster/install "$1" "$2"; }

# The cluster of a lane whose tests play the controller.
controllers-cluster() { bin/cluster -name controllers up; }
figures-cluster() { bin/cluster -name figures up; }
helm-cluster() { bin/cluster -name helm up; }
oldest-cluster() { bin/cluster -name oldest -oldest-api up; }
plugin-cluster() {
	local config
	bin/cluster -name plugin up
	config=$(bin/cluster -name plugin kubeconfig)
	ln -sf "$(dirname "$config")/bin/kubectl" bin/kubectl
	bin/kubectl --kubeconfig "$config" apply --server-side -k deploy/crds >/dev/null
}
ceph-site-cluster() { bin/cluster -name ceph-site up; }

# e2e-one: the tests whose names begin with T, in the cluster of make e2e, with what has changed.
e2e-one() {
	local package
	# Pools in Ceph need an image that this cluster does not have.
	package=$(grep -rl --include='*_test.go' --exclude-dir=ceph "^func ${T:?is missing: give a test, such as T=TestClaim_Data}" test/suite/e2e | xargs -r dirname | sort -u) || true
	[ -n "$package" ] || { echo "T=$T: no test of test/suite/e2e has a name that begins so" >&2; exit 1; }
	test/cluster/install e2e "${NODES:-1}"
	echo "== the cluster stays for the next call, and takes time from other tests: make down removes it"
	# shellcheck disable=SC2086
	HOLDFAST_TESTS=all HOLDFAST_CLUSTER=e2e go test -vet=off -count=1 -timeout "$TIMEOUT" -p 1 -v -run "^$T" $(printf "./%s " $package)
}

# e2e: in the cluster of HOLDFAST_KUBECONFIG, or in one that stays.
e2e() {
	export HOLDFAST_TESTS=all
	if [ -n "${HOLDFAST_KUBECONFIG:-}" ]; then
		export HOLDFAST_REQUIRE=cluster
	else
		HOLDFAST_TESTS= test/cluster/install e2e 3
		export HOLDFAST_CLUSTER=e2e HOLDFAST_REQUIRE=${REQUIRE-root,uml,cluster,nodes,third-node}
	fi
	step e2e
	# Pools in Ceph need an image that this cluster does not have.
	eval 'go test -vet=off -count=1 -timeout "$TIMEOUT" -p 1 $(go list ./test/suite/e2e/... | grep -v /e2e/ceph$) '"${E2E:-}"
}
