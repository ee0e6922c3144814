package storageos

import (
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func sample(t *testing.T, file string) map[string]any {
	t.Helper()
	data := check.Got(os.ReadFile(filepath.Join("testdata", file)))(t)
	var manifest map[string]any
	check.OK(t, yaml.UnmarshalStrict(data, &manifest))
	return manifest
}

// converted also returns the verdicts per field, of which there may be several.
func converted(t *testing.T, manifest map[string]any) (c *v1beta1.StorageCluster, remarks []Remark, said map[string][]Verdict) {
	t.Helper()
	c, remarks, err := Convert(manifest)
	check.OK(t, err)
	said = map[string][]Verdict{}
	for _, r := range remarks {
		said[r.Field] = append(said[r.Field], r.Verdict)
	}
	return c, remarks, said
}

// allKnown fails if a remark is about a field that is not known, or about the whole.
func allKnown(t *testing.T, remarks []Remark) {
	t.Helper()
	for _, r := range remarks {
		if r.Verdict == Unknown || r.Field == "the StorageCluster" {
			t.Errorf("%s", r)
		}
	}
}

func TestFields_EachHasATargetOrAReason(t *testing.T) {
	got, remarks, _ := converted(t, sample(t, "every-field.yaml"))
	enable, seconds := true, int64(60)
	want := &v1beta1.StorageCluster{
		TypeMeta:   metav1.TypeMeta{APIVersion: "holdfast.dev/v1beta1", Kind: "StorageCluster"},
		ObjectMeta: metav1.ObjectMeta{Name: "production", Labels: map[string]string{"team": "platform"}, Annotations: map[string]string{"note": "made by hand"}},
		Spec: v1beta1.StorageClusterSpec{
			Debug:     true,
			SecretRef: &v1beta1.SecretReference{Name: "storageos-api", Namespace: "storageos-operator"},
			CSI: v1beta1.CSISpec{
				Enabled: &enable, KubeletDir: "/opt/kubelet",
				Credentials: v1beta1.CSICredentials{Provision: true, ControllerPublish: true, NodePublish: true},
			},
			Controller: v1beta1.ControllerSpec{Kind: v1beta1.AsStatefulSet},
			Service: v1beta1.ServiceSpec{
				Name: "storageos", Type: core.ServiceTypeNodePort, Port: 15705, TargetPort: 5705,
				Annotations: map[string]string{"example.com/balancer": "internal"},
			},
			Ingress: v1beta1.IngressSpec{
				Enabled: true, IngressClassName: "nginx", Host: "storage.example.com", TLS: true, Annotations: map[string]string{"example.com/rewrite": "false"},
			},
			StorageClasses: []v1beta1.StorageClassSpec{{Name: "fast"}},
			NodeSelectorTerms: []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{
				{Key: "storage", Operator: core.NodeSelectorOpIn, Values: []string{"yes"}},
			}}},
			Tolerations: []core.Toleration{{Key: "dedicated", Operator: core.TolerationOpEqual, Value: "storage", Effect: core.TaintEffectNoExecute, TolerationSeconds: &seconds}},
			Resources: core.ResourceRequirements{
				Requests: core.ResourceList{core.ResourceMemory: resource.MustParse("512Mi"), core.ResourceCPU: resource.MustParse("250m")},
				Limits:   core.ResourceList{core.ResourceMemory: resource.MustParse("1Gi")},
			},
			Distribution: "openshift-4.6",
			Fencing:      v1beta1.FencingSpec{Pods: v1beta1.FenceNone},
		},
	}
	if gotText, wantText := text(t, got), text(t, want); gotText != wantText {
		t.Errorf("got\n%s\nwant\n%s", gotText, wantText)
	}
	allKnown(t, remarks)
}

func text(t *testing.T, c *v1beta1.StorageCluster) string {
	t.Helper()
	return string(check.Got(yaml.Marshal(c))(t))
}

