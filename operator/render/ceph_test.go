package render

import (
	"encoding/base64"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	admission "k8s.io/api/admissionregistration/v1"
	apps "k8s.io/api/apps/v1"
	core "k8s.io/api/core/v1"
	rbac "k8s.io/api/rbac/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

const testFSID = "11111111-2222-3333-4444-555555555555"

// blockPool and filesPool are pools of both engines.
func blockPool() v1beta1.PoolSpec {
	return v1beta1.PoolSpec{Name: "block", Engine: v1beta1.EngineRBD, Ceph: &v1beta1.CephSpec{
		FSID: testFSID, Monitors: []string{"v2:10.0.0.1:3300", "v1:10.0.0.1:6789"}, Pool: "rbd",
		SecretRef: v1beta1.CephSecretReference{Name: "ceph"}, NodeSecretRef: v1beta1.CephSecretReference{Name: "ceph-node"},
	}}
}

func filesPool() v1beta1.PoolSpec {
	p := blockPool()
	p.Name, p.Engine, p.Ceph.Pool, p.Ceph.Filesystem = "files", v1beta1.EngineCephFS, "", "cephfs"
	return p
}

// askCeph has a pool on the nodes and two in a Ceph cluster.
func askCeph() Input {
	return ask(func(s *v1beta1.StorageClusterSpec) {
		s.Pools = []v1beta1.PoolSpec{blockPool(), {Name: "disk", Path: "/srv/disk"}, filesPool()}
	})
}

func siteOf(t *testing.T, in Input, pool string) *apps.Deployment {
	t.Helper()
	return must[apps.Deployment](t, in, "Deployment", "holdfast-ceph-"+pool)
}

func TestCeph_PoolWithAUserForEachNodeMakesThemAndNoPodMountsAKeyOfNodes(t *testing.T) {
	in := ask(func(s *v1beta1.StorageClusterSpec) {
		own, shared := blockPool(), filesPool()
		own.Ceph.NodeSecretRef.Name = ""
		s.Pools = []v1beta1.PoolSpec{own, shared}
	})
	pod := siteOf(t, in, "block").Spec.Template.Spec
	if args := container(&pod, "holdfast").Args; !slices.Contains(args, "--node-user=holdfast-node.block.") || strings.Contains(strings.Join(args, " "), "--node-key-file") {
		t.Errorf("the arguments of its pod are %q", args)
	}
	for _, v := range pod.Volumes {
		if v.Secret != nil && v.Secret.SecretName != "ceph" {
			t.Errorf("its pod mounts the secret %q", v.Secret.SecretName)
		}
	}
	pod = nodeOf(t, in).Spec.Template.Spec
	for _, v := range pod.Volumes {
		if v.Projected != nil && len(v.Projected.Sources) != 1 { // the other pool's
			t.Errorf("nodes mount %+v", v.Projected.Sources)
		}
	}
	policy := must[admission.ValidatingAdmissionPolicy](t, in, "ValidatingAdmissionPolicy", "holdfast-ceph-account")
	if v := policy.Spec.Variables[0].Expression; !strings.Contains(v, `"rbd", "", "holdfast-node.block."`) || !strings.Contains(v, `"cephfs", "/volumes/holdfast", "holdfast-node"`) {
		t.Errorf("the policy knows %s", v)
	}
	in.Cluster.Spec.Pools = in.Cluster.Spec.Pools[:1]
	pod = nodeOf(t, in).Spec.Template.Spec
	if args := strings.Join(container(&pod, "holdfast").Args, " "); strings.Contains(args, "--ceph-keys") || !strings.Contains(args, "--ceph-engines=rbd") {
		t.Errorf("the arguments of nodes are %s", args)
	}
	for _, v := range pod.Volumes {
		if v.Projected != nil || v.Secret != nil {
			t.Errorf("nodes mount %+v", v)
		}
	}
	if names := CephSecrets(in.Cluster); !slices.Equal(names, []string{"ceph"}) {
		t.Errorf("the secrets that are read are %q", names)
	}
}

func TestCeph_NodesHaveOnlyThePoolsOnNodes(t *testing.T) {
	config := must[core.ConfigMap](t, askCeph(), "ConfigMap", "holdfast-node")
	if text := config.Data["node.json"]; !strings.Contains(text, `"disk"`) || strings.Contains(text, "ceph") {
		t.Errorf("they read %s", text)
	}
	pools, err := NodePools(askCeph().Cluster, testNode("a"))
	if err != nil || len(pools) != 1 || pools[0].Name != "disk" {
		t.Errorf("a node has %+v, %v", pools, err)
	}
	// The pods of nodes are not replaced because of another monitor.
	other := askCeph()
	other.Cluster.Spec.Pools[0].Ceph.Monitors = []string{"v2:10.0.0.2:3300"}
	same(t, nodeOf(t, askCeph()).Spec.Template, nodeOf(t, other).Spec.Template)
}

func TestCeph_NothingIsMadeWithoutAPool(t *testing.T) {
	for name, in := range map[string]Input{"no pool": ask(nil), "no CSI": func() Input {
		in := askCeph()
		in.Cluster.Spec.CSI.Enabled = new(false)
		return in
	}()} {
		for _, o := range rendered(t, in) {
			if strings.HasPrefix(o.GetName(), "holdfast-ceph") {
				t.Errorf("%s: there is %s %s", name, o.GetKind(), o.GetName())
			}
		}
	}
	if data := must[core.ConfigMap](t, ask(nil), "ConfigMap", "holdfast-node").Data; data[cephConfigKey] != "" {
		t.Errorf("the nodes' ConfigMap has %v", data)
	}
}

func TestCeph_RightsAreBoundToTheAccountsOfThePools(t *testing.T) {
	in := askCeph()
	binding := must[rbac.ClusterRoleBinding](t, in, "ClusterRoleBinding", "holdfast-ceph")
	var accounts []string
	for _, s := range binding.Subjects {
		accounts = append(accounts, s.Namespace+"/"+s.Name)
	}
	if want := []string{testNamespace + "/holdfast-ceph-block", testNamespace + "/holdfast-ceph-files"}; !slices.Equal(accounts, want) {
		t.Errorf("they are %q", accounts)
	}
	role := must[rbac.Role](t, in, "Role", "holdfast-ceph")
	for _, rule := range role.Rules {
		for _, verb := range rule.Verbs {
			if verb != "create" && !slices.Equal(rule.ResourceNames, []string{
				"holdfast-node-block.ceph.holdfast.dev", "holdfast-ceph-block", "holdfast-node-files.ceph.holdfast.dev", "holdfast-ceph-files",
			}) {
				t.Errorf("they may %s %v named %v", verb, rule.Resources, rule.ResourceNames)
			}
		}
	}
	for _, rule := range slices.Concat(role.Rules, must[rbac.ClusterRole](t, in, "ClusterRole", "holdfast-ceph").Rules) {
		if slices.Contains(rule.Resources, "secrets") || slices.Contains(rule.Verbs, "delete") || slices.Contains(rule.Verbs, "*") || slices.Contains(rule.Resources, "*") {
			t.Errorf("they may %v %v", rule.Verbs, rule.Resources)
		}
	}
}

func TestCeph_PolicyKnowsWhereEachPoolIs(t *testing.T) {
	policy := must[admission.ValidatingAdmissionPolicy](t, askCeph(), "ValidatingAdmissionPolicy", "holdfast-ceph-account")
	if *policy.Spec.FailurePolicy != admission.Fail || !strings.Contains(policy.Spec.MatchConditions[0].Expression, "'system:serviceaccount:"+testNamespace+":holdfast-ceph-'") {
		t.Errorf("it is %+v", policy.Spec)
	}
	const monitors = "v2:10.0.0.1:3300,v1:10.0.0.1:6789"
	want := `{"block": ["RBD", "` + testFSID + `", "rbd", "", "holdfast-node", "` + monitors + `", "false"], "files": ["CephFS", "` + testFSID + `", "cephfs", "/volumes/holdfast", "holdfast-node", "` + monitors + `", "false"]}`
	if v := policy.Spec.Variables[0]; v.Name != "places" || v.Expression != want {
		t.Errorf("it knows %s: %s", v.Name, v.Expression)
	}
}

func TestCeph_ImageFollowsThatOfHoldfast(t *testing.T) {
	in := askCeph()
	in.Cluster.Spec.Images.Holdfast = "r/holdfast:2"
	image := func() string { return siteOf(t, in, "block").Spec.Template.Spec.Containers[0].Image }
	if got := image(); got != "r/ceph:2" {
		t.Errorf("it is %s", got)
	}
	in.Image = "r/holdfast:3"
	if got := image(); got != "r/ceph:3" {
		t.Errorf("during an upgrade it is %s", got)
	}
	in.Cluster.Spec.Images.Ceph = "mine/ceph:1"
	if got := image(); got != "mine/ceph:1" {
		t.Errorf("named is mine/ceph:1, and it is %s", got)
	}
}

func TestReadCarried_PoolsInCephClustersAreRead(t *testing.T) {
	objects := rendered(t, askCeph())
	find := func(kind string) *unstructured.Unstructured {
		i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind && o.GetName() == "holdfast-node" })
		return objects[i]
	}
	config, nodes := find("ConfigMap"), find("DaemonSet")
	got := ReadCarried(config, nodes)
	if got == nil || len(got.Pools) != 3 {
		t.Fatalf("it reads %+v", got)
	}
	if p := got.Pools[1]; p.Name != "block" || Place(&p) != "ceph:"+testFSID+"/pool/rbd/" {
		t.Errorf("it reads %+v at %s", p, Place(&p))
	}
	check.OK(t, unstructured.SetNestedField(config.Object, `{"pools":[]}`, "data", "ceph.json"))
	if got := ReadCarried(config, nodes); got != nil {
		t.Errorf("a change by hand is read as %+v", got)
	}
	unstructured.RemoveNestedField(config.Object, "data", "ceph.json")
	if got := ReadCarried(config, nodes); got != nil {
		t.Errorf("what was deleted by hand is read as %+v", got)
	}
}

