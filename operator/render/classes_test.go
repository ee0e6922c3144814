package render

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

func classOf(t *testing.T, in Input, name string) *storage.StorageClass {
	t.Helper()
	return must[storage.StorageClass](t, in, "StorageClass", name)
}

func TestClasses_DefaultExistsWithoutASpec(t *testing.T) {
	c := classOf(t, ask(nil), "holdfast")
	if c.Provisioner != "csi.holdfast.dev" || !*c.AllowVolumeExpansion || *c.VolumeBindingMode != storage.VolumeBindingWaitForFirstConsumer ||
		*c.ReclaimPolicy != core.PersistentVolumeReclaimDelete || c.Annotations[defaultClass] != "true" || !maps.Equal(c.Parameters, map[string]string{"csi.storage.k8s.io/fstype": "ext4"}) {
		t.Errorf("it is %+v", c)
	}
}

func TestClasses_SharedClassExistsBesideTheDefault(t *testing.T) {
	c := classOf(t, ask(nil), "holdfast-shared")
	if c.Provisioner != "csi.holdfast.dev" || !*c.AllowVolumeExpansion || *c.VolumeBindingMode != storage.VolumeBindingImmediate ||
		*c.ReclaimPolicy != core.PersistentVolumeReclaimDelete || c.Annotations[defaultClass] != "" || !maps.Equal(c.Parameters, map[string]string{"shared": "true"}) {
		t.Errorf("it is %+v", c)
	}
	for name, change := range map[string]func(*v1beta1.StorageClusterSpec){
		"without CSI":        func(s *v1beta1.StorageClusterSpec) { s.CSI.Enabled = new(false) },
		"with other classes": func(s *v1beta1.StorageClusterSpec) { s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "fast"}} },
	} {
		if look[storage.StorageClass](t, ask(change), "StorageClass", "holdfast-shared") != nil {
			t.Errorf("%s there is one", name)
		}
	}
}

func TestClasses_AnyClassMayBeShared(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.StorageClasses = []v1beta1.StorageClassSpec{
			{Name: "files", Parameters: map[string]string{"shared": "true", "nfsServer": "team/files"}, VolumeBindingMode: "Immediate"},
			{Name: "xfs", Parameters: map[string]string{"shared": "true"}, FSType: v1beta1.XFS},
		}
	})
	if c := classOf(t, in, "files"); !maps.Equal(c.Parameters, map[string]string{"shared": "true", "nfsServer": "team/files"}) || *c.VolumeBindingMode != storage.VolumeBindingImmediate {
		t.Errorf("it is %+v", c)
	}
	if c := classOf(t, in, "xfs"); c.Parameters["csi.storage.k8s.io/fstype"] != "xfs" {
		t.Errorf("it is %+v", c)
	}
}

func TestClasses_FollowTheSpec(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Pools = []v1beta1.PoolSpec{{Name: "fast"}}
		s.StorageClasses = []v1beta1.StorageClassSpec{
			{
				Name: "fast", Pool: "fast", ReclaimPolicy: core.PersistentVolumeReclaimRetain, VolumeBindingMode: "Immediate", FSType: v1beta1.XFS,
				OnNodeLoss: v1beta1.DeleteOnNodeLoss, Parameters: map[string]string{"provisioning": "thick"}, MountOptions: []string{"noatime"},
			},
			{Name: "plain", Default: true},
		}
	})
	fast, plain := classOf(t, in, "fast"), classOf(t, in, "plain")
	if *fast.ReclaimPolicy != core.PersistentVolumeReclaimRetain || *fast.VolumeBindingMode != storage.VolumeBindingImmediate || fast.Annotations[defaultClass] != "" {
		t.Errorf("fast is %+v", fast)
	}
	if want := map[string]string{"pool": "fast", "csi.storage.k8s.io/fstype": "xfs", "onNodeLoss": "delete", "provisioning": "thick"}; !maps.Equal(fast.Parameters, want) {
		t.Errorf("the parameters of fast are %v", fast.Parameters)
	}
	if !slices.Equal(fast.MountOptions, []string{"noatime"}) || len(plain.MountOptions) > 0 {
		t.Errorf("the mount options are %v and %v", fast.MountOptions, plain.MountOptions)
	}
	if plain.Annotations[defaultClass] != "true" || *plain.ReclaimPolicy != core.PersistentVolumeReclaimDelete || len(plain.Parameters) != 1 {
		t.Errorf("plain is %+v", plain)
	}
	if look[storage.StorageClass](t, in, "StorageClass", "holdfast") != nil {
		t.Error("there is one that was not requested")
	}
}

