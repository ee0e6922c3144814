// Package hostile makes of bytes the specs that a user may write, for a fuzzer to look for one that breaks something.
// Most of a spec makes sense, so that it gets far; some of it no user would write.
package hostile

import (
	"math"
	"math/rand/v2"
	"reflect"
	"strings"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// Seeds are inputs of a fuzzer, the same each time: nothing at all, and ever more.
func Seeds(count int) [][]byte {
	all := [][]byte{nil}
	dice := rand.New(rand.NewPCG(1, 2)) //nolint:gosec // the same each time
	for i := range count {
		seed := make([]byte, 8+8*i)
		for j := range seed {
			seed[j] = byte(dice.Uint32())
		}
		all = append(all, seed)
	}
	return all
}

// Fill writes into a value what the bytes choose. Where there are none left it writes nothing.
func Fill(choices []byte, into any) {
	(&filler{choices: choices}).fill(reflect.ValueOf(into).Elem(), "")
}

type filler struct{ choices []byte }

// choose returns a number below sides; 0 when nothing is left.
func (f *filler) choose(sides int) int {
	if len(f.choices) == 0 {
		return 0
	}
	n := int(f.choices[0]) % sides
	f.choices = f.choices[1:]
	return n
}

// fill writes a value of a field of this name.
func (f *filler) fill(v reflect.Value, name string) {
	if len(f.choices) == 0 || f.special(v) {
		return
	}
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(f.choose(4) == 1)
	case reflect.Int32, reflect.Int64:
		n := usual[f.choose(len(usual))]
		if f.choose(8) == 1 {
			n = numbers[f.choose(len(numbers))]
		}
		if v.Kind() == reflect.Int32 {
			n = min(max(n, math.MinInt32), math.MaxInt32)
		}
		v.SetInt(n)
	case reflect.String:
		v.SetString(f.word(name))
	case reflect.Pointer:
		if f.choose(2) == 1 {
			v.Set(reflect.New(v.Type().Elem()))
			f.fill(v.Elem(), name)
		}
	case reflect.Slice:
		for range f.choose(4) {
			v.Set(reflect.Append(v, reflect.Zero(v.Type().Elem())))
			f.fill(v.Index(v.Len()-1), name)
		}
	case reflect.Map:
		f.fillMap(v, name)
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && f.choose(3) > 0 {
				f.fill(v.Field(i), v.Type().Field(i).Name)
			}
		}
	}
}

func (f *filler) fillMap(v reflect.Value, name string) {
	for range f.choose(4) {
		if v.IsNil() {
			v.Set(reflect.MakeMap(v.Type()))
		}
		key, value := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
		f.fill(key, name)
		f.fill(value, "Value")
		v.SetMapIndex(key, value)
	}
}

// special fills what is more than its fields.
func (f *filler) special(v reflect.Value) bool {
	switch v.Interface().(type) {
	case resource.Quantity:
		v.Set(reflect.ValueOf(resource.MustParse(quantities[f.choose(len(quantities))])))
	case v1beta1.Duration:
		v.SetString(durations[f.choose(len(durations))])
	case core.NodeSelectorRequirement, core.Toleration, core.NodeSelectorTerm:
		all := wholes[v.Type().Name()]
		n := f.choose(len(all) + 1)
		if n == len(all) {
			return false
		}
		v.Set(reflect.ValueOf(all[n]))
	default:
		return false
	}
	return true
}

// wholes are what makes sense only as a whole.
var wholes = map[string][]any{
	"NodeSelectorTerm": {
		core.NodeSelectorTerm{},
		core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{{Key: "zone", Operator: core.NodeSelectorOpExists}}},
		core.NodeSelectorTerm{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: core.NodeSelectorOpIn, Values: []string{"a"}}}},
		core.NodeSelectorTerm{MatchExpressions: []core.NodeSelectorRequirement{{Key: "zone", Operator: core.NodeSelectorOpGt, Values: []string{"0"}}}},
	},
	"NodeSelectorRequirement": {
		core.NodeSelectorRequirement{Key: "zone", Operator: core.NodeSelectorOpIn, Values: []string{"1", "2"}},
		core.NodeSelectorRequirement{Key: "zone", Operator: core.NodeSelectorOpDoesNotExist},
	},
	"Toleration": {
		core.Toleration{Operator: core.TolerationOpExists},
		core.Toleration{Key: "a", Value: "b", Effect: core.TaintEffectNoSchedule},
		core.Toleration{Key: "a", Operator: core.TolerationOpExists, Effect: core.TaintEffectNoExecute, TolerationSeconds: new(int64(-1))},
	},
}

