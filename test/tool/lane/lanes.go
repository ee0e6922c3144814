package main

import (
	"slices"
	"time"
)

// lane is a set of checks and tests. Lanes run one after another, and nothing runs beside one.
type lane struct {
	name  string
	about string
	limit time.Duration // a lane that hangs is ended, so that the others still run

	debian    []string // packages that only this lane needs
	setup     []string // targets of test/run/run that make what the tests need
	checks    []string // targets of test/run/run that pass or fail themselves
	tests     []group
	cluster   string // removed before and after the lane, and whenever this process ends
	require   string // what a test must not lack: see docs/testing.md
	memory    bool   // temporary files are in memory, since pools are synced often
	long      bool   // with what is not in the gate
	figures   bool   // it measures: what its tests find is printed, and never fails it
	program   bool   // the tests run what is built, so that all that is shipped counts
	documents bool   // the tests read documents
}

// group is a set of packages of one module whose tests run in the same way.
type group struct {
	module   string // directory of its go.mod
	packages []string
	except   []string
	tags     string
	race     bool
	run      string // as of go test
	short    bool
	env      []string
	atOnce   int  // packages that run beside each other; 0 is 1
	server   bool // each package has an API server of its own, in the lane's cluster
	evidence bool // one failure is a proof, as of lost data: nothing is run a second time
}

var (
	hostPackages     = []string{"./nodeops", "./nodeops/child", "./nodeops/mkfs", "./kubelet/devices", "./test/rig/hostfs"}
	dataPackages     = []string{"./backend/local/...", "./transfer/...", "./test/suite/sanity", "./test/suite/crash"}
	ganeshaPackages  = []string{"./nodeops/ganesha", "./backend/export"}
	viewPackages     = []string{"./test/suite/page", "./test/suite/monitoring"}
	toolPackages     = []string{"./test/tool/...", "./test/suite/helm"}
	umlPackages      = []string{"./test/rig/uml/..."}
	clusterPackages  = []string{"./test/suite/e2e/...", "./test/suite/golden"}
	documentPackages = []string{"./test/suite/lint"}
	cephPackages     = []string{"./backend/ceph/...", "./test/rig/ceph"}
	notUnits         = slices.Concat(hostPackages, dataPackages, ganeshaPackages, viewPackages, toolPackages, umlPackages, clusterPackages, documentPackages, cephPackages, []string{"./test/suite/api"})
)

// crashing makes the program that can be ended at each of its steps.
const crashing = "crashing-binary"

// The rules of the API server and the policies, an installation and a removal: what the controllers write is not counted
// and not timed.
const (
	policies     = `Policy_|Policies|^TestToken_|^TestLoopDevices_|^TestParameters_|^TestDeletionRequest_|^TestNodeRequests_|^TestDeletionByHand_|^TestFence_|^TestPriority_|^TestPopulation_|^TestReserved_|^TestStorageNode_|^TestRights_NoServer|^TestProtected_PolicyOf`
	installation = `^TestInstall_|^TestUninstall_DeletionIsRefused|^TestUninstall_TheKinds`
)

// gate is make test: what must pass before a change lands. Its outcome does not depend on how fast the machine is.
var gate = []lane{
	{
		name: "check", about: "linters of the root module, generated files, links and commands of the documents",
		limit: 20 * time.Minute, checks: []string{"lint", "generated"},
		tests: []group{{packages: documentPackages, short: true}},
	},
	{
		name: "unit", about: "what needs neither a file system of its own nor a cluster",
		limit: 15 * time.Minute, require: "root,bash,zsh,fish", memory: true,
		tests: []group{
			{packages: []string{"./..."}, except: notUnits, atOnce: 2},
			{module: "test/suite/schema", packages: []string{"."}},
			{module: "test/suite/deploy", packages: []string{"."}},
		},
	},
	{
		name: "host", about: "real file systems and loop devices, csi-sanity once per engine, kills at some steps",
		limit: 25 * time.Minute, require: "root,shm,strace", memory: true, setup: []string{crashing},
		tests: []group{{packages: hostPackages}, {packages: dataPackages, evidence: true}},
	},
	{
		name: "api", about: "kinds, policies, installation and removal on a real API server",
		limit: 15 * time.Minute, require: "root,api", cluster: "api",
		tests: []group{
			{packages: []string{"./test/suite/api", "./operator/bootstrap", "./operator/snapshots"}, server: true},
			{packages: []string{"./operator/cluster", "./operator/nfsserver"}, run: policies + "|" + installation, server: true},
		},
	},
	{
		name: "golden", about: "the life of volumes on a real node, from installation to removal",
		limit: 15 * time.Minute, require: "root,cluster", cluster: "golden", setup: []string{"images", "golden-cluster"},
		tests: []group{{packages: []string{"./test/suite/golden"}, env: []string{"HOLDFAST_CLUSTER=golden"}, evidence: true}},
	},
}