func TestCSIDriver_RequiresAttachOnlyIfRequested(t *testing.T) {
	for _, attach := range []bool{false, true} {
		driver := must[storage.CSIDriver](t, ask(func(s *v1beta1.StorageClusterSpec) { s.CSI.AttachRequired = attach }), "CSIDriver", "csi.holdfast.dev")
		if *driver.Spec.AttachRequired != attach || !*driver.Spec.PodInfoOnMount || !*driver.Spec.StorageCapacity {
			t.Errorf("with %v it is %+v", attach, driver.Spec)
		}
	}
}

// fsGroup is given by the driver, and a mount with a context would fit neither pods that share a volume nor directories.
func TestCSIDriver_SaysHowVolumesAreMounted(t *testing.T) {
	spec := must[storage.CSIDriver](t, ask(nil), "CSIDriver", "csi.holdfast.dev").Spec
	if *spec.FSGroupPolicy != storage.FileFSGroupPolicy || *spec.SELinuxMount {
		t.Errorf("the policy of fsGroup is %s, and with SELinux it is mounted with a context: %v", *spec.FSGroupPolicy, *spec.SELinuxMount)
	}
}

// A mount of a shared volume lasts as long as the network that it was made from, so it is not made from that of a pod.
func TestSharedVolumes_AreMountedFromTheNetworkOfTheNode(t *testing.T) {
	pod := nodeOf(t, ask(nil)).Spec.Template.Spec
	if args := arguments(t, pod, "holdfast"); !slices.Contains(args, "--namespaces=/host/proc/1/ns") {
		t.Errorf("the arguments are %v", args)
	}
	for _, v := range pod.Volumes {
		if v.Name != "proc" {
			continue
		}
		if m := mountOf(container(&pod, "holdfast"), "proc"); v.HostPath == nil || v.HostPath.Path != "/proc" || m.MountPath != "/host/proc" || !m.ReadOnly {
			t.Errorf("%+v is mounted as %+v", v, m)
		}
		return
	}
	t.Error("the processes of the node cannot be seen")
}

func TestSnapshotClasses_AreRenderedWhereTheirKindsExist(t *testing.T) {
	both := []string{"VolumeSnapshotClass", "VolumeGroupSnapshotClass"}
	for _, known := range [][]string{nil, both[:1], both} {
		in := ask(nil)
		in.Has = func(kind schema.GroupKind) bool {
			return slices.Contains(known, kind.Kind) && strings.HasSuffix(kind.Group, "snapshot.storage.k8s.io")
		}
		var made []string
		for _, o := range rendered(t, in) {
			if slices.Contains(both, o.GetKind()) {
				made = append(made, o.GetKind())
				if o.Object["driver"] != "csi.holdfast.dev" || o.Object["deletionPolicy"] != "Delete" || o.GetName() != "holdfast" {
					t.Errorf("it is %v", o.Object)
				}
			}
		}
		if !slices.Equal(made, known) {
			t.Errorf("where %v are known, %v are made", known, made)
		}
	}
}

func TestMetrics_MonitorIsRenderedWhereItsKindExists(t *testing.T) {
	for _, test := range []struct{ known, disabled, want bool }{{true, false, true}, {true, true, false}, {false, false, false}} {
		in := ask(func(s *v1beta1.StorageClusterSpec) { s.Monitoring.Enabled = new(!test.disabled) })
		in.Has = func(kind schema.GroupKind) bool {
			return test.known && kind == schema.GroupKind{Group: "monitoring.coreos.com", Kind: "PodMonitor"}
		}
		monitor := look[map[string]any](t, in, "PodMonitor", "holdfast")
		if (monitor != nil) != test.want {
			t.Errorf("%+v: %v", test, monitor)
		}
		if monitor == nil {
			continue
		}
		selector, _, err := unstructured.NestedStringMap(*monitor, "spec", "selector", "matchLabels")
		if err != nil {
			t.Fatal(err)
		}
		for name, pod := range map[string]map[string]string{"controller": controllerOf(t, in).Spec.Template.Labels, "node": nodeOf(t, in).Spec.Template.Labels} {
			for key, value := range selector {
				if pod[key] != value || len(selector) == 0 {
					t.Errorf("the %s, with the labels %v, is not found by %v", name, pod, selector)
				}
			}
		}
	}
}