func TestCheck_InvalidCephPoolIsRefused(t *testing.T) {
	with := func(change func(*v1beta1.PoolSpec)) func(*v1beta1.StorageClusterSpec) {
		p := blockPool()
		change(&p)
		return onePool(p)
	}
	ceph := func(change func(*v1beta1.CephSpec)) func(*v1beta1.StorageClusterSpec) {
		return with(func(p *v1beta1.PoolSpec) { change(p.Ceph) })
	}
	refuse(t, map[string]refusal{
		"a monitor by name":         {ceph(func(c *v1beta1.CephSpec) { c.Monitors = []string{"v2:mon.example:3300"} }), []string{"ceph.monitors[0]", "mon.example", "v2:10.0.0.1:3300"}},
		"a monitor without version": {ceph(func(c *v1beta1.CephSpec) { c.Monitors = []string{"10.0.0.1:6789"} }), []string{"ceph.monitors[0]"}},
		"secure over v1":            {ceph(func(c *v1beta1.CephSpec) { c.Secure, c.Monitors = true, []string{"v1:10.0.0.1:6789"} }), []string{"ceph.secure", "v2"}},
		"one user for both":         {ceph(func(c *v1beta1.CephSpec) { c.NodeUser = "holdfast" }), []string{"ceph.nodeUser", "name another user"}},
		"a user as of a node":       {ceph(func(c *v1beta1.CephSpec) { c.User, c.NodeSecretRef.Name = "holdfast-node.block.n1", "" }), []string{"ceph.user", "holdfast-node.block.n1", "begin"}},
		"one secret for both":       {ceph(func(c *v1beta1.CephSpec) { c.NodeSecretRef = c.SecretRef }), []string{"ceph.nodeSecretRef", "name another secret"}},
		"one place for two": {
			twoPools(blockPool(), func() v1beta1.PoolSpec { p := blockPool(); p.Name = "b"; return p }()),
			[]string{"spec.pools[1].ceph", "pools b and block", testFSID},
		},
		"two keys of one user": {
			twoPools(blockPool(), func() v1beta1.PoolSpec { p := filesPool(); p.Ceph.NodeSecretRef.Name = "other"; return p }()),
			[]string{"nodeSecretRef", "client.holdfast-node", "other"},
		},
		"the key of another pool": {twoPools(blockPool(), func() v1beta1.PoolSpec {
			p := filesPool()
			p.Ceph.NodeUser, p.Ceph.SecretRef.Name, p.Ceph.NodeSecretRef.Name = "n", "x", "ceph"
			return p
		}()), []string{"nodeSecretRef", "ceph", "no node may get that"}},
		"inline volumes": {func(s *v1beta1.StorageClusterSpec) {
			onePool(blockPool())(s)
			s.CSI.Ephemeral = &v1beta1.EphemeralSpec{Pools: []string{"block"}}
		}, []string{"spec.csi.ephemeral.pools[0]", "Ceph cluster"}},
	})
	apart := filesPool()
	apart.Name, apart.Ceph.Namespace = "apart", "other"
	in := askCeph()
	in.Cluster.Spec.Pools = append(in.Cluster.Spec.Pools, apart)
	if _, err := Objects(in); err != nil {
		t.Errorf("namespaces keep pools apart, and yet: %v", err)
	}
}

