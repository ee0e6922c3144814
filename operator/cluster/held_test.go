package cluster

import (
	"slices"
	"strings"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/kube"
	"github.com/holdfast-storage/holdfast/operator/held"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// twoPools are on every node, one of them on devices.
func twoPools(s *v1beta1.StorageClusterSpec) {
	s.Pools = []v1beta1.PoolSpec{{Name: "files", Path: "/srv/files", Engine: v1beta1.EngineDirectory}, {Name: "disks", Devices: &v1beta1.DeviceSelector{Paths: []string{"/dev/none"}, Count: 2}}}
	s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "hb-one"}}
}

// volumeIn makes a volume that is in a pool of a node.
func (r *rig) volumeIn(name, node, pool string, phase v1beta1.Phase) {
	r.Helper()
	v := &v1beta1.Volume{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1beta1.AgentFinalizer}}, Spec: v1beta1.VolumeSpec{Name: name, Node: node, Pool: pool}}
	v = check.Got(r.ours.HoldfastV1beta1().Volumes().Create(r.Context(), v, metav1.CreateOptions{}))(r)
	v.Status.Pool, v.Status.Phase = pool, phase
	check.Got(r.ours.HoldfastV1beta1().Volumes().UpdateStatus(r.Context(), v, metav1.UpdateOptions{}))(r)
}

// holding is a cluster with two pools, of which each holds a volume of node1.
func (r *rig) holding() {
	r.Helper()
	r.create("holdfast", twoPools)
	r.reconciled("holdfast")
	r.volumeIn("v1", "node1", "files", v1beta1.PhaseReady)
	r.volumeIn("v2", "node1", "disks", v1beta1.PhaseReady)
	wait.Until(r, "the pools in the status", func() bool { return len(r.cluster("holdfast").Status.Pools) == 2 })
}

func terms(key string, operator core.NodeSelectorOperator, values ...string) []core.NodeSelectorTerm {
	return []core.NodeSelectorTerm{{MatchExpressions: []core.NodeSelectorRequirement{{Key: key, Operator: operator, Values: values}}}}
}

