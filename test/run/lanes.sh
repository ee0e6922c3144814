# shellcheck shell=bash
# The lanes of make test. Four run beside each other: what asks an API server waits more than it computes, and the rest
# computes. More would only make each other late. What takes longest begins.

# in_memory keeps the temporary files of this process and its children in memory, where there is enough: pools are synced
# often, and would wait for all that the other lanes write to the disk. The memory is freed when this process has ended.
in_memory() {
	local memory
	awk '/^MemAvailable:/ { exit $2 < 12 * 1024 * 1024 }' /proc/meminfo || return 0
	memory=$(mktemp -d /tmp/mem.XXX)
	mount -t tmpfs -o mode=1777 holdfast-tests "$memory"
	setsid --fork bash -c 'tail --pid="$1" -f /dev/null; tries=60; until umount "$2"; do ((tries--)) || { umount --lazy "$2"; break; }; sleep 1; done; rmdir "$2"' \
		- $$ "$memory" </dev/null >/dev/null 2>&1
	export TMPDIR=$memory
}

test-hosts() {
	local clients others failed=0
	step 'test of units and of hosts'
	in_memory
	clients=$(go list -test -f '{{range .Deps}}{{.}} {{end}}{{.ImportPath}}' ./... | sed -n 's|.*k8s\.io/client-go/.* \(.*\)\.test$|\1|p')
	# shellcheck disable=SC2086
	others=$(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./... | grep -vxFf <(go list $INSTALL_TESTS $API_TESTS $CLUSTER_TESTS $CEPH_CLUSTER_TESTS))
	go build -tags crashpoints -o bin/holdfast-crashpoints ./cmd/holdfast
	export HOLDFAST_CRASHING_BINARY=$PWD/bin/holdfast-crashpoints HOLDFAST_REQUIRE=$REQUIRE
	# shellcheck disable=SC2046
	"${race_aside[@]}" "${bounded[@]}" ./test/rig/uml $(grep -vxF "$clients" <<<"$others") || failed=1
	# shellcheck disable=SC2046
	"${kubernetes_test[@]}" "${bounded[@]}" $(grep -xF "$clients" <<<"$others") || failed=1
	return $failed
}

test-api-install() {
	step 'test of the API in a cluster without Holdfast and its kinds'
	test_on_api install "$INSTALL_TESTS"
}

test-api-rest() {
	step 'test of the API in a cluster without Holdfast'
	test_on_api api "$API_TESTS" deploy/crds
	step 'test of the program as a plugin of the kubectl of that cluster'
	PATH=$(dirname "$(bin/cluster -name api kubeconfig)")/bin:$PATH HOLDFAST_REQUIRE=$REQUIRE,kubectl "${kubernetes_test[@]}" "${bounded[@]}" -run '^TestPlugin_' ./cmd/holdfast
}

# The kinds are tried always, the operator and its policies with what takes long.
test-api-oldest() {
	step 'test of the API with the oldest Kubernetes'
	test_on_api oldest ./test/suite/api deploy/crds -oldest-api
	if takes_long; then
		test_on_api oldest "$INSTALL_TESTS" '' -oldest-api
	fi
}

test-of-clusters() {
	step 'test of the test cluster'
	(cd test/suite/schema && go test "${bounded[@]}" .)
	cd test/tool/cluster
	HOLDFAST_REQUIRE=$REQUIRE go test "${bounded[@]}" . ./artifact ./config ./guest ./host ./image ./locker ./pki
}

# fresh CLUSTER: it begins with nothing, and goes with this process. What another run has left would fail the tests of
# this one.
fresh() {
	fresh_cluster=$1
	setsid --fork bin/cluster -name "$1" down-after $$ </dev/null >/dev/null 2>&1
	trap 'bin/cluster -name "$fresh_cluster" down >/dev/null' EXIT
	bin/cluster -name "$1" down >/dev/null
}

# test_on_api CLUSTER PACKAGES [KINDS [FLAG...]]: of kinds that are there from the beginning, no package brings and removes its own.
test_on_api() {
	local config
	fresh "$1"
	bin/cluster -name "$1" "${@:4}" up
	config=$(bin/cluster -name "$1" kubeconfig)
	if [ -n "${3:-}" ]; then
		"$(dirname "$config")/bin/kubectl" --kubeconfig "$config" apply --server-side -k "$3" >/dev/null
	fi
	# shellcheck disable=SC2086
	HOLDFAST_API=$1 HOLDFAST_REQUIRE=$REQUIRE,api "${kubernetes_test[@]}" -p 1 "${bounded[@]}" $2
}