func TestCheck_KeysOfCephAreCheckedBeforeAnythingIsMade(t *testing.T) {
	key := func(fill byte) []byte {
		return []byte(base64.StdEncoding.EncodeToString(slices.Repeat([]byte{fill}, 28)) + "\n")
	}
	for name, test := range map[string]struct {
		keys  map[string][]byte
		parts []string // none where it is taken
	}{
		"both":                   {map[string][]byte{"ceph": key(1), "ceph-node": key(2)}, nil},
		"not known here":         {nil, nil},
		"no secret":              {map[string][]byte{"ceph-node": key(2)}, []string{"spec.pools[0].ceph.secretRef", "no secret storage/ceph", "kubectl -n storage create secret generic ceph", "client.holdfast"}},
		"no secret of the nodes": {map[string][]byte{"ceph": key(1)}, []string{"spec.pools[0].ceph.nodeSecretRef", "no secret storage/ceph-node", "client.holdfast-node"}},
		"no key":                 {map[string][]byte{"ceph": nil, "ceph-node": key(2)}, []string{"secretRef", "no key named key"}},
		"what is no key":         {map[string][]byte{"ceph": []byte("SECRET"), "ceph-node": key(2)}, []string{"secretRef", "no key of Ceph", "ceph auth get-key client.holdfast "}},
		"a short key":            {map[string][]byte{"ceph": []byte("QUJD"), "ceph-node": key(2)}, []string{"no key of Ceph"}},
		"a key for both":         {map[string][]byte{"ceph": key(1), "ceph-node": key(1)}, []string{"nodeSecretRef", "the same key"}},
	} {
		in := askCeph()
		in.CephKeys = test.keys
		_, err := Objects(in)
		if errors.Is(err, ErrSecret) != (len(test.parts) > 0) || err != nil && len(test.parts) == 0 {
			t.Errorf("%s: it says %v", name, err)
			continue
		}
		for _, part := range test.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in %v", name, part, err)
			}
		}
		if err != nil && (strings.Contains(err.Error(), "SECRET") || strings.Contains(err.Error(), "QUJD")) {
			t.Errorf("%s: a key is in %v", name, err)
		}
	}
}

