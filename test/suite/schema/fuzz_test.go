package schema_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/holdfast-storage/holdfast/api/client/clientset/scheme"
	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/operator/render"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/hostile"
)

// odd are values in JSON of which a field of any type may get one.
var odd = []string{
	`"7d"`, `"1d"`, `"1e400"`, `"1e1.5"`, `"0.1"`, `"-1"`, `"1_000"`, `"١"`, `"NaN"`, `"Inf"`, `""`, `" "`, `"a b"`, `"é"`, `"\u0000"`, `"2026-11-24T03:00:00Z"`, `"+Inf"`,
	`0.1`, `1.5`, `-1`, `0`, `1e3`, `4294967296`, `9007199254740993`, `9223372036854775807`, `9223372036854775808`, `1e20`, `99999999999999999999`, `-9223372036854775809`,
	`true`, `null`, `[]`, `{}`, `[""]`, `{"":""}`, `"1Gi"`, `"5%"`, `"100%"`, `"1K"`, `"1e30"`, `"9223372036854775808"`, `".5"`, `"1."`, `"0x1F"`, `"1,5"`, `"--help"`, `"../.."`,
}

// specs are those of which the fuzzer makes objects, with the most that has a value in them.
var specs = map[string]func() any{
	"StorageCluster": func() any { return &v1beta1.StorageClusterSpec{} }, "StorageUpgrade": func() any { return &v1beta1.StorageUpgradeSpec{Version: "v2"} },
	"NodeJob": func() any { return &v1beta1.NodeJobSpec{Image: "i"} }, "NFSServer": func() any { return &v1beta1.NFSServerSpec{} },
	"StorageNode": func() any { return &v1beta1.StorageNodeSpec{} }, "Volume": func() any { return &v1beta1.VolumeSpec{Name: "a", Node: "n"} },
	"Snapshot": func() any { return &v1beta1.SnapshotSpec{Name: "a", Node: "n", SourceRef: v1beta1.FromVolume("v")} },
}

// place puts a value in place of one that is in a tree of JSON, the n-th of them; n counts down.
func place(tree any, n *int, value any) any {
	*n--
	if *n == 0 {
		return value
	}
	switch tree := tree.(type) {
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(tree)) {
			tree[key] = place(tree[key], n, value)
		}
	case []any:
		for i := range tree {
			tree[i] = place(tree[i], n, value)
		}
	}
	return tree
}

func count(tree any) (n int) {
	n = 1 << 30
	place(tree, &n, nil)
	return 1<<30 - n
}

// oddSpec is a spec of the kind of which one value is replaced.
func oddSpec(t testing.TB, kind string, choices []byte, at uint16, value string) string {
	t.Helper()
	spec := specs[kind]()
	hostile.Fill(choices, spec)
	all := tree(t, string(check.Got(json.Marshal(spec))(t)))
	n := 1 + int(at)%count(all)
	text, err := json.Marshal(place(all, &n, json.RawMessage(value)))
	if err != nil {
		return "" // the value is no JSON
	}
	return string(text)
}

// Everything that the schema takes is decoded, and rendered or refused by name.
func FuzzSchema_AcceptedObjectIsRead(f *testing.F) {
	seeds := hostile.Seeds(40)
	i := uint16(0)
	for kind := range specs {
		for _, value := range odd {
			f.Add(kind, seeds[int(i)%len(seeds)], i, value)
			i++
		}
	}
	all := definitions(f)
	f.Fuzz(func(t *testing.T, kind string, choices []byte, at uint16, value string) {
		if specs[kind] == nil || len(choices) > 1000 || len(value) > 1000 {
			return
		}
		spec := oddSpec(t, kind, choices, at, value)
		if spec == "" {
			return
		}
		isRead(t, all[kind], object(kind, spec))
	})
}

