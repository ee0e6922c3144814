package render

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

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
		"two of one name":         {twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv/1"}, v1beta1.PoolSpec{Name: "a", Path: "/srv/2"}), []string{"spec.pools[1].name", " a "}},
		"too many devices":        {onePool(v1beta1.PoolSpec{Name: "a", Devices: &v1beta1.DeviceSelector{Model: "x", Count: 17}}), []string{"spec.pools[0].devices.count", "17", "1 to 16"}},
		"two at one path":         {twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv"}, v1beta1.PoolSpec{Name: "b", Path: "/srv"}), []string{"spec.pools[1].path", "/srv", "pool b", "pool a"}},
		"one in the other":        {twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv"}, v1beta1.PoolSpec{Name: "b", Path: "/srv/b"}), []string{"spec.pools[1].path", "/srv/b"}},
		"the other in one":        {twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv/a"}, v1beta1.PoolSpec{Name: "b", Path: "/srv"}), []string{"spec.pools[1].path", "/srv/a"}},
		"at the place of another": {twoPools(v1beta1.PoolSpec{Name: "a"}, v1beta1.PoolSpec{Name: "b", Path: "/var/lib/holdfast/pools/a"}), []string{"spec.pools[1].path"}},
		"at the place of a disk":  {twoPools(v1beta1.PoolSpec{Name: "a", Devices: disk}, v1beta1.PoolSpec{Name: "b", Path: "/var/lib/holdfast/pools/a/b"}), []string{"spec.pools[1].path"}},
		"no name":                 {onePool(v1beta1.PoolSpec{}), []string{"spec.pools[0].name"}},
		"a name of a path":        {onePool(v1beta1.PoolSpec{Name: "../a"}), []string{"spec.pools[0].name", "../a"}},
		"a long name":             {onePool(v1beta1.PoolSpec{Name: long}), []string{"spec.pools[0].name", "63"}},
		"a path and devices":      {onePool(v1beta1.PoolSpec{Name: "a", Path: "/srv", Devices: disk}), []string{"spec.pools[0]", "/srv", "devices"}},
		"a relative path":         {at("srv"), []string{"spec.pools[0].path", "srv", "absolute"}},
		"the root":                {at("/"), []string{"spec.pools[0].path"}},
		"a path upwards":          {at("/srv/../etc"), []string{"spec.pools[0].path"}},
		"a path that ends with /": {at("/srv/"), []string{"spec.pools[0].path"}},
		"a long path":             {at("/" + long), []string{"spec.pools[0].path", "255"}},
		"devices of the system":   {at("/dev/shm"), []string{"spec.pools[0].path", "/dev/shm", "/dev "}},
		"the program's directory": {at("/usr"), []string{"spec.pools[0].path", "/usr"}},
		"in the kubelet's":        {at("/var/lib/kubelet/pods"), []string{"spec.pools[0].path", "/var/lib/kubelet "}},
		"around the kubelet's":    {at("/var/lib"), []string{"spec.pools[0].path", "/var/lib/kubelet is in it"}},
		"all of Holdfast":         {at("/var/lib/holdfast"), []string{"spec.pools[0].path", "/var/lib/holdfast"}},
		"an unknown engine":       {onePool(v1beta1.PoolSpec{Name: "a", Engine: "zfs"}), []string{"spec.pools[0].engine", "zfs", "Image or Directory"}},
		"overcommit of nothing":   {onePool(v1beta1.PoolSpec{Name: "a", Overcommit: "0"}), []string{"spec.pools[0].overcommit", "1.5"}},
		"overcommit of no number": {onePool(v1beta1.PoolSpec{Name: "a", Overcommit: "NaN"}), []string{"spec.pools[0].overcommit", "NaN"}},
		"all is reserved":         {onePool(v1beta1.PoolSpec{Name: "a", Reserved: "100%"}), []string{"spec.pools[0].reserved", "100%", "10Gi"}},
		"a reserve below nothing": {onePool(v1beta1.PoolSpec{Name: "a", Reserved: "-1Gi"}), []string{"spec.pools[0].reserved", "-1Gi"}},
		"a retention in the past": {onePool(v1beta1.PoolSpec{Name: "a", TrashRetention: new(v1beta1.Duration("-1h"))}), []string{"spec.pools[0].trashRetention", "-1h"}},
		"a term without sense":    {onePool(v1beta1.PoolSpec{Name: "a", NodeSelectorTerms: []core.NodeSelectorTerm{term("a Is b")}}), []string{"spec.pools[0].nodeSelectorTerms[0]", "Is"}},
		"a term for an odd field": {onePool(v1beta1.PoolSpec{Name: "a", NodeSelectorTerms: []core.NodeSelectorTerm{{MatchFields: term("metadata.uid In b").MatchExpressions}}}), []string{"spec.pools[0].nodeSelectorTerms[0]"}},
		"a term of all the nodes": {func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = []core.NodeSelectorTerm{term("a In")} }, []string{"spec.nodeSelectorTerms[0]"}},
		"a term of a long key": {func(s *v1beta1.StorageClusterSpec) {
			s.NodeSelectorTerms = []core.NodeSelectorTerm{term(long + " In a")}
		}, []string{"spec.nodeSelectorTerms[0]"}},
		"a kubelet in Holdfast":    {func(s *v1beta1.StorageClusterSpec) { s.CSI.KubeletDir = "/var/lib/holdfast/kubelet" }, []string{"spec.csi.kubeletDir", "/var/lib/holdfast"}},
		"a relative kubelet":       {func(s *v1beta1.StorageClusterSpec) { s.CSI.KubeletDir = "kubelet" }, []string{"spec.csi.kubeletDir", "kubelet"}},
		"a pool in a kubelet's":    {func(s *v1beta1.StorageClusterSpec) { s.CSI.KubeletDir = "/srv" }, []string{"spec.pools[0].path", "/srv/fast", "/srv "}},
		"a strategy of the future": {func(s *v1beta1.StorageClusterSpec) { s.Controller.Kind = "Rocket" }, []string{"spec.controller.kind", "Rocket", "Deployment or StatefulSet"}},
		"one that is in its place": {func(s *v1beta1.StorageClusterSpec) {
			s.Controller.Kind, s.Controller.Replicas = v1beta1.AsStatefulSet, new(int32(1))
		}, []string{"spec.controller.replicas", "1", "StatefulSet", "at least 2"}},
		"no replicas":        {func(s *v1beta1.StorageClusterSpec) { s.Controller.Replicas = new(int32(0)) }, []string{"spec.controller.replicas", "0", "1 to 9"}},
		"too many replicas":  {func(s *v1beta1.StorageClusterSpec) { s.Controller.Replicas = new(int32(10)) }, []string{"spec.controller.replicas", "10"}},
		"an odd fencing":     {func(s *v1beta1.StorageClusterSpec) { s.Fencing.Pods = "All" }, []string{"spec.fencing.pods", "All", "Labelled or WithCephVolumes or None"}},
		"a fencing too soon": {func(s *v1beta1.StorageClusterSpec) { s.Fencing.After = new(v1beta1.Duration("59s")) }, []string{"spec.fencing.after", "59s", "at least 1m"}},
		"no time of fencing": {func(s *v1beta1.StorageClusterSpec) { s.Fencing.After = new(v1beta1.Duration("soon")) }, []string{"spec.fencing.after", "soon"}},
		"an odd deletion":    {func(s *v1beta1.StorageClusterSpec) { s.DeletionPolicy = "Burn" }, []string{"spec.deletionPolicy", "Burn", "Refuse or Orphan"}},
	})
}