func TestCeph_ClassesOfItsPoolsBindAtOnce(t *testing.T) {
	wait, now := storage.VolumeBindingWaitForFirstConsumer, storage.VolumeBindingImmediate
	for name, test := range map[string]struct {
		class  v1beta1.StorageClassSpec
		mode   storage.VolumeBindingMode
		fsType string
	}{
		"block":             {v1beta1.StorageClassSpec{Pool: "block"}, now, "ext4"},
		"xfs":               {v1beta1.StorageClassSpec{Pool: "block", FSType: v1beta1.XFS}, now, "xfs"},
		"files":             {v1beta1.StorageClassSpec{Pool: "files"}, now, ""},
		"on nodes":          {v1beta1.StorageClassSpec{Pool: "disk"}, wait, "ext4"},
		"of any node":       {v1beta1.StorageClassSpec{}, wait, "ext4"},
		"as it is asked":    {v1beta1.StorageClassSpec{Pool: "files", VolumeBindingMode: string(wait)}, wait, ""},
		"on an NFS server":  {v1beta1.StorageClassSpec{Pool: "files", Parameters: map[string]string{"shared": "true"}}, wait, ""},
		"at once on a node": {v1beta1.StorageClassSpec{Pool: "disk", VolumeBindingMode: string(now)}, now, "ext4"},
	} {
		in := askCeph()
		test.class.Name = "class"
		in.Cluster.Spec.StorageClasses = []v1beta1.StorageClassSpec{test.class}
		if c := classOf(t, in, "class"); *c.VolumeBindingMode != test.mode || c.Parameters["csi.storage.k8s.io/fstype"] != test.fsType {
			t.Errorf("%s: %s, file system %q", name, *c.VolumeBindingMode, c.Parameters["csi.storage.k8s.io/fstype"])
		}
	}
	in := ask(func(s *v1beta1.StorageClusterSpec) { s.Pools = []v1beta1.PoolSpec{filesPool(), blockPool()} })
	in.Cluster.Spec.StorageClasses = nil
	if c := classOf(t, in, "holdfast"); *c.VolumeBindingMode != now || c.Parameters["csi.storage.k8s.io/fstype"] != "" {
		t.Errorf("the default where all pools are in Ceph clusters: %s, %v", *c.VolumeBindingMode, c.Parameters)
	}
}