// word is mostly one that makes sense for a field.
func (f *filler) word(name string) string {
	if f.choose(32) == 1 {
		return words[f.choose(len(words))]
	}
	sensible, known := sense[name]
	if !known {
		sensible = []string{"", "a", "b", "holdfast"}
	}
	return sensible[f.choose(len(sensible))]
}

var (
	usual      = []int64{0, 0, 3, 8080}
	numbers    = []int64{0, 1, 2, 3, 1024, 5705, 30000, 65535, 9090, 65536, -1, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64}
	quantities = []string{"0", "100m", "1", "64Mi", "1Gi", "1e30", "-1", "9223372036854775808", "0.000000001"}
	durations  = []string{"0s", "1s", "1h", "7d", "1d12h", "1ns", "-1h", "9999d", "9999d9999d9999d9999d9999d9999d9999d9999d", "1e400", "NaN", "", "1_000", "٧d"}
)

// words are what only an attacker would write, or a script that went wrong.
var words = []string{
	strings.Repeat("x", 5000), strings.Repeat("x", 64), strings.Repeat("a.", 126) + "a", strings.Repeat("/a", 200), strings.Repeat("é", 2500),
	"a b", " ", "\n", "a\nb: c", "\x00", "\u202e", "🙈", "../../etc/passwd", "/", "//", "/..", "/etc", "/var/lib/kubelet/pods", ".", "-", "-a", "--help", "A",
	"{{.}}", "$(POD_NAME)", "$$(POD_NAME)", "`id`", "%s%d%n", `"`, `'; --`, "null", "true", "0", "1e9", "999999999999999999999", "::::", "a:b@c",
	"kubernetes.io", "a/b", "a/b/c", "holdfast-node", "holdfast-controller", "kube-system", "csi.storage.k8s.io/node-publish-secret-name", "pool",
}

// sense is what makes sense, by the name of a field.
var sense = map[string][]string{
	"Name":              {"a", "b", "c", "default", "holdfast", "a-b"},
	"Namespace":         {"", "storage", "kube-system"},
	"Key":               {"kubernetes.io/os", "zone", "example.com/disk", "metadata.name", ""},
	"Operator":          {"In", "Exists", "NotIn", "DoesNotExist", "Gt", "Lt", "Equal", ""},
	"Values":            {"linux", "1", "a", ""},
	"Value":             {"1", "a", ""},
	"Effect":            {"", "NoSchedule", "NoExecute", "PreferNoSchedule"},
	"Path":              {"", "/srv/a", "/srv/b", "/srv/a/b", "/var/lib/holdfast/pools/x"},
	"Paths":             {"/dev/sda", "/dev/disk/by-id/nvme-*"},
	"Engine":            {"", "Image", "Directory"},
	"Overcommit":        {"", "1.5", "2"},
	"Reserved":          {"", "5%", "10Gi"},
	"Pool":              {"", "a", "b", "default"},
	"ReclaimPolicy":     {"", "Delete", "Retain"},
	"VolumeBindingMode": {"", "Immediate", "WaitForFirstConsumer"},
	"FSType":            {"", "ext4", "xfs", "btrfs"},
	"OnNodeLoss":        {"", "Retain", "Delete"},
	"Parameters":        {"provisioning", "mkfsOptions", "pool"},
	"DeletionPolicy":    {"", "Refuse", "Orphan"},
	"Kind":              {"", "Deployment", "StatefulSet"},
	"KubeletDir":        {"", "/var/lib/kubelet", "/data/kubelet"},
	"Type":              {"", "ClusterIP", "NodePort", "LoadBalancer"},
	"Host":              {"storage.example", "*.example", "a"},
	"IngressClassName":  {"", "nginx"},
	"Annotations":       {"a", "example.com/b"},
	"PriorityClassName": {"", "system-node-critical"},
	"ImagePullPolicy":   {"", "Always", "Never"},
	"ImageRegistry":     {"", "mirror.example/all"},
	"ExtraArgs":         {"--log-format=json", "--stop-timeout=1s"},
	"Distribution":      {"", "openshift-4.20", "k3s", "microk8s", "talos"},
	"Requests":          {"cpu", "memory", "ephemeral-storage"},
	"Limits":            {"cpu", "memory", "ephemeral-storage"},
	"MatchLabels":       {"zone", "example.com/disk"},
	"MountOptions":      {"discard", "noatime"},
	"Version":           {"", "v2", "v1"},
	"Strategy":          {"", "Rolling", "Offline"},
	"Task":              {"", "Pull", "Cleanup"},
	"HostPath":          {"", "/srv", "/var/lib/holdfast/pools/a"},
	"MountPath":         {"", "/mnt"},
	"CompletionWord":    {"", "done"},
}