func TestCheck_InvalidClassIsRefused(t *testing.T) {
	with := func(parameters map[string]string) func(*v1beta1.StorageClusterSpec) {
		return oneClass(v1beta1.StorageClassSpec{Name: "a", Parameters: parameters})
	}
	refuse(t, map[string]refusal{
		"an unknown pool": {oneClass(v1beta1.StorageClassSpec{Name: "a", Pool: "none"}), []string{"spec.storageClasses[0].pool", "class a", "none", "disk, fast"}},
		"two of one name": {func(s *v1beta1.StorageClusterSpec) {
			s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "a"}, {Name: "a"}}
		}, []string{"spec.storageClasses[1].name", " a "}},
		"two defaults": {func(s *v1beta1.StorageClusterSpec) {
			s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "a", Default: true}, {Name: "b"}, {Name: "c", Default: true}}
		}, []string{"spec.storageClasses[2].default", "class c", "class a"}},
		"no name":            {oneClass(v1beta1.StorageClassSpec{}), []string{"spec.storageClasses[0].name"}},
		"a long name":        {oneClass(v1beta1.StorageClassSpec{Name: long}), []string{"spec.storageClasses[0].name", "253"}},
		"a name in capitals": {oneClass(v1beta1.StorageClassSpec{Name: "Fast"}), []string{"spec.storageClasses[0].name", "Fast"}},
		"an odd policy":      {oneClass(v1beta1.StorageClassSpec{Name: "a", ReclaimPolicy: core.PersistentVolumeReclaimRecycle}), []string{"spec.storageClasses[0].reclaimPolicy", "Recycle", "Delete or Retain"}},
		"an odd mode":        {oneClass(v1beta1.StorageClassSpec{Name: "a", VolumeBindingMode: "Later"}), []string{"spec.storageClasses[0].volumeBindingMode", "Later", "Immediate"}},
		"an odd file system": {oneClass(v1beta1.StorageClassSpec{Name: "a", FSType: "ntfs"}), []string{"spec.storageClasses[0].fsType", "ntfs", "btrfs"}},
		"a type of directories": {func(s *v1beta1.StorageClusterSpec) {
			s.Pools = []v1beta1.PoolSpec{{Name: "tree", Engine: v1beta1.EngineDirectory, Path: "/var/lib/holdfast/tree"}}
			s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "a", Pool: "tree", FSType: v1beta1.Ext4}}
		}, []string{"spec.storageClasses[0].fsType", "engine Directory"}},
		"an odd loss":          {oneClass(v1beta1.StorageClassSpec{Name: "a", OnNodeLoss: "Cry"}), []string{"spec.storageClasses[0].onNodeLoss", "Cry", "Retain"}},
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