func TestHeldPools_TheAPIServerRefusesWhatTheOperatorWouldNotCarryOut(t *testing.T) {
	r := newRig(t).start()
	r.holding()
	r.volumeIn("v3", "node1", "disks.2", v1beta1.PhaseReady)
	wait.Until(r, "the second device in the status", func() bool { return r.cluster("holdfast").Status.Pools[0].Devices.Count == 2 })
	a := r.asker()
	hides := func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Path = "/srv/other" }
	wait.Until(r, "the rules being held", func() bool {
		return a.try(hides) != nil && a.try(func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = terms("x", core.NodeSelectorOpExists) }) != nil
	})
	patch := []byte(`{"metadata":{"labels":{"number":"7"}}}`)
	check.Got(r.theirs.CoreV1().Nodes().Patch(t.Context(), "node1", types.MergePatchType, patch, metav1.PatchOptions{}))(t)
	all := check.Got(r.theirs.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t)
	var nodes []*core.Node
	for i := range all.Items {
		nodes = append(nodes, &all.Items[i])
	}
	selector := func(terms []core.NodeSelectorTerm) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { s.NodeSelectorTerms = terms }
	}
	ofPool := func(terms []core.NodeSelectorTerm) func(*v1beta1.StorageClusterSpec) {
		return func(s *v1beta1.StorageClusterSpec) { s.Pools[1].NodeSelectorTerms = terms }
	}
	named := func(operator core.NodeSelectorOperator) []core.NodeSelectorTerm {
		return []core.NodeSelectorTerm{{MatchFields: []core.NodeSelectorRequirement{{Key: "metadata.name", Operator: operator, Values: []string{"node1"}}}}}
	}
	for what, test := range map[string]struct {
		change func(*v1beta1.StorageClusterSpec)
		says   []string // nothing where it is to be taken
	}{
		"nothing":                  {func(s *v1beta1.StorageClusterSpec) { s.Debug = true }, nil},
		"a pool more":              {func(s *v1beta1.StorageClusterSpec) { s.Pools = append(s.Pools, v1beta1.PoolSpec{Name: "more"}) }, nil},
		"what a pool keeps free":   {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Reserved = "7%" }, nil},
		"another path":             {hides, []string{"pool files holds 1 volumes and 0 snapshots on node1, in /srv/files", "allow-hiding"}},
		"another engine":           {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Engine = v1beta1.EngineImage }, []string{"pool files", "engine Directory"}},
		"no engine":                {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Engine = "" }, []string{"pool files"}},
		"another name":             {func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Name = "other" }, []string{"pool files"}},
		"a pool less":              {func(s *v1beta1.StorageClusterSpec) { s.Pools = s.Pools[:1] }, []string{"pool disks"}},
		"no pools":                 {func(s *v1beta1.StorageClusterSpec) { s.Pools = nil }, []string{"pool disks", "pool files"}},
		"a directory for devices":  {func(s *v1beta1.StorageClusterSpec) { s.Pools[1].Devices = nil }, []string{"pool disks"}},
		"other devices":            {func(s *v1beta1.StorageClusterSpec) { s.Pools[1].Devices.Paths = []string{"/dev/sdx"} }, []string{"pool disks"}},
		"more devices":             {func(s *v1beta1.StorageClusterSpec) { s.Pools[1].Devices.Paths = []string{"/dev/sdx", "/dev/none"} }, nil},
		"one device less":          {func(s *v1beta1.StorageClusterSpec) { s.Pools[1].Devices.Count = 1 }, []string{"pool disks"}},
		"one device more":          {func(s *v1beta1.StorageClusterSpec) { s.Pools[1].Devices.Count = 3 }, nil},
		"any devices":              {func(s *v1beta1.StorageClusterSpec) { *s.Pools[1].Devices = v1beta1.DeviceSelector{Model: "X"} }, []string{"pool disks"}},
		"no driver":                {func(s *v1beta1.StorageClusterSpec) { s.CSI.Enabled = new(bool) }, []string{"spec.csi.enabled", "pool files"}},
		"the driver said":          {func(s *v1beta1.StorageClusterSpec) { s.CSI.Enabled = new(true) }, nil},
		"a label it lacks":         {selector(terms("x", core.NodeSelectorOpExists)), []string{"node node1", "files", "disks"}},
		"a label it may not have":  {selector(terms("number", core.NodeSelectorOpDoesNotExist)), []string{"node node1"}},
		"a label it has":           {selector(terms("number", core.NodeSelectorOpExists)), nil},
		"a value it has":           {selector(terms("number", core.NodeSelectorOpIn, "7", "8")), nil},
		"a value it has not":       {selector(terms("number", core.NodeSelectorOpIn, "8")), []string{"node node1"}},
		"any value but its own":    {selector(terms("number", core.NodeSelectorOpNotIn, "7")), []string{"node node1"}},
		"any value but another":    {selector(terms("number", core.NodeSelectorOpNotIn, "8")), nil},
		"more than it has":         {selector(terms("number", core.NodeSelectorOpGt, "7")), []string{"node node1"}},
		"less than it has":         {selector(terms("number", core.NodeSelectorOpGt, "6")), nil},
		"a number below":           {selector(terms("number", core.NodeSelectorOpLt, "7")), []string{"node node1"}},
		"a number above":           {selector(terms("number", core.NodeSelectorOpLt, "8")), nil},
		"no number at all":         {selector(terms(core.LabelOSStable, core.NodeSelectorOpGt, "0")), []string{"node node1"}},
		"its name":                 {selector(named(core.NodeSelectorOpIn)), nil},
		"any name but its own":     {selector(named(core.NodeSelectorOpNotIn)), []string{"node node1"}},
		"one of two terms":         {selector(append(terms("x", core.NodeSelectorOpExists), named(core.NodeSelectorOpIn)...)), nil},
		"a term that says nothing": {selector([]core.NodeSelectorTerm{{}}), []string{"node node1"}},
		"of a pool a label":        {ofPool(terms("x", core.NodeSelectorOpExists)), []string{"pools disks", "node node1"}},
		"of a pool its name":       {ofPool(named(core.NodeSelectorOpIn)), nil},
	} {
		err := a.try(test.change)
		c := r.cluster("holdfast")
		test.change(&c.Spec)
		hidden := held.Check(c, c.Status.Pools, nodes)
		if refused := len(test.says) > 0; refused != (err != nil) || refused != (len(hidden) > 0) {
			t.Errorf("%s: the API server says %v; the operator would hide %+v", what, err, hidden)
		}
		r.says(what, err, test.says...)
	}
	for names, taken := range map[string]bool{"disks": false, "files": true, "disks, files": true} {
		c := r.cluster("holdfast")
		c.Annotations = map[string]string{v1beta1.AllowHidingAnnotation: names}
		hides(&c.Spec)
		_, err := r.ours.HoldfastV1beta1().StorageClusters().Update(t.Context(), c, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		if taken != (err == nil) {
			t.Errorf("where the annotation allows to hide %q: %v", names, err)
		}
	}
}