func isRead(t *testing.T, d *definition, text string) (taken bool) {
	t.Helper()
	kept, err := d.refuses(text)
	if err != nil {
		return false
	}
	decoded, err := runtime.Decode(scheme.Codecs.UniversalDeserializer(), []byte(kept))
	if err != nil {
		t.Fatalf("%.300s: the schema takes it: %v", text, err)
	}
	o := decoded.(v1beta1.Object)
	if err := o.Unreadable(); err != nil {
		t.Errorf("%.300s: the schema takes it: %v", text, err)
		return true
	}
	if c, is := o.(*v1beta1.StorageCluster); is {
		if _, err := render.Objects(render.Input{Cluster: c, Namespace: "holdfast-system"}); err != nil && !strings.Contains(err.Error(), "spec.") {
			t.Errorf("%.300s: the refusal names no field: %v", text, err)
		}
	}
	return true
}

// unset are the fields of a schema that a value in JSON does not have, whatever is in them.
func unset(s *structuralschema.Structural, value any, at string) (missing []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			field := s.Properties[name]
			if inner, is := value[name]; is {
				missing = append(missing, unset(&field, inner, at+"."+name)...)
			} else {
				missing = append(missing, at+"."+name)
			}
		}
	case []any:
		// A field is set if one of the elements has it.
		var all [][]string
		for _, one := range value {
			all = append(all, unset(s.Items, one, at+"[]"))
		}
		for _, field := range all[0] {
			if !slices.ContainsFunc(all, func(of []string) bool { return !slices.Contains(of, field) }) {
				missing = append(missing, field)
			}
		}
	}
	return missing
}