func TestCheck_InvalidPodSettingIsRefused(t *testing.T) {
	tolerate := func(one core.Toleration) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { s.Tolerations = []core.Toleration{{Key: "fine"}, one} }
	}
	use := func(r core.ResourceRequirements) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { s.Resources = r }
	}
	cpu := func(quantity string) core.ResourceList { return core.ResourceList{"cpu": resource.MustParse(quantity)} }
	refuse(t, map[string]refusal{
		"no key":                 {tolerate(core.Toleration{}), []string{"spec.tolerations[1].operator", "Exists"}},
		"an odd key":             {tolerate(core.Toleration{Key: "a b"}), []string{"spec.tolerations[1].key", "a b"}},
		"a long key":             {tolerate(core.Toleration{Key: long}), []string{"spec.tolerations[1].key"}},
		"an odd operator":        {tolerate(core.Toleration{Key: "a", Operator: "Is"}), []string{"spec.tolerations[1].operator", "Is", "Equal or Exists"}},
		"an odd effect":          {tolerate(core.Toleration{Key: "a", Effect: "Boom"}), []string{"spec.tolerations[1].effect", "Boom", "NoExecute"}},
		"a value with Exists":    {tolerate(core.Toleration{Key: "a", Operator: core.TolerationOpExists, Value: "b"}), []string{"spec.tolerations[1].value", "Exists"}},
		"an odd value":           {tolerate(core.Toleration{Key: "a", Value: "b c"}), []string{"spec.tolerations[1].value", "b c"}},
		"seconds of no eviction": {tolerate(core.Toleration{Key: "a", TolerationSeconds: new(int64(3))}), []string{"spec.tolerations[1].tolerationSeconds", "NoExecute"}},
		"more than the limit":    {use(core.ResourceRequirements{Requests: cpu("2"), Limits: cpu("1")}), []string{"spec.resources.requests.cpu", "2", "1"}},
		"below nothing":          {use(core.ResourceRequirements{Limits: cpu("-1")}), []string{"spec.resources.limits.cpu", "-1"}},
		"an odd resource":        {use(core.ResourceRequirements{Requests: core.ResourceList{"c p u": {}}}), []string{"spec.resources.requests", "c p u"}},
		"a device":               {use(core.ResourceRequirements{Claims: []core.ResourceClaim{{Name: "gpu"}}}), []string{"spec.resources.claims", "gpu"}},
		"a priority":             {func(s *v1beta1.StorageClusterSpec) { s.PriorityClassName = "High!" }, []string{"spec.priorityClassName", "High!"}},
		"an image of two words":  {func(s *v1beta1.StorageClusterSpec) { s.Images.CSIResizer = "r/a b" }, []string{"spec.images.csiResizer", "r/a b"}},
		"an image of a line":     {func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "\n" }, []string{"spec.images.holdfast"}},
		"an image of colons":     {func(s *v1beta1.StorageClusterSpec) { s.Images.NFS = "::::" }, []string{"spec.images.nfs", "::::"}},
		"an image of Ceph pools": {func(s *v1beta1.StorageClusterSpec) { s.Images.Ceph = "a b" }, []string{"spec.images.ceph", "a b"}},
		"a long image":           {func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = v1beta1.Image(long) }, []string{"spec.images.holdfast", "512"}},
		"a pull secret":          {func(s *v1beta1.StorageClusterSpec) { s.ImagePullSecrets = []core.LocalObjectReference{{Name: "a"}, {}} }, []string{"spec.imagePullSecrets[1].name"}},
	})
}