// The sample has every known field of spec, and the code knows every field of the sample: a field that is missing in
// one of them is detected.
func TestConvert_NothingIsSilentlyDropped(t *testing.T) {
	manifest := sample(t, "every-field.yaml")
	given := map[string]any{}
	flatten("", manifest, given)
	_, remarks, said := converted(t, manifest)
	for path := range given {
		if path != "kind" && path != "apiVersion" && said[path] == nil {
			t.Errorf("%s: not a word", path)
		}
	}
	var known []string
	for _, f := range fields {
		if slices.Contains(known, f.path) {
			t.Errorf("%s is known twice", f.path)
		}
		known = append(known, f.path)
		if _, ok := given[f.path]; !ok && strings.HasPrefix(f.path, "spec.") {
			t.Errorf("%s is not in the sample", f.path)
		}
	}
	for _, r := range remarks {
		if r.Text == "" || !strings.HasPrefix(r.String(), r.Field+": ") {
			t.Errorf("%q says nothing", r)
		}
	}
	for field, want := range map[string]Verdict{
		"metadata.namespace": NoMeaning, "spec.secretRefName": Taken, "spec.join": NoMeaning, "spec.csi.kubeletDir": Taken,
		"spec.csi.driverRegisterationMode": NoMeaning, "spec.sharedDir": ByHand, "spec.images.nodeContainer": NoMeaning,
		"spec.images.csiExternalResizerContainer": ByHand, "spec.kvBackend.address": NoMeaning, "spec.disableTelemetry": NoMeaning,
		"spec.nodeSelectorTerms": Taken, "spec.pause": Taken, "spec.ingress.annotations": Taken,
	} {
		for _, got := range said[field] {
			if got != want {
				t.Errorf("%s: %s, want %s", field, got, want)
			}
		}
	}
}

func TestConvert_DefaultsOfStorageOSAreReported(t *testing.T) {
	c, _, said := converted(t, sample(t, "small.yaml"))
	if want := (v1beta1.StorageClusterSpec{SecretRef: &v1beta1.SecretReference{Name: "storageos-api", Namespace: "default"}}); !reflect.DeepEqual(c.Spec, want) {
		t.Errorf("got %+v", c.Spec)
	}
	if !slices.Equal(said["spec.storageClassName"], []Verdict{ByHand}) {
		t.Errorf("the class fast: %v", said["spec.storageClassName"])
	}
}

func TestConvert_SampleOfStorageOSIsAcceptedWithAllItsPeculiarities(t *testing.T) {
	c, remarks, _ := converted(t, sample(t, "sample.yaml"))
	for field, want := range map[string]string{
		"spec.images.apiControllerContainer": "has no meaning here",
		"spec.ingress.annotations":           `taken as the text "true" for kubernetes.io/tls-acme, which was no text`,
		"spec.service.annotations":           `taken as the text "60" for example.com/timeout`,
	} {
		if !slices.ContainsFunc(remarks, func(r Remark) bool { return r.Field == field && strings.Contains(r.String(), want) }) {
			t.Errorf("%s: %v", field, remarks)
		}
	}
	allKnown(t, remarks)
	if got := c.Spec.Ingress; got.IngressClassName != "nginx" || !maps.Equal(got.Annotations, map[string]string{"kubernetes.io/tls-acme": "true"}) {
		t.Errorf("the ingress is %+v", got)
	}
}

// changed is the small sample with other fields in spec.
func changed(t *testing.T, spec map[string]any) map[string]any {
	t.Helper()
	manifest := sample(t, "small.yaml")
	maps.Copy(manifest["spec"].(map[string]any), spec)
	return manifest
}

func TestConvert_UnknownFieldIsNamed(t *testing.T) {
	manifest := changed(t, map[string]any{"paused": true, "csi": map[string]any{"kubeletDirectory": "/x"}})
	manifest["extra"] = "e"
	_, _, said := converted(t, manifest)
	for _, field := range []string{"spec.paused", "spec.csi.kubeletDirectory", "extra"} {
		if !slices.Equal(said[field], []Verdict{Unknown}) {
			t.Errorf("%s: %v", field, said[field])
		}
	}
}

func TestConvert_UnsupportedFieldIsOmittedAndReported(t *testing.T) {
	for name, test := range map[string]struct {
		spec  map[string]any
		field string
		want  string
	}{
		"a low port":                {map[string]any{"service": map[string]any{"internalPort": 80.0}}, "spec.service.internalPort", "80"},
		"no port":                   {map[string]any{"service": map[string]any{"externalPort": 70000.0}}, "spec.service.externalPort", "70000"},
		"another type":              {map[string]any{"service": map[string]any{"type": "ExternalName"}}, "spec.service.type", "NodePort"},
		"an ingress without a host": {map[string]any{"ingress": map[string]any{"enable": true}}, "spec.ingress.hostname", "storageos.local"},
		"a namespace alone":         {map[string]any{"secretRefName": nil}, "spec.secretRefNamespace", "names nothing"},
		"an unknown distro":         {map[string]any{"k8sDistro": "mine"}, "the StorageCluster", `"mine"`},
		"credentials of none":       {map[string]any{"secretRefName": nil, "secretRefNamespace": nil, "csi": map[string]any{"enableProvisionCreds": true}}, "the StorageCluster", "spec.secretRef"},
	} {
		c, remarks, err := Convert(changed(t, test.spec))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		i := slices.IndexFunc(remarks, func(r Remark) bool { return r.Field == test.field && r.Verdict == ByHand })
		if i < 0 || !strings.Contains(remarks[i].Text, test.want) {
			t.Errorf("%s: %v", name, remarks)
		}
		if p := c.Spec.Service; p.TargetPort != 0 || p.Port != 0 || p.Type != "" {
			t.Errorf("%s: taken nevertheless: %+v", name, p)
		}
	}
}