func TestCheck_ClassOfACephFSHasNoFileSystem(t *testing.T) {
	in := askCeph()
	in.Cluster.Spec.StorageClasses = []v1beta1.StorageClassSpec{{Name: "a", Pool: "files", FSType: v1beta1.XFS}}
	if _, err := Objects(in); err == nil || !strings.Contains(err.Error(), "spec.storageClasses[0].fsType") || !strings.Contains(err.Error(), "pool files") {
		t.Errorf("got %v", err)
	}
}

func TestCeph_ExampleIsWhole(t *testing.T) {
	content, err := os.ReadFile("../../deploy/examples/ceph.yaml")
	check.OK(t, err)
	var cluster v1beta1.StorageCluster
	claims, pods := map[string]core.PersistentVolumeClaim{}, []core.Pod{}
	for part := range strings.SplitSeq(string(content), "\n---\n") {
		var kind struct{ Kind string }
		check.OK(t, yaml.Unmarshal([]byte(part), &kind))
		var claim core.PersistentVolumeClaim
		var pod core.Pod
		switch kind.Kind {
		case "StorageCluster":
			err = yaml.UnmarshalStrict([]byte(part), &cluster)
		case "PersistentVolumeClaim":
			err = yaml.UnmarshalStrict([]byte(part), &claim)
			claims[claim.Name] = claim
		case "Pod":
			err = yaml.UnmarshalStrict([]byte(part), &pod)
			pods = append(pods, pod)
		default:
			t.Errorf("there is a %q", kind.Kind)
		}
		if err != nil {
			t.Fatalf("%s: %v", kind.Kind, err)
		}
	}
	in := askCeph()
	in.Cluster.Spec = cluster.Spec
	in.CephKeys = map[string][]byte{}
	for i, secret := range CephSecrets(&cluster) {
		in.CephKeys[secret] = []byte(base64.StdEncoding.EncodeToString(slices.Repeat([]byte{byte(i)}, 28)))
	}
	engines := map[v1beta1.Engine]bool{}
	for _, pool := range cluster.Spec.Pools {
		engines[pool.Engine] = true
	}
	if !engines[v1beta1.EngineRBD] || !engines[v1beta1.EngineCephFS] || len(claims) != 2 || len(pods) != 1 {
		t.Fatalf("it has the engines %v, %d claims and %d pods", engines, len(claims), len(pods))
	}
	for name, claim := range claims {
		class := classOf(t, in, *claim.Spec.StorageClassName)
		if *class.VolumeBindingMode != storage.VolumeBindingImmediate {
			t.Errorf("claim %s waits for a pod", name)
		}
		if many := class.Parameters["csi.storage.k8s.io/fstype"] == ""; many != slices.Contains(claim.Spec.AccessModes, core.ReadWriteMany) {
			t.Errorf("claim %s is for %v", name, claim.Spec.AccessModes)
		}
	}
	for _, v := range pods[0].Spec.Volumes {
		if _, is := claims[v.PersistentVolumeClaim.ClaimName]; !is {
			t.Errorf("there is no claim %s", v.PersistentVolumeClaim.ClaimName)
		}
	}
}

func TestLimits_AreThoseOfTheAccountsThatThereAre(t *testing.T) {
	off := false
	for name, test := range map[string]struct {
		in   Input
		ceph bool
	}{
		"no pool in Ceph": {ask(nil), false},
		"pools in Ceph":   {askCeph(), true},
		"without driver":  {ask(func(s *v1beta1.StorageClusterSpec) { s.Pools, s.CSI.Enabled = []v1beta1.PoolSpec{blockPool()}, &off }), false},
	} {
		names := Limits(&test.in.Cluster.Spec)
		if slices.Contains(names, "holdfast-ceph-account") != test.ceph || !slices.Contains(names, "holdfast-fencing") || !slices.Contains(names, "holdfast-applications") {
			t.Errorf("%s: they are %v", name, names)
		}
		if objects := LimitsOf(test.in); len(objects) != 2*len(names) {
			t.Errorf("%s: %d policies and bindings for %v", name, len(objects), names)
		}
	}
}