// full are specs of each kind that make sense and have a value in every field, in one of them where fields exclude each
// other.
var full = map[string][]string{
	"StorageCluster": {
		`{"paused":false,"debug":true,"traces":"http://a:4318","images":{"holdfast":"a","nfs":"b","csiProvisioner":"c","csiAttacher":"d","csiResizer":"e","csiSnapshotter":"f","csiNodeDriverRegistrar":"g","csiLivenessProbe":"h","snapshotController":"i"},"imageRegistry":"a","imagePullPolicy":"Always","controller":{"kind":"Deployment","replicas":2,"affinity":{"nodeAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":{"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}],"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}]},"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"preference":{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}],"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}}]},"podAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaceSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaces":["a"],"topologyKey":"a","matchLabelKeys":["a"],"mismatchLabelKeys":["b"]}],"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaceSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaces":["a"],"topologyKey":"a","matchLabelKeys":["a"],"mismatchLabelKeys":["b"]}}]},"podAntiAffinity":{"requiredDuringSchedulingIgnoredDuringExecution":[{"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaceSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaces":["a"],"topologyKey":"a","matchLabelKeys":["a"],"mismatchLabelKeys":["b"]}],"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,"podAffinityTerm":{"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaceSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"namespaces":["a"],"topologyKey":"a","matchLabelKeys":["a"],"mismatchLabelKeys":["b"]}}]}},"nodeSelector":{"a":"b"},"tolerations":[{"key":"a","operator":"Equal","value":"b","effect":"NoExecute","tolerationSeconds":5}],"topologySpreadConstraints":[{"labelSelector":{"matchLabels":{"a":"b"},"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]},"matchLabelKeys":["a"],"maxSkew":1,"minDomains":1,"nodeAffinityPolicy":"Honor","nodeTaintsPolicy":"Honor","topologyKey":"a","whenUnsatisfiable":"DoNotSchedule"}],"priorityClassName":"a","podAnnotations":{"a":"b"},"podLabels":{"a":"b"},"resources":{"claims":[{"name":"a","request":"b"}],"limits":{"cpu":"1"},"requests":{"cpu":"100m"}},"extraArgs":["--log-format=json"]},"imagePullSecrets":[{"name":"a"}],"secretRef":{"name":"a","namespace":"b"},"csi":{"enabled":true,"kubeletDir":"/a","maxVolumesPerNode":5,"credentials":{"provision":true,"controllerPublish":true,"nodePublish":true,"controllerExpand":true},"ephemeral":{"pools":["a"],"maxSize":"10Gi"}},"service":{"name":"a","type":"NodePort","port":80,"targetPort":5705,"annotations":{"a":"b"}},"ingress":{"enabled":true,"tls":true,"ingressClassName":"a","host":"a.example","annotations":{"a":"b"}},"pools":[{"name":"a","engine":"Directory","path":"/srv/a","requireMount":true,"overcommit":"1.5","reserved":"5%","trashRetention":"7d","nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Gt","values":["1"]}]}]},{"name":"b","devices":{"paths":["/dev/sda"],"minSize":"1Gi","model":"x","rotational":false,"count":2}}],"defaultClass":true,"storageClasses":[{"name":"a","pool":"a","default":true,"fsType":"xfs","mountOptions":["discard"],"parameters":{"provisioning":"thin"},"onNodeLoss":"Delete","reclaimPolicy":"Retain","volumeBindingMode":"Immediate"},{"name":"b","pools":["a","b"]}],"nfs":{"namespaces":["team-a"],"nodeNetworks":["100.64.0.0/16","fd00::7"],"networkPolicies":true,"inlineVolumeNamespaces":["a"]},"nodeSelectorTerms":[{"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]},{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}],"tolerations":[{"key":"a","operator":"Equal","value":"b","effect":"NoExecute","tolerationSeconds":5}],"resources":{"claims":[{"name":"a","request":"b"}],"limits":{"cpu":"1"},"requests":{"cpu":"100m"}},"priorityClassName":"a","distribution":"k3s","monitoring":{"enabled":false,"labels":{"a":"b"}},"node":{"priorityClassName":"a","podAnnotations":{"a":"b"},"podLabels":{"a":"b"},"resources":{"claims":[{"name":"a","request":"b"}],"limits":{"cpu":"1"},"requests":{"cpu":"100m"}}},"deletionPolicy":"Orphan"}`,
		`{"fencing":{"pods":"WithCephVolumes","after":"5m","namespaces":["a"]},"images":{"ceph":"a"},"pools":[{"name":"a","engine":"RBD","ceph":{"fsid":"11111111-2222-3333-4444-555555555555","monitors":["v2:10.0.0.1:3300"],"user":"a","nodeUser":"b","secretRef":{"name":"a"},"nodeSecretRef":{"name":"b"},"secure":true,"dataPool":"d","namespace":"n","pool":"p"}},{"name":"b","engine":"CephFS","ceph":{"fsid":"11111111-2222-3333-4444-555555555555","monitors":["v2:10.0.0.1:3300"],"user":"a","nodeUser":"b","secretRef":{"name":"a"},"nodeSecretRef":{"name":"b"},"secure":true,"dataPool":"d","namespace":"n","filesystem":"f"}}]}`,
	},
	"StorageUpgrade": {
		`{"version":"v2","strategy":"Offline","nodeTimeout":"15m","rollback":false}`,
		`{"image":"i"}`,
	},
	"NodeJob": {
		`{"image":"i","command":["a"],"args":["b"],"hostPath":"/a","mountPath":"/b","completionWord":"c","nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}],"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}],"tolerations":[{"key":"a","operator":"Equal","value":"b","effect":"NoExecute","tolerationSeconds":5}],"timeout":"1d","backoffLimit":3,"privileged":true}`,
		`{"task":"Pull","pool":"a","taskImage":"i"}`,
	},
	"NFSServer": {
		`{"storage":{"size":"1Gi","storageClassName":"a"},"engine":"Directory","exports":{"squash":"Root","anonUID":5,"anonGID":5,"access":"ReadOnly","clients":["10.0.0.0/8"]},"service":{"port":3049,"type":"NodePort","clusterIP":"10.0.0.1","annotations":{"a":"b"}},"maxExports":5,"gracePeriod":"90s","resources":{"claims":[{"name":"a","request":"b"}],"limits":{"memory":"1Gi"},"requests":{"cpu":"1"}},"mountOptions":["nconnect=4"],"tolerations":[{"key":"a","operator":"Equal","value":"b","effect":"NoExecute","tolerationSeconds":5}],"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}],"matchFields":[{"key":"metadata.name","operator":"In","values":["a"]}]}],"reclaimPolicy":"Delete"}`,
		`{"storage":{"claimName":"a"}}`,
		`{"storage":{"hostPath":"/srv/a"},"nodeSelectorTerms":[{"matchExpressions":[{"key":"a","operator":"Exists"}]}]}`,
		`{"publish":{"claimName":"a","name":"b"}}`,
	},
	"StorageNode": {
		`{"discard":[{"kind":"Volume","name":"a","uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00.000000Z","reason":"r"}],"restore":[{"name":"a","error":"e","requestedBy":"c","requestedAt":"2026-11-24T03:00:00.000000Z"}],"replacePools":[{"name":"a","id":"b"}]}`,
		`{"fence":{"reason":"NodeGone","requestedAt":"2026-11-24T03:00:00.000000Z","shutOutAt":"2026-11-24T03:00:07.000000Z"},"blocklist":[{"node":"a","addresses":["10.0.0.5:0/1"],"bootID":"b","requestedAt":"2026-11-24T03:00:00.000000Z","expire":true}]}`,
	},
	"Volume": {
		`{"name":"a","claimRef":{"namespace":"a","name":"b"},"node":"n","pool":"p","size":{"required":"1Gi","limit":"2Gi"},"mode":"Block","fsType":"xfs","provisioning":"Thick","mkfsOptions":["-K"],"inodes":5,"labels":{"a":"b"},"sourceRef":{"kind":"Volume","name":"v"},"populatedBy":"Pod","onNodeLoss":"Delete","deletion":{"uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00.000000Z","reason":"r"}}`,
		`{"name":"a","claimRef":{"namespace":"a","name":"b"},"node":"a.b.nfs.holdfast.dev","shared":true,"serverRef":{"namespace":"a","name":"b"}}`,
	},
	"Snapshot": {
		`{"name":"a","sourceRef":{"kind":"Volume","name":"v"},"node":"n","group":{"name":"g","volumes":["v","w"]},"deletion":{"uid":"u","requestedBy":"c","requestedAt":"2026-11-24T03:00:00.000000Z","reason":"r"}}`,
	},
}