func TestCheck_InvalidServiceOrIngressIsRefused(t *testing.T) {
	service := func(spec v1beta1.ServiceSpec) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { s.Service = spec }
	}
	ingress := func(spec v1beta1.IngressSpec) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { spec.Enabled = true; s.Ingress = spec }
	}
	refuse(t, map[string]refusal{
		"a name of a Service":     {service(v1beta1.ServiceSpec{Name: "1a"}), []string{"spec.service.name", "1a"}},
		"a long name":             {service(v1beta1.ServiceSpec{Name: long}), []string{"spec.service.name"}},
		"an odd type":             {service(v1beta1.ServiceSpec{Type: core.ServiceTypeExternalName}), []string{"spec.service.type", "ExternalName", "LoadBalancer"}},
		"a port too high":         {service(v1beta1.ServiceSpec{Port: 70000}), []string{"spec.service.port", "70000", "65535"}},
		"a port below nothing":    {service(v1beta1.ServiceSpec{Port: -1}), []string{"spec.service.port", "-1"}},
		"a port of root":          {service(v1beta1.ServiceSpec{TargetPort: 443}), []string{"spec.service.targetPort", "443", "1024"}},
		"the port of the metrics": {service(v1beta1.ServiceSpec{TargetPort: 9090}), []string{"spec.service.targetPort", "9090", "metrics"}},
		"an odd annotation":       {service(v1beta1.ServiceSpec{Annotations: map[string]string{"a b": ""}}), []string{"spec.service.annotations", "a b"}},
		"no host":                 {ingress(v1beta1.IngressSpec{}), []string{"spec.ingress.host"}},
		"an odd host":             {ingress(v1beta1.IngressSpec{Host: "https://a"}), []string{"spec.ingress.host", "https://a"}},
		"an odd wildcard":         {ingress(v1beta1.IngressSpec{Host: "*.*.a"}), []string{"spec.ingress.host", "*.*.a"}},
		"an odd class":            {ingress(v1beta1.IngressSpec{Host: "a", IngressClassName: "A"}), []string{"spec.ingress.ingressClassName", "A"}},
		"an odd annotation there": {ingress(v1beta1.IngressSpec{Host: "a", Annotations: map[string]string{long: ""}}), []string{"spec.ingress.annotations"}},
		"a secret without a name": {func(s *v1beta1.StorageClusterSpec) { s.SecretRef.Name = "" }, []string{"spec.secretRef.name"}},
		"a secret out of bounds":  {func(s *v1beta1.StorageClusterSpec) { s.SecretRef.Namespace = "../x" }, []string{"spec.secretRef.namespace", "../x"}},
	})
}

func TestCheck_NameThatCannotBeALabelIsRefused(t *testing.T) {
	for _, name := range []string{"", long, "a/b"} {
		in := ask(nil)
		in.Cluster.Name = name
		if _, err := Objects(in); err == nil || !strings.Contains(err.Error(), "metadata.name") {
			t.Errorf("%.20q: %v", name, err)
		}
	}
}

