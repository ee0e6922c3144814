package main

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend/local"
	"github.com/holdfast-storage/holdfast/driver"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostfs"
)

func TestMain(m *testing.M) {
	silenceLibraries() // before there is a second goroutine: a test's own client has the same logger
	os.Exit(hostfs.Main(m))
}

func TestHelp_NamesEveryCommandVerbAndFlag(t *testing.T) {
	out := check.Got(call(t, "--help"))(t)
	for _, c := range newRoot().Commands() {
		if shown := strings.Contains(out, "  "+c.Name()+" ") && strings.Contains(out, c.Short); shown != (c.GroupID != forPods) {
			t.Errorf("that %s is shown is %t:\n%s", c.Name(), shown, out)
		}
		own := check.Got(call(t, c.Name(), "--help"))(t)
		for _, verb := range c.Commands() {
			if !strings.Contains(own, "  "+verb.Use) || !strings.Contains(own, verb.Short) {
				t.Errorf("%s is not in:\n%s", verb.Use, own)
			}
			of := check.Got(call(t, c.Name(), verb.Name(), "--help"))(t)
			helped, err := call(t, "help", c.Name(), verb.Name())
			if err != nil || !strings.HasPrefix(of, "Usage: holdfast "+c.Name()+" "+verb.Use) || helped != of {
				t.Errorf("%v\n%s\n%s", err, of, helped)
			}
		}
	}
	for line, flags := range map[string][]string{
		"standalone": {
			"--endpoint SOCKET", "--node-id NAME", "--pool POOL", "--metrics-address ADDRESS", "--max-volumes NUMBER", "--stop-timeout DURATION",
			"--log-level LEVEL", "--log-format FORMAT", "--driver-name NAME", "unix:///run/holdfast/csi.sock", "engine=Directory", "trashRetention",
		},
		"controller": {"--endpoint SOCKET", "--attach", "--identity NAME", "--namespace NAMESPACE", "--kubeconfig FILE", "unix:///csi/csi.sock"},
		"node": {
			"--node-name NAME", "--pool POOL", "--max-volumes-per-node NUMBER", "--kubelet-registration-dir DIRECTORY", "plugins_registry", "--register-driver", "--only-loop-sets",
		},
		"status": {"  -o, --output FORMAT\n", "  -n, --namespace NAMESPACE\n"},
		"volumes adopt": {
			"--claim NAME", "--print", "--storage-class NAME", "--access-mode MODE", "--reclaim-policy POLICY", "--timeout DURATION", "--namespace NAMESPACE",
			"--holdfast-namespace NAMESPACE", "--output FORMAT",
		},
	} {
		out := check.Got(callLine(t, line+" --help"))(t)
		expects(t, out, flags...)
	}
}

