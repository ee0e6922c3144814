package render

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
)

// refusal is a spec that cannot be, and what the error must say.
type refusal struct {
	write func(*v1beta1.StorageClusterSpec)
	parts []string
}

func refuse(t *testing.T, tests map[string]refusal) {
	t.Helper()
	for name, test := range tests {
		in := everything()
		test.write(&in.Cluster.Spec)
		objects, err := Objects(in)
		if err == nil || objects != nil {
			t.Errorf("%s: it was taken, or half of it: %v", name, err)
			continue
		}
		for _, part := range test.parts {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q is not in: %v", name, part, err)
			}
		}
		if len(err.Error()) > 1000 {
			t.Errorf("%s: an error of %d bytes is too long to read", name, len(err.Error()))
		}
	}
}

func onePool(pool v1beta1.PoolSpec) func(*v1beta1.StorageClusterSpec) {
	return func(s *v1beta1.StorageClusterSpec) { s.Pools, s.StorageClasses = []v1beta1.PoolSpec{pool}, nil }
}

func twoPools(a, b v1beta1.PoolSpec) func(*v1beta1.StorageClusterSpec) {
	return func(s *v1beta1.StorageClusterSpec) { s.Pools, s.StorageClasses = []v1beta1.PoolSpec{a, b}, nil }
}

func oneClass(class v1beta1.StorageClassSpec) func(*v1beta1.StorageClusterSpec) {
	return func(s *v1beta1.StorageClusterSpec) { s.StorageClasses = []v1beta1.StorageClassSpec{class} }
}

var long = strings.Repeat("x", 5000)

func TestCheck_InvalidPoolIsRefused(t *testing.T) {
	disk := &v1beta1.DeviceSelector{Model: "x"}
	at := func(path string) func(*v1beta1.StorageClusterSpec) {
		return onePool(v1beta1.PoolSpec{Name: "a", Path: path})
	}
	refuse(t, map[string]refusal{
		"two at one path":         {twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv"}, v1beta1.PoolSpec{Name: "b", Path: "/srv"}), []string{"spec.pools[1].path", "/srv", "pool b", "pool a"}},
		"one in the other":        {twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv"}, v1beta1.PoolSpec{Name: "b", Path: "/srv/b"}), []string{"spec.pools[1].path", "/srv/b"}},
		"the other in one":        {twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv/a"}, v1beta1.PoolSpec{Name: "b", Path: "/srv"}), []string{"spec.pools[1].path", "/srv/a"}},
		"at the place of another": {twoPools(v1beta1.PoolSpec{Name: "a"}, v1beta1.PoolSpec{Name: "b", Path: "/var/lib/holdfast/pools/a"}), []string{"spec.pools[1].path"}},
		"at the place of a disk":  {twoPools(v1beta1.PoolSpec{Name: "a", Devices: disk}, v1beta1.PoolSpec{Name: "b", Path: "/var/lib/holdfast/pools/a/b"}), []string{"spec.pools[1].path"}},
		"devices of the system":   {at("/dev/shm"), []string{"spec.pools[0].path", "/dev/shm", "/dev "}},
		"the program's directory": {at("/usr"), []string{"spec.pools[0].path", "/usr"}},
		"in the kubelet's":        {at("/var/lib/kubelet/pods"), []string{"spec.pools[0].path", "/var/lib/kubelet "}},
		"around the kubelet's":    {at("/var/lib"), []string{"spec.pools[0].path", "/var/lib/kubelet is in it"}},
		"all of Holdfast":         {at("/var/lib/holdfast"), []string{"spec.pools[0].path", "/var/lib/holdfast"}},
		"overcommit of no number": {onePool(v1beta1.PoolSpec{Name: "a", Overcommit: "NaN"}), []string{"spec.pools[0].overcommit", "NaN", "1.5"}},
		"all is reserved":         {onePool(v1beta1.PoolSpec{Name: "a", Reserved: "100%"}), []string{"spec.pools[0].reserved", "100%", "10Gi"}},
		"a retention in the past": {onePool(v1beta1.PoolSpec{Name: "a", TrashRetention: new(v1beta1.Duration("-1h"))}), []string{"spec.pools[0].trashRetention", "-1h"}},
		"a term without sense":    {onePool(v1beta1.PoolSpec{Name: "a", NodeSelectorTerms: []core.NodeSelectorTerm{term("a Is b")}}), []string{"spec.pools[0].nodeSelectorTerms[0]", "Is"}},
		"a term for an odd field": {onePool(v1beta1.PoolSpec{Name: "a", NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: term("metadata.uid In b").MatchExpressions}}}), []string{"spec.pools[0].nodeSelectorTerms[0]"}},
		"a term of all the nodes": {func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = []core.NodeSelectorTerm{term("a In")} }, []string{"spec.nodeSelectorTerms[0]"}},
		"a term of a long key": {func(s *v1beta1.StorageClusterSpec) {
			s.NodeSelectorTerms = []core.NodeSelectorTerm{term(long + " In a")}
		}, []string{"spec.nodeSelectorTerms[0]"}},
		"a kubelet in Holdfast": {func(s *v1beta1.StorageClusterSpec) { s.CSI.KubeletDir = "/var/lib/holdfast/kubelet" }, []string{"spec.csi.kubeletDir", "/var/lib/holdfast"}},
		"a pool in a kubelet's": {func(s *v1beta1.StorageClusterSpec) { s.CSI.KubeletDir = "/srv" }, []string{"spec.pools[0].path", "/srv/fast", "/srv "}},
		"a fencing too soon":    {func(s *v1beta1.StorageClusterSpec) { s.Fencing.After = new(v1beta1.Duration("59s")) }, []string{"spec.fencing.after", "59s", "at least 1m"}},
		"no time of fencing":    {func(s *v1beta1.StorageClusterSpec) { s.Fencing.After = new(v1beta1.Duration("soon")) }, []string{"spec.fencing.after", "soon"}},
	})
}