// directory is that of the first pool as the nodes have it.
func (r *rig) directory() string {
	r.Helper()
	c := check.Got(r.theirs.CoreV1().ConfigMaps(namespace).Get(r.Context(), v1beta1.NodeName, metav1.GetOptions{}))(r)
	_, rest, _ := strings.Cut(c.Data["node.json"], `"path":"`)
	path, _, _ := strings.Cut(rest, `"`)
	return path
}

// held are the names of the pools that the status says to hold volumes.
func (r *rig) held() string {
	var names []string
	for _, p := range r.cluster("holdfast").Status.Pools {
		names = append(names, p.Name)
	}
	slices.Sort(names)
	return strings.Join(names, " ")
}

func morePools(s *v1beta1.StorageClusterSpec) {
	s.Pools = append(s.Pools, v1beta1.PoolSpec{Name: "x", Path: "/srv/x"})
}

func withoutFiles(s *v1beta1.StorageClusterSpec) { s.Pools = s.Pools[1:] }

func TestHeldPools_ChangeThatHidesVolumesIsReportedAndNotAppliedWhileTheyAreThere(t *testing.T) {
	r, _ := inMemory(t)
	r.holding()
	moved := func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Path, s.Debug = "/srv/other", true }
	r.change("holdfast", moved)
	words := []string{"spec.pools[0].path", "/srv/other", "pool files holds 1 volume on node node1", "Revert the change"}
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden, words...)
	wait.Until(r, "the event", func() bool { return len(r.events.With("Warning VolumesHidden", "pool files")) == 1 })

	r.keepsFilesWithoutADaemonSet()

	// The other requested changes are applied.
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.StorageClasses = []v1beta1.StorageClassSpec{{Name: "hb-two"}} })
	wait.Until(r, "the other class", func() bool { return r.class("hb-two") != nil && r.class("hb-one") == nil })

	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Pools[0].Path = "/srv/files" })
	wait.Until(r, "all being well", func() bool {
		d := meta.FindStatusCondition(r.cluster("holdfast").Status.Conditions, v1beta1.DegradedCondition)
		return d != nil && d.Reason != reasonHidden
	})

	r.change("holdfast", moved)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden)
	lost := []byte(`{"status":{"phase":"Lost"}}`)
	check.Got(r.ours.HoldfastV1beta1().Volumes().Patch(t.Context(), "v1", types.MergePatchType, lost, metav1.PatchOptions{}, "status"))(t)
	wait.Until(r, "the pool of a volume that is lost in its new place", func() bool { return r.directory() == "/srv/other" })
}