var (
	uml     = []string{"kmod", "user-mode-linux"}
	ganesha = []string{"dbus-daemon", "nfs-ganesha", "nfs-ganesha-vfs"}
	ceph    = []string{
		"ceph-common", "ceph-mds", "ceph-mgr", "ceph-mgr-modules-core", "ceph-mon", "ceph-osd", "iproute2", "libcephfs-dev", "librados-dev", "librbd-dev",
	}
)

const cephTags = "ceph,pacific,crashpoints"

// rest is what make test-all runs beside the gate: what takes long, measures, runs in real time, or needs more kernels.
var rest = []lane{
	{
		name: "race", about: "the gate's packages with the race detector", limit: 90 * time.Minute, long: true, program: true,
		require: "root,shm,bash,zsh,fish", memory: true, setup: []string{crashing},
		tests: []group{
			{packages: []string{"./..."}, except: notUnits, race: true},
			{packages: slices.Concat(hostPackages, dataPackages), race: true, evidence: true},
		},
	},
	{
		name: "lint-all", about: "linters of all modules", limit: 60 * time.Minute, long: true, documents: true,
		checks: []string{"lint-all"}, tests: []group{{packages: documentPackages}},
	},
	{
		name: "controllers", about: "controllers on a real API server with a kubelet, in real time", limit: 90 * time.Minute, long: true,
		require: "root,api", cluster: "controllers", setup: []string{"controllers-cluster"},
		tests: []group{{packages: controllerPackages, env: []string{"HOLDFAST_API=controllers"}}},
	},
	{
		name: "plugin", about: "the program as a plugin of kubectl", limit: 20 * time.Minute, long: true, program: true,
		require: "root,api,kubectl", cluster: "plugin", setup: []string{"plugin-cluster"},
		tests: []group{{packages: []string{"./cmd/holdfast"}, run: "^TestPlugin_", env: []string{"HOLDFAST_API=plugin"}}},
	},
	{
		name: "api-oldest", about: "kinds and operator with the oldest Kubernetes", limit: 90 * time.Minute, long: true,
		require: "root,api", cluster: "oldest", setup: []string{"oldest-cluster"},
		tests: []group{{packages: slices.Concat([]string{"./test/suite/api"}, controllerPackages), env: []string{"HOLDFAST_API=oldest"}}},
	},
	{
		name: "ganesha", about: "NFS-Ganesha, and backend/export behind it", limit: 60 * time.Minute, long: true,
		require: "root,ganesha", memory: true, debian: ganesha,
		tests: []group{{packages: ganeshaPackages}},
	},
	{
		name: "views", about: "the page in Chromium, alerts and metrics in Prometheus", limit: 30 * time.Minute, long: true, program: true,
		require: "root,chromium,prometheus,axe", debian: []string{"chromium", "fonts-inter", "prometheus"},
		tests: []group{{packages: viewPackages}},
	},
	{
		name: "uml", about: "the second kernel, and the tests of hosts in it", limit: 90 * time.Minute, long: true, program: true,
		require: "root,uml,ganesha", debian: slices.Concat(uml, ganesha), setup: []string{crashing},
		tests: []group{{packages: umlPackages}},
	},
	{
		name: "e2e", about: "claims and pods on three nodes", limit: 120 * time.Minute, long: true, program: true,
		require: "root,uml,cluster,nodes,third-node", debian: uml, cluster: "e2e-lane", setup: []string{"images", "e2e-cluster"},
		tests: []group{{packages: []string{"./test/suite/e2e", "./test/suite/e2e/kube", "./bench"}, env: inE2E}},
	},
	{
		name: "e2e-accidents", about: "the mistakes of an administrator", limit: 120 * time.Minute, long: true, program: true,
		require: "root,uml,cluster,nodes,third-node", debian: uml, cluster: "e2e-lane", setup: []string{"images", "e2e-cluster"},
		tests: []group{{packages: []string{"./test/suite/e2e/accidents"}, env: inE2E, evidence: true}},
	},
	{
		name: "e2e-operator", about: "the StorageCluster of a real cluster", limit: 60 * time.Minute, long: true, documents: true, program: true,
		require: "root,uml,cluster,nodes,third-node", debian: uml, cluster: "e2e-lane", setup: []string{"images", "e2e-cluster"},
		tests: []group{{packages: []string{"./test/suite/e2e/operator"}, env: inE2E}},
	},
	{
		name: "e2e-upgrade", about: "upgrades of the whole cluster and back", limit: 90 * time.Minute, long: true, program: true,
		require: "root,uml,cluster,nodes,third-node,history", debian: uml, cluster: "e2e-lane", setup: []string{"images", "e2e-cluster"},
		tests: []group{{packages: []string{"./test/suite/e2e/upgrade"}, env: inE2E}},
	},
	{
		name: "deploy", about: "the chart, Kustomize and OLM in a cluster with Holdfast; Helm without it", limit: 60 * time.Minute, long: true, program: true,
		require: "root,cluster", cluster: "deploy", setup: []string{"images", "deploy-cluster"},
		tests: []group{{module: "test/suite/deploy", packages: []string{"./..."}, env: []string{"HOLDFAST_CLUSTER=deploy"}}},
	},
	{
		name: "helm", about: "the chart with the programs of Helm 3 and 4", limit: 60 * time.Minute, long: true,
		require: "root,api", cluster: "helm", setup: []string{"helm-cluster"},
		tests: []group{{packages: []string{"./test/suite/helm"}, env: []string{"HOLDFAST_API=helm"}}},
	},
	{
		name: "ceph", about: "the engines on a real Ceph", limit: 90 * time.Minute, long: true,
		require: "root,ceph", debian: ceph,
		tests: []group{{packages: cephPackages, tags: cephTags, evidence: true}},
	},
	{
		name: "ceph-node", about: "a kernel with the clients of Ceph, as a node", limit: 90 * time.Minute, long: true, program: true,
		require: "root,ceph,uml", debian: slices.Concat(ceph, uml),
		tests: []group{{packages: []string{"./test/suite/ceph"}, tags: cephTags}},
	},
	{
		name: "ceph-site", about: "the process of a pool in Ceph, with a real API server", limit: 60 * time.Minute, long: true, program: true,
		require: "root,ceph,api", debian: ceph, cluster: "ceph-site", setup: []string{"ceph-site-cluster"},
		tests: []group{{packages: []string{"./test/suite/cephsite"}, tags: cephTags, env: []string{"HOLDFAST_API=ceph-site"}}},
	},
	{
		name: "ceph-cluster", about: "pools in Ceph, in a cluster of three nodes", limit: 120 * time.Minute, long: true, program: true,
		require: "root,ceph,uml,cluster,nodes,third-node", debian: slices.Concat(ceph, uml), cluster: "cephpools", setup: []string{"images", "cephpools-cluster"},
		tests: []group{{packages: []string{"./test/suite/e2e/ceph"}, env: []string{"HOLDFAST_CLUSTER=cephpools"}}},
	},
	{
		name: "figures", about: "times, memory and requests of processes and controllers", limit: 60 * time.Minute, long: true, figures: true,
		require: "root,api", memory: true, cluster: "figures", setup: []string{"figures-cluster"},
		tests: []group{
			{packages: []string{"./nodeops"}, run: "^(TestRemoveTree_AnyDepth|.*AndLittleMemory|TestProjectID_Hundred)"},
			{packages: []string{"./operator/cluster"}, run: "^TestScale_", env: []string{"HOLDFAST_API=figures"}},
		},
	},
	{
		name: "figures-cluster", about: "times and requests of claims, and of a cluster in which nothing happens", limit: 60 * time.Minute, long: true, figures: true, program: true,
		require: "root,uml,cluster,nodes,third-node", debian: uml, cluster: "e2e-lane", setup: []string{"images", "e2e-cluster"},
		tests: []group{
			{packages: []string{"./test/suite/e2e"}, run: "^TestTraffic_Requests", env: inE2E},
		},
	},
	{
		name: "tools", about: "the test cluster, the lanes, the benchmark and the demonstration", limit: 60 * time.Minute, long: true, program: true,
		require: "root,uml", debian: append(uml, "fio"),
		tests: []group{
			{packages: []string{"./test/tool/..."}},
			{module: "test/cluster", packages: []string{"./..."}},
		},
	},
}

var (
	inE2E              = []string{"HOLDFAST_CLUSTER=e2e-lane"}
	controllerPackages = []string{
		"./kube/apply", "./operator/bootstrap", "./operator/cluster", "./operator/fencing", "./operator/nfsserver", "./operator/nodejob", "./operator/snapshots",
		"./operator/volume", "./operator/volumecopy", "./provisioner", "./backend/cluster",
	}
)