func TestCheck_AllowedValuesAreAccepted(t *testing.T) {
	for name, write := range map[string]func(*v1beta1.StorageClusterSpec){
		"pools beside each other": twoPools(v1beta1.PoolSpec{Name: "a", Path: "/srv/a", Reserved: "0", Overcommit: "100"}, v1beta1.PoolSpec{Name: "b", Path: "/srv/ab", Reserved: "99.9%"}),
		"an image by its digest":  func(s *v1beta1.StorageClusterSpec) { s.Images.Holdfast = "[::1]:5000/a/b:v1@sha256:0a" },
		"a wildcard":              func(s *v1beta1.StorageClusterSpec) { s.Ingress.Host = "*.example" },
		"a toleration of all": func(s *v1beta1.StorageClusterSpec) {
			s.Tolerations = []core.Toleration{{Operator: core.TolerationOpExists}}
		},
		"an unused hostname": func(s *v1beta1.StorageClusterSpec) { s.Ingress = v1beta1.IngressSpec{Host: "?"} },
		"secrets of another": oneClass(v1beta1.StorageClassSpec{Name: "a", Parameters: map[string]string{"csi.storage.k8s.io/node-stage-secret-name": "x"}}),
		"annotations in capitals": func(s *v1beta1.StorageClusterSpec) {
			s.Service.Annotations = map[string]string{"Example.com/Some_Key": "Any value"}
		},
	} {
		in := everything()
		write(&in.Cluster.Spec)
		if _, err := Objects(in); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCheck_InvalidSettingsOfTheControllerAreRefused(t *testing.T) {
	of := func(write func(*v1beta1.ControllerSpec)) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { write(&s.Controller) }
	}
	args := func(arg string) func(*v1beta1.StorageClusterSpec) {
		return of(func(c *v1beta1.ControllerSpec) { c.ExtraArgs = []string{"--log-format=json", arg} })
	}
	refuse(t, map[string]refusal{
		"a flag with a field":   {args("--api-address=:1"), []string{"spec.controller.extraArgs[1]", "--api-address", "spec.service.targetPort"}},
		"with one dash":         {args("-namespace=x"), []string{"--namespace", "that of the pod"}},
		"a mistyped flag":       {args("--stop-timout=1m"), []string{"spec.controller.extraArgs[1]", "no flag --stop-timout", "--log-level, --stop-timeout"}},
		"no flag":               {args("standalone"), []string{"spec.controller.extraArgs[1]", `"standalone"`, "--name=value"}},
		"the label of the pods": {of(func(c *v1beta1.ControllerSpec) { c.PodLabels = map[string]string{v1beta1.NameLabel: "x"} }), []string{"spec.controller.podLabels", "app.kubernetes.io/name=x", "leave it out"}},
		"a label with a space":  {of(func(c *v1beta1.ControllerSpec) { c.PodLabels = map[string]string{"a": "b c"} }), []string{"spec.controller.podLabels", `"b c"`, "label a"}},
		"a label of node pods":  {func(s *v1beta1.StorageClusterSpec) { s.Node.PodLabels = map[string]string{v1beta1.ComponentLabel: "x"} }, []string{"spec.node.podLabels", "app.kubernetes.io/component=x", "leave it out"}},
		"a label of no monitor": {func(s *v1beta1.StorageClusterSpec) { s.Monitoring.Labels = map[string]string{"a": "b c"} }, []string{"spec.monitoring.labels", `"b c"`}},
		"an odd node":           {of(func(c *v1beta1.ControllerSpec) { c.NodeSelector = map[string]string{"a b": "c"} }), []string{"spec.controller.nodeSelector", `"a b"`}},
		"an odd annotation":     {of(func(c *v1beta1.ControllerSpec) { c.PodAnnotations = map[string]string{"a b": "c"} }), []string{"spec.controller.podAnnotations", `"a b"`}},
		"no term of nodes": {of(func(c *v1beta1.ControllerSpec) {
			c.Affinity = &core.Affinity{NodeAffinity: &core.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &core.NodeSelector{}}}
		}), []string{"spec.controller.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms", "must have a term"}},
		"an odd priority":         {of(func(c *v1beta1.ControllerSpec) { c.PriorityClassName = "A" }), []string{"spec.controller.priorityClassName", `"A"`}},
		"a toleration of nothing": {of(func(c *v1beta1.ControllerSpec) { c.Tolerations = []core.Toleration{{}} }), []string{"spec.controller.tolerations[0].operator"}},
		"too little memory": {of(func(c *v1beta1.ControllerSpec) {
			c.Resources.Limits = core.ResourceList{core.ResourceMemory: resource.MustParse("-1")}
		}), []string{"spec.controller.resources.limits.memory", "-1"}},
		"a pull policy":      {func(s *v1beta1.StorageClusterSpec) { s.ImagePullPolicy = "Sometimes" }, []string{"spec.imagePullPolicy", `"Sometimes"`, "IfNotPresent"}},
		"a URL":              {func(s *v1beta1.StorageClusterSpec) { s.ImageRegistry = "https://mirror.example" }, []string{"spec.imageRegistry", "https://mirror.example", "without https://"}},
		"a slash at its end": {func(s *v1beta1.StorageClusterSpec) { s.ImageRegistry = "mirror.example/" }, []string{"spec.imageRegistry", "mirror.example/"}},
	})
}