// keepsFilesWithoutADaemonSet deletes it, as a user may, and sees that the next one has the pool at its place.
func (r *rig) keepsFilesWithoutADaemonSet() {
	r.Helper()
	sets := r.theirs.AppsV1().DaemonSets(namespace)
	was := check.Got(sets.Get(r.Context(), v1beta1.NodeName, metav1.GetOptions{}))(r)
	check.OK(r, sets.Delete(r.Context(), v1beta1.NodeName, metav1.DeleteOptions{}))
	wait.Until(r, "the next DaemonSet", func() bool {
		now := wait.Get(r, sets.Get, v1beta1.NodeName)
		return now != nil && now.UID != was.UID
	})
	wait.Never(r, "another place for the pool, or none", time.Second, func() bool { return r.directory() != "/srv/files" || r.held() != "disks files" })
}

// The pool is known from the status alone.
func TestHeldPools_StayProtectedWhenAUserDeletesTheDaemonSetOfASpecThatHides(t *testing.T) {
	r, _ := inMemory(t)
	r.holding()
	r.change("holdfast", withoutFiles)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden)
	r.keepsFilesWithoutADaemonSet()
}

func TestHeldPools_StayProtectedWhileTheDaemonSetIsRefused(t *testing.T) {
	r, refuse := inMemory(t)
	r.holding()
	refuse("/daemonsets/" + v1beta1.NodeName)
	r.change("holdfast", morePools)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonNotApplied, "a policy engine refuses it")
	if held := r.held(); held != "disks files" {
		t.Errorf("while it is not known what runs, held are %q", held)
	}
	r.change("holdfast", withoutFiles)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden, "nothing of it is applied", "pool files holds 1 volume on node node1")
	if path := r.directory(); path != "/srv/files" {
		t.Errorf("the first pool of the nodes is in %q", path)
	}

	refuse("")
	r.change("holdfast", func(s *v1beta1.StorageClusterSpec) { s.Debug = true })
	r.condition("holdfast", v1beta1.DegradedCondition, reasonHidden, "its pools and nodes are not changed")
	if path := r.directory(); path != "/srv/files" {
		t.Errorf("once it is known what runs, the first pool of the nodes is in %q", path)
	}
	r.noVolume("v1")
	wait.Until(r, "the removal of the empty pool", func() bool { return r.directory() != "/srv/files" && r.held() == "disks" })
}

func TestHeldPools_StayInTheStatusWhileAKindIsBeingDeleted(t *testing.T) {
	r, _ := inMemory(t)
	r.holding()
	const kind = "volumes.holdfast.dev"
	definitions := r.objects.Resource(kube.Definitions)
	check.Got(definitions.Patch(t.Context(), kind, types.MergePatchType, []byte(`{"metadata":{"finalizers":["test/stays"]}}`), metav1.PatchOptions{}))(t)
	check.OK(t, definitions.Delete(t.Context(), kind, metav1.DeleteOptions{}))
	wait.Until(r, "its deletion being seen", func() bool { return !r.controller.Kinds.Whole("volumes") })
	r.noVolume("v1")
	r.noVolume("v2")
	wait.Never(r, "a status without the pools", time.Second, func() bool { return r.held() != "disks files" })
}

func TestHeldPools_KeepNoClusterThatIsDeletedWhileTheDaemonSetIsRefused(t *testing.T) {
	r, refuse := inMemory(t)
	r.holding()
	refuse("/daemonsets/" + v1beta1.NodeName)
	r.change("holdfast", morePools)
	r.condition("holdfast", v1beta1.DegradedCondition, reasonNotApplied)
	check.OK(t, r.ours.HoldfastV1beta1().StorageClusters().Delete(t.Context(), "holdfast", metav1.DeleteOptions{}))
	r.condition("holdfast", v1beta1.ProgressingCondition, reasonVolumesExist)
	r.noVolume("v1")
	r.noVolume("v2")
	wait.Until(r, "its removal", func() bool { return r.cluster("holdfast") == nil })
}