test-cluster() {
	local failed=0
	step 'test in a cluster'
	fresh test
	HOLDFAST_IMAGES=$PWD/bin/images test/tool/cluster/install test "$NODES"
	(cd test/suite/deploy && HOLDFAST_CLUSTER=test HOLDFAST_REQUIRE=$REQUIRE "${test[@]}" "${bounded[@]}" ./...) || failed=1
	# shellcheck disable=SC2086
	HOLDFAST_CLUSTER=test HOLDFAST_REQUIRE=$REQUIRE "${test[@]}" -p 1 "${bounded[@]}" $CLUSTER_TESTS || failed=1
	return $failed
}

# What of test-ceph fits into every run. It comes after all else: a monitor that gets no processor loses its leader.
test-ceph-engines() {
	takes_long && return # test-ceph has it
	PACKAGES="$PACKAGES $CEPH_PACKAGES" deps
	step 'test of the engines of Ceph'
	CGO_ENABLED=1 HOLDFAST_REQUIRE=$REQUIRE,ceph go test -vet=off -tags ceph,pacific,crashpoints -p 1 "${bounded[@]}" -run '^TestBlockImage_Conforms|^TestCephFS_Conforms|^TestTrash_|^TestHeader_' ./backend/ceph/rbd ./backend/ceph/cephfs
}

# With cgo and the tags, on clusters of its own: for all else neither Ceph nor its libraries are needed.
test-ceph() {
	local tags=ceph,pacific,crashpoints failed=0
	PACKAGES="$PACKAGES $CEPH_PACKAGES" deps
	step 'test with Ceph'
	cluster-program
	fresh ceph
	bin/cluster -name ceph up
	CGO_ENABLED=1 go build -tags $tags -o bin/holdfast-ceph ./cmd/holdfast
	CGO_ENABLED=1 HOLDFAST_API=ceph HOLDFAST_CEPH_BINARY=$PWD/bin/holdfast-ceph HOLDFAST_REQUIRE=$REQUIRE,ceph,api nice -n 10 go test -vet=off -tags $tags "${bounded[@]}" ./test/suite/cephsite || failed=1
	CGO_ENABLED=1 HOLDFAST_REQUIRE=$REQUIRE,ceph HOLDFAST_TESTS=all nice -n 10 go test -vet=off -tags $tags -p 1 "${bounded[@]}" ./backend/ceph/... || failed=1
	CGO_ENABLED=1 HOLDFAST_REQUIRE=$REQUIRE,ceph nice -n 10 go test -vet=off -tags $tags -p 1 "${bounded[@]}" ./test/rig/ceph ./test/suite/ceph || failed=1
	CGO_ENABLED=1 "${aside[@]}" "${lint[@]}" run --allow-parallel-runners --build-tags $tags ./backend/ceph/... ./test/rig/ceph ./test/suite/ceph ./test/suite/cephsite || failed=1
	return $failed
}

# On three nodes, two of which have a kernel with the clients of Ceph.
test-ceph-cluster() {
	PACKAGES="$PACKAGES $CEPH_PACKAGES" deps
	step 'test with Ceph in a cluster'
	images/build ceph >bin/images-ceph
	fresh cephpools
	HOLDFAST_IMAGES=$PWD/bin/images test/tool/cluster/install cephpools 3
	# shellcheck disable=SC2046
	bin/cluster -name cephpools load-image $(awk '$1 == "ceph" || $1 == "csi-attacher" { print $3 }' bin/images bin/images-ceph)
	HOLDFAST_CLUSTER=cephpools HOLDFAST_REQUIRE=$REQUIRE,ceph "${test[@]}" "${bounded[@]}" $CEPH_CLUSTER_TESTS
}

cluster-program() { go build -C test/tool/cluster -o ../../../bin/cluster .; }

# e2e: in the cluster of HOLDFAST_KUBECONFIG, or in one that stays.
e2e() {
	export HOLDFAST_TESTS=all
	if [ -n "${HOLDFAST_KUBECONFIG:-}" ]; then
		export HOLDFAST_REQUIRE=cluster
	else
		HOLDFAST_TESTS= test/tool/cluster/install e2e 3
		export HOLDFAST_CLUSTER=e2e HOLDFAST_REQUIRE=$REQUIRE
	fi
	step e2e
	# Pools in Ceph need an image that this cluster does not have.
	eval 'go test "${bounded[@]}" -p 1 $(go list ./test/suite/e2e/... | grep -vxFf <(go list $CEPH_CLUSTER_TESTS)) '"${E2E:-}"
}