// Every value that is odd is tried in every field once, one at a time.
func TestSchema_AcceptedObjectIsReadWhateverItsValues(t *testing.T) {
	all := definitions(t)
	for kind, specs := range full {
		for _, spec := range specs {
			if _, err := all[kind].refuses(object(kind, spec)); err != nil {
				t.Fatalf("%s: what makes sense is refused: %v", kind, err)
			}
			taken := 0
			for at := range count(tree(t, spec)) {
				for _, value := range odd {
					n := at + 1
					text := check.Got(json.Marshal(place(tree(t, spec), &n, json.RawMessage(value))))(t)
					if isRead(t, all[kind], object(kind, string(text))) {
						taken++
					}
				}
			}
			if taken == 0 {
				t.Errorf("%s: nothing was taken: it shows nothing", kind)
			}
		}
	}
}

func TestSchema_EveryFieldOfEveryKindIsTested(t *testing.T) {
	for kind, d := range definitions(t) {
		var missing [][]string
		for _, spec := range full[kind] {
			missing = append(missing, unset(new(d.structural.Properties["spec"]), tree(t, spec), "spec"))
		}
		for _, field := range slices.Compact(slices.Sorted(slices.Values(slices.Concat(missing...)))) {
			if !slices.ContainsFunc(missing, func(of []string) bool {
				return !slices.ContainsFunc(of, func(f string) bool { return isWithin(field, f) })
			}) {
				t.Errorf("%s: %s is tried with no value", kind, field)
			}
		}
	}
}

// isWithin says whether a field is another one, or in it.
func isWithin(field, other string) bool {
	rest, is := strings.CutPrefix(field, other)
	return is && (rest == "" || rest[0] == '.' || rest[0] == '[')
}

func tree(t testing.TB, text string) (v any) {
	t.Helper()
	check.OK(t, json.Unmarshal([]byte(text), &v))
	return v
}