func TestUsage_ErrorNamesTheAllowedValues(t *testing.T) {
	kubeconfig := reachable(t, "http://127.0.0.1:1")
	t.Setenv("KUBECONFIG", kubeconfig) // is no flag
	const missing, host, sample = "name=fast,path=/nowhere", " --pool name=fast,path=/nowhere", storageosSamples + "small.yaml"
	dir := t.TempDir()
	for line, want := range map[string][]string{
		"":                                      {"no command"},
		"statsu":                                {`"statsu"`, "did you mean status?", "doctor, "},
		"standalone --poool " + missing:         {"--poool", "did you mean --pool?"},
		"volumes adopt v -calim=shop/x":         {"-calim", "did you mean --claim?"},
		"completion tcsh":                       {`"tcsh"`, "bash, fish, powershell, zsh"},
		"help volumes restroe":                  {`"restroe"`, "did you mean restore?"},
		"standalone fast":                       {`"fast"`, "not a flag"},
		"standalone --node-id n":                {"--pool is missing", "name=fast"},
		"standalone" + host + ",size=1Gi":       {`"size"`, "name, engine, path, overcommit, reserved, trashRetention"},
		"standalone --pool fast":                {`"fast"`, "key=value"},
		"standalone --log-level loud":           {"loud"},
		"standalone --log-format xml" + host:    {`"xml"`, "text or json"},
		"volumes undelete v":                    {`"undelete"`, "adopt, delete, describe, list, restore, trash"},
		"volumes delete v --yess":               {"volumes delete", "--yess", "did you mean --yes?"},
		"volumes restore --node n":              {"volumes restore", "NAME is missing"},
		"snapshots delete a --yes b":            {"one NAME", `"b"`},
		"volumes list v":                        {`"v"`, "not a flag"},
		"volumes adopt v":                       {"--claim is missing"},
		"volumes adopt v --claim orders":        {`"orders"`, "NAMESPACE/NAME"},
		"volumes restore v --claim orders":      {`"orders"`, "NAMESPACE/NAME"},
		"volumes restore v --timeout 0s":        {"--timeout 0s"},
		"status -w --interval 0s":               {"--interval"},
		"cleanup --path pool":                   {"absolute path"},
		"copy --to " + dir:                      {"--from is missing"},
		"copy --from " + dir:                    {"--to is missing"},
		"copy --from / --to / --every 0s":       {"--every 0s"},
		"top --interval 1ms":                    {"it must be 100ms or longer"},
		"top volume":                            {"did you mean volumes?"},
		"get -A nodes -o wide":                  {`get: "nodes" is shown by holdfast status, or kubectl get storagenodes.holdfast.dev`},
		"get pvc -n shop":                       {"holdfast get volumes, or kubectl get pvc -A"},
		"get thing --all":                       {`"thing"`, "snapshots, trash, volumes"},
		"describe Pool fast":                    {`describe: "Pool"`, "kubectl describe storagenodes.holdfast.dev"},
		"describe snapshot s-1":                 {"kubectl describe snapshots.holdfast.dev"},
		"describe pvc -n shop":                  {"describe volume: VOLUME is missing"},
		"top --sort-by name":                    {"unknown flag: --sort-by"},
		"node --node-name=n":                    {"--config or --pool is missing"},
		"node --node-name=n --config=/a" + host: {"--config and --pool are given"},
		"node --config=/nowhere":                {`node "": --node-name is missing`},
		"node --only-loop-sets --loop-sets=0":   {"nothing to do"},

		"node --only-loop-sets --kubelet-registration-dir=":                                                           {"nothing to do"},
		"node --node-name=a --config=/none --ceph-engines=rbd,zfs --metrics-address= --endpoint=unix://" + dir + "/s": {"zfs"},

		// Formats.
		"snapshots -o xml":     {`"xml"`, "table, wide, json, yaml or name"},
		"status -o xml":        {"table, wide, json or yaml"},
		"doctor -o xml":        {"table, wide, json or yaml"},
		"top -o name":          {"table, wide, json or yaml"},
		"version --output=xml": {`"xml"`},

		// Flags of old.
		"volumes --trash --restore v" + host: {"--trash", "--restore"},
		"volumes --trash":                    {"--pool is missing", "holdfast volumes trash"},
		"volumes --restore v":                {"--pool is missing", "holdfast volumes restore NAME"},

		// Flags of a cluster where there is none.
		"--context x standalone":                {"standalone", "is about this host"},
		"standalone --context x":                {"is about this host"},
		"-n x standalone":                       {"is about this host"},
		"--context x cleanup --path /none":      {"is about this host"},
		"cleanup --path /none --context x":      {"is about this host"},
		"-n x cleanup --path /none":             {"is about this host"},
		"--context x copy":                      {"there is no flag"},
		"copy --context x":                      {"there is no flag"},
		"-n x copy":                             {"there is no flag"},
		"bench --storage-class s -n x":          {"bench: there is no flag --namespace here"},
		"-n x bench --storage-class s":          {"bench: there is no flag --namespace here"},
		"volumes list --context x" + host:       {"--context is for a cluster"},
		"--context x volumes list" + host:       {"--context is for a cluster"},
		"volumes list --node a" + host:          {"--node is for a cluster"},
		"volumes --context x" + host:            {"--context is for a cluster"},
		"volumes trash --context x" + host:      {"--context is for a cluster"},
		"snapshots list --context x" + host:     {"--context is for a cluster"},
		"top --context x" + host:                {"--context is for a cluster"},
		"top --holdfast-namespace x" + host:     {"--holdfast-namespace is for a cluster"},
		"top --node a" + host:                   {"--node is for a cluster"},
		"volumes restore v --context x" + host:  {"--context is for a cluster"},
		"volumes restore v -n x" + host:         {"--namespace is for a cluster"},
		"-n x volumes restore v" + host:         {"--namespace is for a cluster"},
		"volumes restore v --timeout 1m" + host: {"--timeout is for a cluster"},
		"volumes restore v -o json" + host:      {"--output is for a cluster"},
		"volumes restore v --node a" + host:     {"--node is for a cluster"},
		"volumes restore v --claim x/y" + host:  {"--claim is for a cluster", "--pool"},

		"volumes --restore v --context x" + host:                  {"--context is for a cluster"},
		"volumes list --kubeconfig " + kubeconfig + host:          {"--kubeconfig is for a cluster"},
		"top pools --kubeconfig " + kubeconfig + host:             {"--kubeconfig is for a cluster"},
		"volumes restore v --kubeconfig /nowhere" + host:          {"--kubeconfig is for a cluster"},
		"volumes restore v --holdfast-namespace x" + host:         {"--holdfast-namespace is for a cluster"},
		"volumes restore v -n shop":                               {"--namespace shop is that of a claim, and --claim is missing"},
		"volumes adopt v --claim shop/x -n bank":                  {"--claim shop/x is not in --namespace bank"},
		"volumes adopt v --claim x -n shop --print -o json":       {"--output has no effect with --print"},
		"render --from-storageos " + sample + " --has PodMonitor": {"--has has no effect with --from-storageos"},
		"render --from-storageos " + sample + " -n x":             {"--namespace has no effect with --from-storageos"},
		"-n x render --from-storageos " + sample:                  {"--namespace has no effect with --from-storageos"},
		"render --from-storageos " + sample + " -f /nowhere":      {"--filename has no effect with --from-storageos"},
		"render --from-storageos " + sample + " --secret /none":   {"--secret has no effect with --from-storageos"},
		"status --interval 1s":                                    {"--interval has no effect without --watch"},
	} {
		_, err := callLine(t, line)
		if !errors.Is(err, errUsage) || exitCode(err) != 2 {
			t.Errorf("%s: %v, want an error of usage", line, err)
			continue
		}
		expects(t, err.Error(), want...)
	}
	for line, want := range map[string]int{
		"volumes list -n shop --claim orders" + host:     1, // there is no such pool
		"top -n shop --interval 1s" + host:               1,
		"volumes restore pvc-1" + host:                   1,
		"render --from-storageos " + sample + " -o json": 0,
		"status --watch --interval 1s --context nowhere": 3,
	} {
		if _, err := callLine(t, line); exitCode(err) != want {
			t.Errorf("%s: %v instead of %d", line, err, want)
		}
	}
}