// terms is a node selector with one expression.
func terms(expression map[string]any) map[string]any {
	return map[string]any{"nodeSelectorTerms": []any{map[string]any{"matchExpressions": []any{expression}}}}
}

func TestConvert_UnreadableValueIsAnErrorThatNamesItsField(t *testing.T) {
	for name, test := range map[string]struct {
		spec map[string]any
		want []string
	}{
		"a word for yes":        {map[string]any{"pause": "yes"}, []string{"spec.pause", "true or false"}},
		"a number for a word":   {map[string]any{"storageClassName": 5.0}, []string{"spec.storageClassName", "a text"}},
		"a word for a number":   {map[string]any{"service": map[string]any{"externalPort": "http"}}, []string{"spec.service.externalPort", "whole number"}},
		"half a port":           {map[string]any{"service": map[string]any{"externalPort": 1.5}}, []string{"1.5", "whole number"}},
		"a word for fields":     {map[string]any{"csi": "v1"}, []string{"spec.csi", "fields below it"}},
		"terms that are none":   {map[string]any{"nodeSelectorTerms": "all"}, []string{"spec.nodeSelectorTerms"}},
		"a misspelt toleration": {map[string]any{"tolerations": []any{map[string]any{"keys": "x"}}}, []string{"spec.tolerations", "keys"}},
		"a key in capitals":     {map[string]any{"tolerations": []any{map[string]any{"Key": "x"}}}, []string{"spec.tolerations", "Key"}},
		"yes as a value":        {map[string]any{"tolerations": []any{map[string]any{"key": "x", "value": true}}}, []string{"spec.tolerations", "value"}},
		"a number as a value":   {terms(map[string]any{"key": "x", "operator": "In", "values": []any{1.10}}), []string{"spec.nodeSelectorTerms", "values"}},
		"no amount":             {map[string]any{"resources": map[string]any{"limits": map[string]any{"memory": "much"}}}, []string{"spec.resources"}},
		"a list as annotation":  {map[string]any{"ingress": map[string]any{"annotations": map[string]any{"a": []any{}}}}, []string{"spec.ingress.annotations", "a: []", "a text"}},
		"a word as annotations": {map[string]any{"ingress": map[string]any{"annotations": "a"}}, []string{"spec.ingress.annotations", "by their keys"}},
		"two at once":           {map[string]any{"pause": 1.0, "debug": 2.0}, []string{"spec.pause", "spec.debug"}},
	} {
		c, _, err := Convert(changed(t, test.spec))
		if err == nil || c != nil {
			t.Errorf("%s: taken", name)
			continue
		}
		for _, want := range test.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %q does not name %s", name, err, want)
			}
		}
	}
}

func TestConvert_OnlyAStorageOSClusterIsAccepted(t *testing.T) {
	for name, manifest := range map[string]map[string]any{
		"nothing":         {},
		"another kind":    {"apiVersion": "storageos.com/v1", "kind": "Job"},
		"another group":   {"apiVersion": "example.com/v1", "kind": Kind},
		"what it becomes": {"apiVersion": "holdfast.dev/v1beta1", "kind": "StorageCluster"},
	} {
		if _, _, err := Convert(manifest); err == nil || !strings.Contains(err.Error(), "StorageOSCluster of storageos.com/v1") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := Convert(map[string]any{"apiVersion": "storageos.com/v1", "kind": Kind, "spec": []any{}}); err == nil || !strings.Contains(err.Error(), "spec") {
		t.Errorf("a list as spec: %v", err)
	}
}

func TestConvert_FieldsWrittenByTheServerAreDropped(t *testing.T) {
	manifest := sample(t, "small.yaml")
	manifest["status"] = map[string]any{"phase": "Running"}
	maps.Copy(manifest["metadata"].(map[string]any), map[string]any{
		"uid": "u", "resourceVersion": "5", "creationTimestamp": "2021-01-01T00:00:00Z", "finalizers": []any{"f"},
		"annotations": map[string]any{lastApplied: "{}"},
	})
	c, _, said := converted(t, manifest)
	if got := text(t, c); strings.Contains(got, "uid") || strings.Contains(got, "annotations") || strings.Contains(got, "status") || strings.Contains(got, "creationTimestamp") {
		t.Errorf("got\n%s", got)
	}
	for _, field := range []string{"status", "metadata.uid", "metadata.finalizers", "metadata.annotations"} {
		if !slices.Equal(said[field], []Verdict{NoMeaning}) {
			t.Errorf("%s: %v", field, said[field])
		}
	}
}
