package schema_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// durations are the specs that have one, for a value in JSON.
var durations = map[string]string{
	"NodeJob":        `{"image":"i","timeout":%v}`,
	"StorageUpgrade": `{"version":"v2","nodeTimeout":%v}`,
	"StorageCluster": `{"pools":[{"name":"a","trashRetention":%v}]}`,
}

var writtenDurations = []string{
	"7d", "1d", "1d12h", "0", "0s", "", " ", "90m", "2w", "1.5h", "1.5µs", "1.5μs", "-1h", "+1h", "1e400", "1e3s", "0.1", "-1", "1_000", "1_000s", "١", "١d", "NaN", "Inf",
	"1 d", "1d ", "7D", "1y", "10000d", "9999d", "1000w", "999w", ".5h", "1.h", "1h0m0s", "1d\n", "9999d9999d9999d9999d9999d9999d9999d9999d", "1h1h1h1h1h1h1h1h1h",
	strings.Repeat("9", 70) + "s", "999999999999999999ns", "9999999999999999999ns", "PT1H", "null", "true", "1d🙈",
}

func TestDuration_IsAcceptedExactlyWhereItIsParsed(t *testing.T) {
	all := definitions(t)
	dice := rand.New(rand.NewPCG(1, 2))
	written := append([]string{}, writtenDurations...)
	parts := []string{"1", "7", "007", "99999", "1000000", "0.5", ".", "d", "w", "h", "m", "s", "ms", "us", "µs", "ns", "-", " ", "e3", "_", "١"}
	for range 1500 {
		text := ""
		for range 1 + dice.IntN(10) {
			text += parts[dice.IntN(len(parts))]
		}
		written = append(written, text)
	}
	taken := 0
	for kind, spec := range durations {
		for _, text := range written {
			_, refused := all[kind].refuses(object(kind, with(spec, quoted(text))))
			_, err := v1beta1.Duration(text).Parse()
			if (refused == nil) != (err == nil) {
				t.Errorf("%s %q: the schema says %v, the parser %v", kind, text, refused, err)
			}
			if refused == nil {
				taken++
			} else if !strings.Contains(refused.Error(), "7d or 1d12h") && len(text) <= 64 {
				t.Errorf("%s %q: no example in %v", kind, text, refused)
			}
		}
	}
	if taken < 100 {
		t.Errorf("%d were taken: too few to show anything", taken)
	}
}