func TestCommands_ThatCannotBeCarriedOutSayWhy(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	t.Setenv("KUBECONFIG", "")
	pool, missing := " --pool name=fast,path="+t.TempDir(), filepath.Join(t.TempDir(), "config")
	for line, want := range map[string]string{
		"standalone" + pool: "node id",
		"standalone --node-id n --endpoint tcp://0.0.0.0:1" + pool:   "tcp://0.0.0.0:1",
		"standalone --node-id n --pool name=fast,path=/nowhere/fast": "/nowhere/fast",
		"controller":                         "--kubeconfig",
		"controller --kubeconfig " + missing: missing,
		"disks --count 0":                    "at least 1",
		"render -f /nowhere":                 "/nowhere",
		"render --has Pod":                   "PodMonitor",
	} {
		if _, err := callLine(t, line); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want an error that names %s", line, err, want)
		}
	}
}

func TestVersion_NamesTheProgramItsCompilerAndTheFormatsReadAndWritten(t *testing.T) {
	out, err := call(t, "version")
	if flag, flagErr := call(t, "--version"); err != nil || flagErr != nil || flag != out || !strings.HasPrefix(out, "holdfast "+version) || !strings.Contains(out, "go1.") {
		t.Errorf("got %q, %v; by the flag %q, %v", out, err, flag, flagErr)
	}
	out = check.Got(call(t, "version", "--output=json"))(t)
	var v programVersion
	if err := json.Unmarshal([]byte(out), &v); err != nil || strings.Count(out, "\n") != 1 {
		t.Fatalf("it is not one line of JSON: %q, %v", out, err)
	}
	if v.Version != version || v.Metadata.Writes != local.MetadataVersion || v.Metadata.Reads < v.Metadata.Writes {
		t.Errorf("got %+v", v)
	}
}

func TestTopology_KeysAreTheSameInTheDriverAndTheKinds(t *testing.T) {
	if driver.SharedVolumesKey != v1beta1.SharedVolumesKey || driver.TopologyKey != v1beta1.TopologyKey {
		t.Errorf("%s and %s, %s and %s", driver.SharedVolumesKey, v1beta1.SharedVolumesKey, driver.TopologyKey, v1beta1.TopologyKey)
	}
}