func TestCheck_InvalidClassIsRefused(t *testing.T) {
	with := func(parameters map[string]string) func(*v1beta1.StorageClusterSpec) {
		return oneClass(v1beta1.StorageClassSpec{Name: "a", Parameters: parameters})
	}
	refuse(t, map[string]refusal{
		"an unknown pool": {oneClass(v1beta1.StorageClassSpec{Name: "a", Pool: "none"}), []string{"spec.storageClasses[0].pool", "class a", "none", "disk, fast"}},
		"a type of directories": {func(s *v1beta1.StorageClusterSpec) {
			s.Pools = []v1beta1.PoolSpec{{Name: "tree", Engine: v1beta1.EngineDirectory, Path: "/var/lib/holdfast/tree"}}
			s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "a", Pool: "tree", FSType: v1beta1.Ext4}}
		}, []string{"spec.storageClasses[0].fsType", "engine Directory"}},
		"a pool in two places": {with(map[string]string{"pool": "fast"}), []string{"spec.storageClasses[0].parameters", "spec.storageClasses[0].pool"}},
		"a loss in two places": {with(map[string]string{"onNodeLoss": "Delete"}), []string{"spec.storageClasses[0].onNodeLoss"}},
		"a type in two places": {with(map[string]string{"csi.storage.k8s.io/fstype": "xfs"}), []string{"spec.storageClasses[0].fsType"}},
		"an unknown parameter": {with(map[string]string{"speed": "x"}), []string{"spec.storageClasses[0].parameters", "class a", `"speed"`, "mkfsOptions, nfsServer"}},
		"a loss of a server": {oneClass(v1beta1.StorageClassSpec{
			Name: "a", OnNodeLoss: v1beta1.DeleteOnNodeLoss, Parameters: map[string]string{"shared": "true"},
		}), []string{"class a", "onNodeLoss", `shared: "true"`}},
		"a secret in two places":  {with(map[string]string{"csi.storage.k8s.io/node-publish-secret-name": "s"}), []string{"spec.csi.credentials.nodePublish"}},
		"its namespace elsewhere": {with(map[string]string{"csi.storage.k8s.io/provisioner-secret-namespace": "s"}), []string{"spec.csi.credentials.provision"}},
	})
}

func TestCheck_AllowedValuesAreAccepted(t *testing.T) {
	for name, write := range map[string]func(*v1beta1.StorageClusterSpec){
		"pools beside each other": twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv/a", Reserved: "0", Overcommit: "100"}, v1beta1.PoolSpec{Name: "b", Path: "/srv/ab", Reserved: "99.9%"}),
		"secrets of another":      oneClass(v1beta1.StorageClassSpec{Name: "a", Parameters: map[string]string{"csi.storage.k8s.io/node-stage-secret-name": "x"}}),
	} {
		in := everything()
		write(&in.Cluster.Spec)
		if _, err := Objects(in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheck_PodThatWouldNotRunOrNotHaveItsDeviceIsRefused(t *testing.T) {
	gpu := core.ResourceRequirements{Claims: []core.ResourceClaim{{Name: "gpu"}}}
	refuse(t, map[string]refusal{
		"a pull secret":              {func(s *v1beta1.StorageClusterSpec) { s.ImagePullSecrets = []core.LocalObjectReference{{Name: "a"}, {}} }, []string{"spec.imagePullSecrets[1].name"}},
		"a device":                   {func(s *v1beta1.StorageClusterSpec) { s.Resources = gpu }, []string{"spec.resources.claims", "gpu"}},
		"a device of a node":         {func(s *v1beta1.StorageClusterSpec) { s.Node.Resources = gpu }, []string{"spec.node.resources.claims", "gpu"}},
		"a device of the controller": {func(s *v1beta1.StorageClusterSpec) { s.Controller.Resources = gpu }, []string{"spec.controller.resources.claims", "gpu"}},
	})
}

// An error that changes is written into the status at each pass.
func TestCheck_SpecWithSeveralFaultsHasAlwaysTheSameError(t *testing.T) {
	gpu := core.ResourceRequirements{Claims: []core.ResourceClaim{{Name: "gpu"}}}
	in := everything()
	in.Cluster.Spec.Resources, in.Cluster.Spec.Node.Resources, in.Cluster.Spec.Controller.Resources = gpu, gpu, gpu
	for range 50 {
		if _, err := Objects(in); err == nil || !strings.Contains(err.Error(), "spec.resources.claims") {
			t.Fatalf("it is refused with %v", err)
		}
	}
}

func TestCheck_ArgumentThatTheControllerDependsOnIsRefused(t *testing.T) {
	args := func(arg string) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { s.Controller.ExtraArgs = []string{"--log-format=json", arg} }
	}
	refuse(t, map[string]refusal{
		"a flag with a field": {args("--api-address=:1"), []string{"spec.controller.extraArgs[1]", "--api-address", "spec.service.targetPort"}},
		"with one dash":       {args("-namespace=x"), []string{"--namespace", "that of the pod"}},
		"a mistyped flag":     {args("--stop-timout=1m"), []string{"spec.controller.extraArgs[1]", "no flag --stop-timout", "--log-level, --stop-timeout"}},
		"no flag":             {args("standalone"), []string{"spec.controller.extraArgs[1]", `"standalone"`, "--name=value"}},
	})
}