// docs/kinds.md shows the fields of these.
func TestExamples_OfTheKindsAreTaken(t *testing.T) {
	var specs map[string][]map[string]any
	check.OK(t, yaml.UnmarshalStrict(check.Got(os.ReadFile("../deploy/testdata/kinds.yaml"))(t), &specs))
	all := definitions(t)
	for kind, some := range specs {
		for _, spec := range some {
			text, o := object(kind, string(check.Got(json.Marshal(spec))(t))), map[string]any{}
			if _, err := all[kind].refuses(text); err != nil {
				t.Errorf("%s %v: %v", kind, spec, err)
			}
			check.OK(t, json.Unmarshal([]byte(text), &o))
			pruned := pruning.PruneWithOptions(o, all[kind].structural, true, structuralschema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
			if len(pruned) > 0 {
				t.Errorf("%s %v: there is no field %v", kind, spec, pruned)
			}
		}
	}
	if len(specs) != 3 {
		t.Errorf("there are only %d kinds", len(specs))
	}
}

func TestValues_UnreadableIsRefusedWithAnExample(t *testing.T) {
	all := definitions(t)
	for _, c := range []struct {
		kind, spec, values string
		example            string
	}{
		{"NFSServer", `{"storage":{"size":%v}}`, `"1e1.5" "1e400" "-1" "" "x" "1_000" "0.1" "9223372036854775808" "NaN" "1e30" "0" "-1Gi" "1023Ki" -1 0`, "100Gi"},
		{"NFSServer", `{"storage":%v}`, `{} {"size":"1Gi","claimName":"a"} {"size":"1Gi","hostPath":"/srv"} {"claimName":"a","hostPath":"/srv"}`, "spec.storage"},
		{"NFSServer", `{"storage":%v}`, `{"claimName":"a","storageClassName":"fast"} {"size":"1Gi","storageClassName":""}`, "spec.storage.storageClassName"},
		{"NFSServer", `{"storage":{"hostPath":%v},"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}`, `"srv" "/" "/srv/../etc" "/srv,/etc"`, "spec.storage.hostPath"},
		{"NFSServer", `{"storage":{"hostPath":%v}}`, `"/srv"`, "spec.nodeSelectorTerms"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"engine":%v}`, `"ceph" "RBD" "CephFS"`, "spec.engine"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"exports":{"access":%v}}`, `"RW"`, "spec.exports.access"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"exports":{"squash":%v}}`, `"root"`, "spec.exports.squash"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"exports":{"anonUID":%v}}`, `-1 4294967296`, "spec.exports.anonUID"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"exports":{"anonGID":%v}}`, `-1 4294967296`, "spec.exports.anonGID"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"service":{"type":%v}}`, `"ExternalName"`, "spec.service.type"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"service":{"clusterIP":%v}}`, `"None"`, "spec.service.clusterIP"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"maxExports":%v}`, `-1 4097 65536`, "spec.maxExports"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"mountOptions":[%v]}`, `"ro,exec" "a b" "nfsvers=3" "v4.0" "proto=udp" "sec=krb5p"`, "spec.mountOptions[0]"},
		{"NFSServer", `{"publish":{"claimName":"a","name":%v}}`, `"../photos" "a/b" "a\";}"`, "spec.publish.name"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"gracePeriod":%v}`, `"1d" "0.001d" "1.000000001s" "0s" "181s" "" "x" "1e400" "-1s"`, "90s"},
		{"NFSServer", `{"storage":{"claimName":%v}}`, `"A" "a b" "a/b" "-a" "a..b"`, "photos"},
		{"NFSServer", `{"storage":{"size":"1Gi","storageClassName":%v}}`, `"A" "a b"`, "holdfast"},
		{"NFSServer", `{"publish":{"claimName":%v}}`, `"A" "a b" ""`, "spec.publish.claimName"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"service":{"port":%v}}`, `1023 65536 9090 -1`, ""},
		{"NFSServer", `{"storage":{"size":"1Gi"},"exports":{"clients":[%v]}}`, `"*" "10.0.0.0/33" "010.0.0.1" "fd00::/100" "fd00::/127" "::ffff:10.0.0.1" "::ffff:10.0.0.0/97" "fe80::1%eth0" "example.com" "10.0.0.1; Access_Type = RW" ""`, "10.0.0.0/8"},
		{"Volume", `{"name":"a","node":"n","size":{"required":%v}}`, `"1e1.5" "1e400" "-1" "-10Gi" "" "x" "10 Gi" "9223372036854775808" "1e30" "99E" "1000e18" -1`, "10Gi"},
		{"Volume", `{"name":"a","node":"n","size":{"required":%v}}`, `1.5 true [1]`, "spec.size.required"},
		{"Volume", `{"name":"a","node":"n","size":{"limit":%v}}`, `"1e1.5" "-1" "-10Gi" "" "99E"`, "10Gi"},
		{"Volume", `%v`, `null`, "spec"},
		{"Volume", `%v`, `{"node":"n"}`, "spec.name"},
		{"Volume", `%v`, `{"name":"a"}`, "spec.node"},
		{"Volume", `{"name":"a","node":"n","sourceRef":%v}`, `{"kind":"Volume"} {"kind":"Volume","name":"no_id"}`, "spec.sourceRef.name"},
		{"Volume", `{"name":"a","node":"n","sourceRef":%v}`, `{"name":"b"} {"kind":"volume","name":"b"}`, "spec.sourceRef.kind"},
		{"Snapshot", `%v`, `null`, "spec"},
		{"Snapshot", `%v`, `{"sourceRef":{"kind":"Volume","name":"a"},"node":"n"}`, "spec.name"},
		{"Snapshot", `%v`, `{"name":"s","node":"n"}`, "spec.sourceRef"},
		{"Snapshot", `%v`, `{"name":"s","sourceRef":{"kind":"Volume","name":"a"}}`, "spec.node"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":"a"},"node":"n","group":%v}`, `{"name":"g"}`, "spec.group.volumes"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":"a"},"node":"n","group":%v}`, `{"volumes":["a"]}`, "spec.group.name"},
		{"StorageCluster", `{"pools":[{"name":"a","devices":{"minSize":%v}}]}`, `"1e1.5" "1e400" "-1" "" "1_000" "NaN" "+1" ".5"`, ""},
		{"StorageCluster", `{"pools":[{"name":"a","reserved":%v}]}`, `"100%" "-1" "1K" "1e3" "5 %" "9223372036854775808" "NaN%" "٥%"`, "10Gi"},
		{"StorageCluster", `{"pools":[{"name":"a","devices":{"model":"x","count":%v}}]}`, `0 17`, "spec.pools[0].devices.count"},
		{"StorageCluster", `{"pools":[{"name":%v,"devices":{"model":"x","count":2}}]}`, `"a.2" ` + quoted(strings.Repeat("n", 61)), "spec.pools[0].name"},
		{"StorageCluster", `{"storageClasses":[{"name":"c","pool":"a","pools":%v}]}`, `["b"]`, "not both"},
		{"StorageCluster", `{"storageClasses":[{"name":"c","pools":%v}]}`, `["B"] ["a.2"]`, "spec.storageClasses[0].pools[0]"},
		{"StorageCluster", `{"priorityClassName":%v}`, `"A" "a b" "a/b"`, "system-node-critical"},
		{"StorageCluster", `{"controller":{"priorityClassName":%v}}`, `"A" "a b" "a/b"`, "system-cluster-critical"},
		{"StorageCluster", `{"controller":{"podLabels":{%v:"x"}}}`, `"app.kubernetes.io/name" "app.kubernetes.io/component"`, "leave them out"},
		{"StorageCluster", `{"node":{"podLabels":{%v:"x"}}}`, `"app.kubernetes.io/name" "app.kubernetes.io/component"`, "leave them out"},
		{"StorageCluster", `{"imageRegistry":%v}`, `"https://a" "a/" "a b" "/a" "a:port" "a/B"`, "spec.imageRegistry"},
		{"StorageCluster", `{"imagePullPolicy":%v}`, `"Sometimes" "always"`, "IfNotPresent"},
		{"StorageCluster", `{"nfs":{"nodeNetworks":[%v]}}`, `"*" "10.0.0.0/33" "010.0.0.1" "10.0.0.0/08" "fd00::/100" "fd00::/127" "fe80::1%eth0" "::ffff:10.0.0.1/96" "10.0.0" "10.0.0.7/" "a" ""`, "100.64.0.0/16"},
		{"StorageCluster", `{"nfs":{"namespaces":[%v]}}`, `"A" "a.b" "-a" "a b" "*"`, "team-a"},
		{"StorageCluster", `{"fencing":{"namespaces":[%v]}}`, `"A" "a.b" "-a" "a b" "*"`, "team-a"},
		{"StorageCluster", `{"fencing":{"after":"5m","pods":%v}}`, `"" "Labelled"`, "name the namespaces"},
		{"StorageCluster", `{"nfs":{"inlineVolumeNamespaces":[%v]}}`, `"A" "a.b" "-a" "a b" "*"`, "team-a"},
		{"StorageCluster", `{"csi":{"ephemeral":{"pools":["a"],"maxSize":%v}}}`, `"1e1.5" "-1" "0" "1Ki" "" "x" "9223372036854775808" "NaN"`, "10Gi"},
		{"StorageCluster", `{"csi":{"ephemeral":{"maxSize":"1Gi","pools":[%v]}}}`, `"A" "" "a/b" "../a"`, ""},
		{"StorageCluster", `{"secretRef":{"name":%v}}`, `"A" "a b" "a/b"`, "holdfast-api"},
		{"StorageCluster", `{"secretRef":{"name":"a","namespace":%v}}`, `"A" "a.b" "-a"`, "holdfast-system"},
		{"StorageCluster", `{"images":{"nfs":%v}}`, `"a b" "a\n" "é" "a\u0000b" "-x" "/a" ":v1" "@sha256:0"`, "registry.example/holdfast:v1"},
		{"StorageCluster", `{"ingress":{"ingressClassName":%v}}`, `"A" "a b"`, "nginx"},
		{"StorageCluster", `{"storageClasses":[{"name":%v}]}`, `"A" "a..b" "" "a." "-a"`, "holdfast-fast"},
		{"StorageCluster", `{"storageClasses":[{"name":"a","mountOptions":[%v]}]}`, `"a b" "a\nb" "é"`, "noatime"},
		{"NodeJob", `{"image":"i","hostPath":%v,"mountPath":"/a"}`, `"/../etc" "/a/.." "/srv/../etc"`, "without .."},
		{"NodeJob", `{"image":"i","hostPath":"/a","mountPath":%v}`, `"/../etc" "/a/.." "/srv/../etc"`, "without .."},
		{"NodeJob", `{"image":"i","hostPath":%v,"mountPath":"/mnt"}`, `"srv" "/srv:ro" "/srv\n"`, "spec.hostPath"},
		{"NodeJob", `{"image":"i","hostPath":"/srv","mountPath":%v}`, `"mnt" "/mnt:ro" "/mnt\n"`, "spec.mountPath"},
		{"NodeJob", `%v`, `{"image":"i","hostPath":"/srv"} {"image":"i","mountPath":"/mnt"} {"image":"i","hostPath":"/srv","mountPath":""}`, "belong together"},
		{"NodeJob", `%v`, `{} {"image":""} {"task":"","image":""}`, "give an image"},
		{"NodeJob", `{"image":%v}`, `"\n" "i\n" " i"`, "registry.example/holdfast:v1"},
		{"NodeJob", `{"task":"Pull","taskImage":%v}`, `"\n"`, "registry.example/holdfast:v1"},
		{"NodeJob", `{"task":"Cleanup","pool":%v}`, `"../etc" ".." "fast/2"`, "spec.pool"},
		{"Snapshot", `{"name":"a","sourceRef":{"kind":"Volume","name":"v"},"node":"n","deletion":{"uid":"u","requestedBy":"c","requestedAt":%v}}`, `"2026-11-24T03:00:00Z" "2026-11-24t03:00:00.000000z" "2026-11-24T03:00:60.000000Z" "yesterday" "" [] [""] "2026-02-30T03:00:00.000000Z"`, ""},
		{"Volume", `{"name":"a","node":"n","deletion":{"uid":"u","requestedBy":"c","requestedAt":%v}}`, `"2026-11-24T03:00:00Z"`, ""},
		{"StorageNode", `{"restore":[{"name":"a","requestedAt":%v}]}`, `"2026-11-24T03:00:00Z"`, ""},
		{"NFSServer", `%v`, `{} {"storage":{"size":"1Gi"},"publish":{"claimName":"a"}}`, "spec"},
		{"NFSServer", `{"storage":{"claimName":%v}}`, quoted(strings.Repeat("c", 5000)), "spec.storage.claimName"},
		{"NFSServer", `{"publish":{"claimName":"a"},"exports":{"access":%v}}`, `"ReadWrite"`, "spec.exports.access"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"exports":{"clients":%v}}`, listOf(65, "10.0.0.%d"), "spec.exports.clients"},
		{"NFSServer", `{"storage":{"size":"1Gi"},"reclaimPolicy":%v}`, `"Recycle"`, "spec.reclaimPolicy"},
		{"Volume", `{"name":%v,"node":"n"}`, `"" ` + quoted(strings.Repeat("ä", 2048)+"a") + quoted(strings.Repeat("a", 4097)), "spec.name"},
		{"Volume", `{"name":"a","node":"n","claimRef":{"namespace":"shop","name":%v}}`, quoted(strings.Repeat("c", 254)), "spec.claimRef.name"},
		{"Volume", `{"name":"a","node":%v}`, `"" ` + quoted(strings.Repeat("n", 254)), "spec.node"},
		{"Volume", `{"name":"a","node":"n","size":{"required":"10Gi","limit":%v}}`, `"1Gi"`, "spec.size.limit"},
		{"Volume", `{"name":"a","node":"n","mode":%v}`, `"filesystem"`, "spec.mode"},
		{"Volume", `{"name":"a","node":"n","fsType":%v}`, `"ntfs"`, "spec.fsType"},
		{"Volume", `{"name":"a","node":"n","provisioning":%v}`, `"thin"`, "spec.provisioning"},
		{"Volume", `{"name":"a","node":"n","mkfsOptions":%v}`, listOf(65, "-m%d"), "spec.mkfsOptions"},
		{"Volume", `{"name":"a","node":"n","mkfsOptions":["-L",%v]}`, quoted(strings.Repeat("l", 257)), "spec.mkfsOptions[1]"},
		{"Volume", `{"name":"a","node":"n","inodes":%v}`, `-1`, "spec.inodes"},
		{"Volume", `{"name":"a","node":"n","pool":%v}`, `"../fast" "Fast" "fast." "fast.a" "fast.100" "fast/2" ".."`, "spec.pool"},
		{"Volume", `{"name":"a","node":"n","sourceRef":{"kind":"Volume","name":"b"},"populatedBy":%v}`, `"Agent"`, "spec.populatedBy"},
		{"Volume", `{"name":"a","node":"n","populatedBy":%v}`, `"Pod"`, "spec.populatedBy"},
		{"Volume", `{"name":"a","node":"a.b.nfs.holdfast.dev","shared":true,"sourceRef":{"kind":"Volume","name":"b"},"populatedBy":%v}`, `"Pod"`, "spec.populatedBy"},
		{"Volume", `{"name":"a","node":"n","onNodeLoss":%v}`, `"Forget"`, "spec.onNodeLoss"},
		{"Volume", `{"name":"a","shared":true,"node":%v}`, `"node-a" "server.nfs.holdfast.dev" "no.server.nfs.holdfast.dev.more"`, "spec.node"},
		{"Volume", `{"name":"a","shared":true,"node":"no.server.nfs.holdfast.dev","serverRef":%v}`, `{"namespace":"other","name":"server"} {"namespace":"no","name":"../server"}`, "spec.serverRef"},
		{"Volume", `{"name":"a","node":"no.server.nfs.holdfast.dev","serverRef":%v}`, `{"namespace":"no","name":"server"}`, "spec.serverRef"},
		{"Volume", `{"name":"a","shared":true,"node":"no.server.nfs.holdfast.dev","mode":%v}`, `"Block"`, "spec.mode"},
		{"Volume", `{"name":"a","shared":true,"node":"no.server.nfs.holdfast.dev","onNodeLoss":%v}`, `"Delete"`, "spec.onNodeLoss"},
		{"Snapshot", `{"name":%v,"sourceRef":{"kind":"Volume","name":"a"},"node":"n"}`, `"" ` + quoted(strings.Repeat("ä", 2049)), "spec.name"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":%v},"node":"n"}`, `"" "../a"`, "spec.sourceRef.name"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":%v,"name":"a"},"node":"n"}`, `"Snapshot"`, "spec.sourceRef.kind"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":"a"},"node":%v}`, `"" ` + quoted(strings.Repeat("n", 254)), "spec.node"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":"a"},"node":"n","group":{"volumes":["a"],"name":%v}}`, `"" ` + quoted(strings.Repeat("ä", 2049)), "spec.group.name"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":"m0"},"node":"n","group":{"name":"g","volumes":%v}}`, `["b","c"] [] ` + listOf(257, "m%d"), "spec.group.volumes"},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":"a"},"node":"n","group":{"name":"g","volumes":%v}}`, `["a","B"]`, "spec.group.volumes[1]"},
		{"StorageCluster", `{"controller":{"kind":"StatefulSet","replicas":%v}}`, `1`, "spec.controller.replicas"},
	} {
		for _, value := range split(c.values) {
			_, err := all[c.kind].refuses(object(c.kind, with(c.spec, value)))
			if err == nil {
				t.Errorf("%s with %s is taken", c.kind, with(c.spec, value))
			} else if !strings.Contains(err.Error(), c.example) {
				t.Errorf("%s with %s: no example such as %s in %v", c.kind, with(c.spec, value), c.example, err)
			}
		}
	}
}

// listOf is a list in JSON of so many texts that differ.
func listOf(count int, format string) string {
	var all []string
	for i := range count {
		all = append(all, quoted(fmt.Sprintf(format, i)))
	}
	return "[" + strings.Join(all, ",") + "]"
}

// split reads values in JSON with spaces between them.
func split(values string) (all []string) {
	in := json.NewDecoder(strings.NewReader(values))
	for in.More() {
		var value json.RawMessage
		if err := in.Decode(&value); err != nil {
			panic(err)
		}
		all = append(all, string(value))
	}
	return all
}

func TestValues_ValidIsAccepted(t *testing.T) {
	all := definitions(t)
	for _, c := range []struct{ kind, spec, values string }{
		{"NFSServer", `{"storage":{"size":%v}}`, `"1Gi" "10G" 1073741824 "1e9" "1.5Gi"`},
		{"NFSServer", `{"storage":{"size":"1Gi"},"gracePeriod":%v}`, `"90s" "1m30s" "1s" "180s" "3m" "3m0s"`},
		{"NFSServer", `{"storage":{"claimName":%v}}`, `"a" "a.b-c"`},
		{"Volume", `%v`, `{"name":"a","node":"n"}`},
		{"Volume", `{"name":"a","node":"n","pool":%v}`, `"fast" "fast.2" "fast.16" ""`},
		{"Volume", `{"name":"a","node":"n","size":{"required":%v}}`, `"1Gi" "1G" "1Pi" "1.5Gi" "1e9" 0 "0" 5 1073741824 "9223372036854775807"`},
		{"Volume", `{"name":"a","node":"n","size":{"required":"10Gi","limit":%v}}`, `"0" "10Gi" 10737418240 "9223372036854775807"`},
		{"StorageNode", `%v`, `{}`},
		{"StorageCluster", `{"pools":[{"name":"a","devices":{"minSize":%v}}]}`, `"100Gi" 5 "1e12"`},
		{"StorageCluster", `{"pools":[{"name":"a","reserved":%v}]}`, `"" "5%" "0%" "99.5%" "10Gi" "1.5Gi" "1k" "1Ki" "0" "7Ei" "9223372036854775807"`},
		{"StorageCluster", `{"pools":[{"name":"a","devices":{"model":"x","count":%v}}]}`, `1 16`},
		{"StorageCluster", `{"storageClasses":[{"name":"c","pools":%v}]}`, `["a"] ["a","b"] []`},
		{"StorageCluster", `{"priorityClassName":%v}`, `"" "system-node-critical" "a.b"`},
		{"StorageCluster", `{"controller":{"podLabels":{%v:"x"}}}`, `"app.kubernetes.io/instance" "a"`},
		{"StorageCluster", `{"imageRegistry":%v}`, `"" "localhost:5000" "registry.example/a/b-c.d"`},
		{"StorageCluster", `{"imagePullPolicy":%v}`, `"" "Always" "Never"`},
		{"StorageCluster", `{"nfs":{"nodeNetworks":[%v]}}`, `"10.0.0.7" "100.64.0.0/16" "0.0.0.0/0" "10.0.0.7/32" "fd00::7" "fd00::/64" "fd00::/99" "fd00::7/128" "::/0"`},
		{"StorageCluster", `{"nfs":{"namespaces":[%v]}}`, `"a" "team-a" "0"`},
		{"StorageCluster", `{"csi":{"ephemeral":{"pools":["a"],"maxSize":%v}}}`, `"1Mi" "10Gi" 1048576 "1e9"`},
		{"StorageCluster", `{"images":{"nfs":%v}}`, `"" "a" "registry.example:5000/a/b_c:v1" "[fd00::1]:5000/a:v1" "a@sha256:0123456789abcdef"`},
		{"StorageCluster", `{"storageClasses":[{"name":"a","mountOptions":[%v]}]}`, `"noatime" "context=\"system_u:object_r:a:s0:c1,c2\""`},
		{"Snapshot", `{"name":"a","sourceRef":{"kind":"Volume","name":"v"},"node":"n","deletion":{"uid":"u","requestedBy":"c","requestedAt":%v}}`, `"2026-11-24T03:00:00.000000Z" "2026-11-24T03:00:00.123456+01:00"`},
		{"Volume", `{"name":%v,"node":"n"}`, quoted(strings.Repeat("ä", 2048))},
		{"Volume", `{"name":"a","shared":true,"node":"no.server.nfs.holdfast.dev","serverRef":%v}`, `{"namespace":"no","name":"server"}`},
		{"Volume", `{"name":"a","node":"no.server.nfs.holdfast.dev","shared":%v}`, `false`},
		{"Snapshot", `{"name":"s","sourceRef":{"kind":"Volume","name":"m0"},"node":"n","group":{"name":"g","volumes":%v}}`, listOf(256, "m%d")},
		{"NFSServer", `%v`, `{"publish":{"claimName":"a"}} {"publish":{"claimName":"a"},"exports":{"access":"None"}} {"storage":{"size":"1Gi"},"engine":"Image","maxExports":4096}`},
		{"NFSServer", `{"storage":{"size":"1Gi"},"service":{"clusterIP":%v}}`, `"10.96.0.7" "fd00::7"`},
		{"NFSServer", `{"storage":{"size":"1Gi"},"exports":{"clients":[%v]}}`, `"10.0.0.0/8" "10.0.0.7" "10.0.0.7/32" "fd00::/8" "fd00::/99" "fd00::1" "fd00::1/128"`},
		{"StorageCluster", `{"controller":%v}`, `{"kind":"StatefulSet"} {"kind":"StatefulSet","replicas":2} {"kind":"Deployment","replicas":1} {"replicas":1}`},
	} {
		for _, value := range split(c.values) {
			text := object(c.kind, with(c.spec, value))
			if _, err := all[c.kind].refuses(text); err != nil {
				t.Errorf("%s is refused: %v", text, err)
			}
			isRead(t, all[c.kind], text)
		}
	}
}

func TestCephPool_FieldsGoWithTheirEngine(t *testing.T) {
	all := definitions(t)
	for _, c := range []struct{ change, says string }{ // which is empty where it is taken
		{`{}`, ""},
		{`{"engine":"CephFS","ceph":{"pool":"","filesystem":"cephfs"}}`, ""},
		{`{"overcommit":"2","reserved":"5%","ceph":{"namespace":"n","dataPool":"d","secure":true}}`, ""},
		{`{"ceph":{"nodeSecretRef":null}}`, ""},
		{`{"ceph":null}`, "RBD and CephFS"},
		{`{"engine":""}`, "give one of these"},
		{`{"engine":"Directory"}`, "spec.pools[0].ceph"},
		{`{"ceph":{"pool":""}}`, "RBD needs it"},
		{`{"engine":"CephFS","ceph":{"filesystem":"f"}}`, "one of them"},
		{`{"engine":"CephFS","ceph":{"pool":""}}`, "CephFS needs it"},
		{`{"path":"/srv/a"}`, "leave them out"},
		{`{"devices":{"model":"x"}}`, "spec.pools[0].ceph"},
		{`{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}`, "spec.pools[0].ceph"},
		{`{"name":"a-"}`, "must not end with -"},
		{`{"ceph":{"monitors":["v2:mon.example:3300"]}}`, "v2:10.0.0.1:3300"},
		{`{"ceph":{"monitors":["v2:10.0.0.1"]}}`, "spec.pools[0].ceph.monitors[0]"},
		{`{"ceph":{"monitors":[]}}`, "spec.pools[0].ceph.monitors"},
		{`{"ceph":{"fsid":"mine"}}`, "ceph fsid"},
		{`{"ceph":{"secure":true,"monitors":["v1:10.0.0.1:6789"]}}`, "spec.pools[0].ceph.secure"},
		{`{"ceph":{"user":"client.admin"}}`, "leave out client."},
		{`{"ceph":{"user":"a","nodeUser":"a"}}`, "another user"},
		{`{"ceph":{"user":"holdfast-node"}}`, "another user"},
		{`{"ceph":{"nodeSecretRef":{"name":"ceph"}}}`, "another secret"},
		{`{"ceph":{"pool":"rbd,key=x"}}`, "spec.pools[0].ceph.pool"},
	} {
		_, err := all["StorageCluster"].refuses(object("StorageCluster", `{"pools":[`+patched(t, cephPool, c.change)+`]}`))
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("with %s: %v, want %q", c.change, err, c.says)
		}
	}
}

// merged is a value in JSON with the fields of another, of which null takes one away.
func merged(value, change any) any {
	fields, is := change.(map[string]any)
	into, ok := value.(map[string]any)
	if !is || !ok {
		return change
	}
	for name, field := range fields {
		if into[name] = merged(into[name], field); field == nil {
			delete(into, name)
		}
	}
	return into
}

func TestSchema_ImmutableFieldsDoNotHideOtherErrors(t *testing.T) {
	_, err := definitions(t)["NodeJob"].refuses(object("NodeJob", `{"image":"i","timeout":"1 day"}`))
	if err == nil || !strings.Contains(fmt.Sprint(err), "spec.timeout") {
		t.Errorf("got %v", err)
	}
}