func TestCredentials_AreCopiedAndNamedInEveryClass(t *testing.T) {
	enable := map[string]struct {
		field   func(*v1beta1.CSISpec)
		secret  string
		key     string
		classes string
	}{
		"provision": {func(c *v1beta1.CSISpec) { c.Credentials.Provision = true }, "csi-provisioner-secret", "csiProvision", "provisioner-secret"},
		"publish":   {func(c *v1beta1.CSISpec) { c.Credentials.ControllerPublish = true }, "csi-controller-publish-secret", "csiControllerPublish", "controller-publish-secret"},
		"node":      {func(c *v1beta1.CSISpec) { c.Credentials.NodePublish = true }, "csi-node-publish-secret", "csiNodePublish", "node-publish-secret"},
		"expand":    {func(c *v1beta1.CSISpec) { c.Credentials.ControllerExpand = true }, "csi-controller-expand-secret", "csiControllerExpand", "controller-expand-secret"},
	}
	for name, test := range enable {
		in := everything()
		in.Cluster.Spec.CSI, in.Cluster.Spec.Ingress = v1beta1.CSISpec{}, v1beta1.IngressSpec{}
		test.field(&in.Cluster.Spec.CSI)
		secrets := 0
		for _, o := range rendered(t, in) {
			if o.GetKind() == "Secret" {
				secrets++
			}
		}
		secret := must[core.Secret](t, in, "Secret", test.secret)
		if secrets != 1 || string(secret.Data["username"]) != test.key || string(secret.Data["password"]) != "secret of "+test.key || len(secret.Data) != 2 || secret.Type != core.SecretTypeOpaque {
			t.Errorf("%s: of %d secrets, one is %v", name, secrets, secret)
		}
		for _, class := range []string{"fast", "slow"} {
			parameters := classOf(t, in, class).Parameters
			prefix := "csi.storage.k8s.io/" + test.classes
			if parameters[prefix+"-name"] != test.secret || parameters[prefix+"-namespace"] != testNamespace {
				t.Errorf("%s: the parameters are %v", name, parameters)
			}
			if named := slices.DeleteFunc(slices.Collect(maps.Keys(parameters)), func(key string) bool { return !strings.Contains(key, "-secret-") }); len(named) != 2 {
				t.Errorf("%s: named are %v", name, named)
			}
		}
	}
}

func TestSecret_StaysInSecrets(t *testing.T) {
	for _, o := range rendered(t, everything()) {
		content, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(content), "secret of ") && o.GetKind() != "Secret" {
			t.Errorf("%s %s says %s", o.GetKind(), o.GetName(), content)
		}
	}
}

func TestSecret_MissingKeyIsNamed(t *testing.T) {
	for _, key := range []string{"csiProvisionUsername", "csiNodePublishPassword", "csiControllerPublishUsername", "csiControllerExpandPassword", "tls.crt", "tls.key"} {
		in := everything()
		in.Cluster.Spec.SecretRef.Namespace = "vault"
		delete(in.Secret, key)
		_, err := Objects(in)
		if err == nil || !strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "vault/access") {
			t.Errorf("without %s: %v", key, err)
		}
		if err != nil && strings.Contains(err.Error(), "secret of ") {
			t.Errorf("the error shows a secret: %v", err)
		}
		in.Secret[key] = []byte{}
		if _, err := Objects(in); err == nil {
			t.Errorf("an empty %s is taken", key)
		}
	}
	in := everything()
	in.Cluster.Spec.SecretRef = nil
	if _, err := Objects(in); err == nil || !strings.Contains(err.Error(), "spec.secretRef") || !strings.Contains(err.Error(), "spec.csi.credentials.provision") {
		t.Errorf("without a secret: %v", err)
	}
}

func TestClasses_OfADirectoryPoolNamesNoFileSystem(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		s.Pools = []v1beta1.PoolSpec{{Name: "tree", Engine: v1beta1.EngineDirectory, Path: "/var/lib/holdfast/tree"}}
		s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "named", Pool: "tree"}, {Name: "first"}}
	})
	for _, name := range []string{"named", "first"} {
		if c := classOf(t, in, name); c.Parameters["csi.storage.k8s.io/fstype"] != "" {
			t.Errorf("class %s asks a pool of directories for the file system in %v", name, c.Parameters)
		}
	}
	in.Cluster.Spec.StorageClasses[0].FSType = v1beta1.Ext4
	if _, err := Objects(in); err == nil || !strings.Contains(err.Error(), "spec.storageClasses[0].fsType") || !strings.Contains(err.Error(), "engine Directory") {
		t.Errorf("got %v", err)
	}
}
