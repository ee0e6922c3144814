package admin

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/parameters"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func aClass(name, provisioner string, parameters map[string]string) storage.StorageClass {
	return storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner, Parameters: parameters}
}

// seen is a cluster with a volume, the classes of Holdfast, and no claim.
func seen(change ...func(*observed)) *observed {
	o := &observed{
		volume: aVolume("pvc-1"), namespace: "shop", name: "orders", taken: map[string]bool{},
		classes: []storage.StorageClass{
			aClass("holdfast", "csi.holdfast.dev", nil), aClass("holdfast-shared", "csi.holdfast.dev", map[string]string{"shared": "true"}),
			aClass("plain", "nfs.holdfast.dev", nil), aClass("cloud", "cloud.example.org", nil),
		},
	}
	o.classes[3].Annotations = map[string]string{defaultClass: "true"}
	for _, f := range change {
		f(o)
	}
	return o
}

func aClaim(name string, change ...func(*core.PersistentVolumeClaim)) *core.PersistentVolumeClaim {
	c := &core.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}}
	c.Spec.StorageClassName = new("holdfast")
	c.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	c.Spec.Resources.Requests = core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}
	c.Status.Phase = core.ClaimPending
	for _, f := range change {
		f(c)
	}
	return c
}

func pendingClaim(change ...func(*core.PersistentVolumeClaim)) func(*observed) {
	c := aClaim("orders", change...)
	c.UID = "u1"
	return func(o *observed) { o.claim = c }
}

func aPersistentVolume(name string) *core.PersistentVolume {
	pv := &core.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}
	pv.Spec.AccessModes = []core.PersistentVolumeAccessMode{core.ReadWriteOnce}
	pv.Spec.Capacity = core.ResourceList{core.ResourceStorage: resource.MustParse("1Gi")}
	pv.Spec.StorageClassName = "holdfast"
	pv.Spec.NodeAffinity = onNode("a")
	pv.Spec.PersistentVolumeReclaimPolicy = core.PersistentVolumeReclaimRetain
	return pv
}

// named returns a PersistentVolume of the volume.
func named(change ...func(*naming)) func(*observed) {
	n := naming{PersistentVolume: aPersistentVolume("pvc-1")}
	n.ResourceVersion, n.Spec.PersistentVolumeReclaimPolicy = "7", core.PersistentVolumeReclaimDelete
	for _, f := range change {
		f(&n)
	}
	return func(o *observed) { o.naming, o.taken["pvc-1"] = append(o.naming, n), true }
}

func onNode(name string) *core.VolumeNodeAffinity {
	return &core.VolumeNodeAffinity{Required: &core.NodeSelector{NodeSelectorTerms: []core.NodeSelectorTerm{{
		MatchExpressions: []core.NodeSelectorRequirement{{Key: v1beta1.TopologyKey, Operator: core.NodeSelectorOpIn, Values: []string{name}}},
	}}}}
}

func ofClaim(name string) func(*naming) {
	return func(n *naming) {
		n.claim = aClaim(name, func(c *core.PersistentVolumeClaim) { c.UID = "u1" })
		n.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: name, UID: "u1"}
		n.Status.Phase = core.VolumeBound
	}
}

func TestPlan_RefusesWithTheReason(t *testing.T) {
	type pvc = core.PersistentVolumeClaim
	fsType := map[string]string{parameters.FSType: "xfs"}
	modes := func(all ...core.PersistentVolumeAccessMode) Adoption { return Adoption{AccessModes: all} }
	ofClass := func(name string) Adoption { return Adoption{StorageClass: &name} }
	change := func(f func(*v1beta1.Volume)) func(*observed) { return func(o *observed) { f(o.volume) } }
	both := func(all ...func(*observed)) func(*observed) {
		return func(o *observed) {
			for _, f := range all {
				f(o)
			}
		}
	}
	for name, test := range map[string]struct {
		see  func(*observed)
		want Adoption
		says []string
	}{
		"a volume on its way out": {change(func(v *v1beta1.Volume) { v.DeletionTimestamp = new(metav1.Now()) }), Adoption{}, []string{"being deleted", "holdfast volumes restore pvc-1"}},
		"a volume that is to be": {change(func(v *v1beta1.Volume) {
			v.UID = "u"
			v.Spec.Deletion = &v1beta1.DeletionRequest{UID: "u", RequestedBy: "b", RequestedAt: metav1.NowMicro()}
		}), Adoption{}, []string{"being deleted"}},
		"a volume that is lost": {change(func(v *v1beta1.Volume) { v.Status.Phase = v1beta1.PhaseLost }), Adoption{}, []string{"is Lost", "no data"}},
		"a volume with a part of it": {change(func(v *v1beta1.Volume) {
			v.Status.Phase = v1beta1.PhaseUnreachable // the condition Ready says why
			v.Status.Conditions = []metav1.Condition{{Type: v1beta1.CompleteCondition, Status: metav1.ConditionFalse, Reason: v1beta1.ReasonIncomplete, Message: "delete it"}}
		}), Adoption{}, []string{"cannot be bound to a claim", "delete it"}},
		"a volume that never was": {change(func(v *v1beta1.Volume) { v.Status.Size = nil; v.Status.Phase = "" }), Adoption{}, []string{"has no size", "Pending"}},
		"no address of a server":  {both(change(onServer), change(func(v *v1beta1.Volume) { v.Status.Access = nil })), Adoption{}, []string{"NFS server team/main has not reported"}},
		"many nodes for one":      {nil, modes(core.ReadWriteMany), []string{"ReadWriteMany", "is on one node", "ReadWriteOnce"}},
		"an unknown access mode":  {change(onServer), modes("RWX"), []string{"RWX", "is on NFS server team/main", "ReadWriteMany"}},
		"one pod beside others":   {nil, modes(core.ReadWriteOnce, core.ReadWriteOncePod), []string{"ReadWriteOncePod cannot be combined"}},
		"a class of others":       {nil, ofClass("cloud"), []string{"StorageClass cloud", "cloud.example.org", "csi.holdfast.dev"}},
		"a shared class":          {nil, ofClass("holdfast-shared"), []string{"NFS servers", "is on node a"}},
		"a class of nodes":        {change(onServer), ofClass("holdfast"), []string{"volumes on nodes", "NFS server team/main"}},
		"a class of plain ones":   {change(onServer), ofClass("plain"), []string{"nfs.holdfast.dev"}},
		"a class of xfs":          {func(o *observed) { o.classes[0].Parameters = fsType }, ofClass("holdfast"), []string{"file system xfs", "has ext4"}},
		"two classes":             {func(o *observed) { o.classes = append(o.classes, aClass("big", "csi.holdfast.dev", nil)) }, Adoption{}, []string{"2 StorageClasses", "big, holdfast", "--storage-class"}},
		"no class":                {func(o *observed) { o.classes = nil }, Adoption{}, []string{"no StorageClass fits", "--storage-class"}},
		"its name is taken":       {func(o *observed) { o.taken["pvc-1"] = true }, Adoption{}, []string{"PersistentVolume pvc-1 exists and is not that of volume pvc-1"}},
		"a plain name is taken":   {both(change(plain), func(o *observed) { o.taken["pvc-plain"] = true }), Adoption{}, []string{"PersistentVolume pvc-plain exists"}},
		"another claim has it":    {named(ofClaim("other")), Adoption{}, []string{"is that of claim shop/other", "PersistentVolume pvc-1"}},
		"its PV goes":             {named(func(n *naming) { n.DeletionTimestamp = new(metav1.Now()) }), Adoption{}, []string{"is being deleted", "try again"}},
		"two PVs":                 {both(named(), named()), Adoption{}, []string{"2 PersistentVolumes"}},
		"a PV of another class":   {named(), ofClass(""), []string{`storage class "holdfast"`, `"" is requested`}},
		"a PV of another mode":    {named(), modes(core.ReadWriteOncePod), []string{"access modes [ReadWriteOnce]", "[ReadWriteOncePod] are requested"}},
		"a claim that goes":       {pendingClaim(func(c *pvc) { c.DeletionTimestamp = new(metav1.Now()) }), Adoption{}, []string{"shop/orders is being deleted"}},
		"a claim of another":      {pendingClaim(func(c *pvc) { c.Spec.VolumeName = "pvc-9" }), Adoption{}, []string{"has PersistentVolume pvc-9", "would be pvc-1"}},
		"a claim that has more":   {both(named(), pendingClaim(func(c *pvc) { c.Spec.VolumeName = "pvc-9" })), Adoption{}, []string{"it has PersistentVolume pvc-9, not pvc-1"}},
		"a claim that is larger":  {pendingClaim(func(c *pvc) { c.Spec.Resources.Requests["storage"] = resource.MustParse("2Gi") }), Adoption{}, []string{"requests 2Gi", "has 1Gi"}},
		"a claim of a class":      {pendingClaim(), ofClass(""), []string{`its storage class is "holdfast", not ""`}},
		"a claim of many nodes":   {pendingClaim(func(c *pvc) { c.Spec.AccessModes[0] = core.ReadWriteMany }), Adoption{}, []string{"ReadWriteMany", "is on one node"}},
		"a claim of one pod":      {both(named(), pendingClaim(func(c *pvc) { c.Spec.AccessModes[0] = core.ReadWriteOncePod })), Adoption{}, []string{"its access modes are [ReadWriteOncePod]"}},
		"a claim for a device":    {pendingClaim(func(c *pvc) { c.Spec.VolumeMode = new(core.PersistentVolumeBlock) }), Adoption{}, []string{"volumeMode is Block, not Filesystem"}},
		"a claim that chooses":    {pendingClaim(func(c *pvc) { c.Spec.Selector = &metav1.LabelSelector{} }), Adoption{}, []string{"spec.selector"}},
		"a claim for a copy":      {pendingClaim(func(c *pvc) { c.Spec.DataSourceRef = &core.TypedObjectReference{} }), Adoption{}, []string{"spec.dataSourceRef"}},
		"a claim without a class": {pendingClaim(func(c *pvc) { c.Spec.StorageClassName = nil }), ofClass("holdfast"), []string{`its storage class is "", not "holdfast"`}},
	} {
		t.Run(name, func(t *testing.T) {
			o := seen()
			if test.see != nil {
				test.see(o)
			}
			_, err := o.plan(test.want)
			refusal(t, err, test.says)
		})
	}
}

// plain makes it a volume of an NFS server's provisioner.
func plain(v *v1beta1.Volume) {
	onServer(v)
	v.Spec.Name = "pvc-plain"
	v.Spec.Labels = map[string]string{"nfs.holdfast.dev/server": "team/main", "nfs.holdfast.dev/on-delete": "archive", "export.holdfast.dev/gid": "2000"}
}

func TestPlan_ChoosesTheClassThatFits(t *testing.T) {
	for name, test := range map[string]struct {
		see   func(*observed)
		want  Adoption
		class string
		notes int
	}{
		"on a node":             {nil, Adoption{}, "holdfast", 0},
		"on a server":           {func(o *observed) { onServer(o.volume) }, Adoption{}, "holdfast-shared", 0},
		"plain":                 {func(o *observed) { plain(o.volume) }, Adoption{}, "plain", 0},
		"the one that is asked": {nil, Adoption{StorageClass: new("holdfast")}, "holdfast", 0},
		"none":                  {nil, Adoption{StorageClass: new("")}, "", 0},
		"one that is gone":      {nil, Adoption{StorageClass: new("gold")}, "gold", 1},
		"the claim's":           {pendingClaim(func(c *core.PersistentVolumeClaim) { c.Spec.StorageClassName = new("gold") }), Adoption{}, "gold", 1},
		"the default of several": {func(o *observed) {
			o.classes = append([]storage.StorageClass{aClass("big", "csi.holdfast.dev", nil)}, o.classes...)
			o.classes[1].Annotations = map[string]string{defaultClass: "true"}
		}, Adoption{}, "holdfast", 0},
		"that of its pool": {func(o *observed) {
			o.classes = append(o.classes, aClass("slow", "csi.holdfast.dev", map[string]string{"pool": "slow"}))
		}, Adoption{}, "holdfast", 0},
		"of one that is away, too": {func(o *observed) { o.volume.Status.Phase = v1beta1.PhaseUnreachable }, Adoption{}, "holdfast", 1},
	} {
		t.Run(name, func(t *testing.T) {
			o := seen()
			if test.see != nil {
				test.see(o)
			}
			b := check.Got(o.plan(test.want))(t)
			if got := b.pv.Spec.StorageClassName; got != test.class || classOf(b.claim) != test.class || len(b.notes) != test.notes {
				t.Errorf("class %q of the PersistentVolume, %q of the claim, notes %q", got, classOf(b.claim), b.notes)
			}
		})
	}
}

func TestPlan_UsesAPersistentVolumeThatWasReleasedAgainAndKeepsItFromBeingReclaimed(t *testing.T) {
	released := named(func(n *naming) {
		n.Spec.ClaimRef = &core.ObjectReference{Namespace: "shop", Name: "orders", UID: "of the one before", ResourceVersion: "3"}
		n.Status.Phase = core.VolumeReleased
	})
	b := check.Got(seen(released).plan(Adoption{}))(t)
	want := `{"metadata":{"resourceVersion":"7"},"spec":{"claimRef":{"apiVersion":"v1","kind":"PersistentVolumeClaim","name":"orders",` +
		`"namespace":"shop","resourceVersion":null,"uid":null},"persistentVolumeReclaimPolicy":"Retain"}}`
	if string(b.pvPatch) != want || b.newPV || !b.newClaim || b.claim.Spec.VolumeName != "pvc-1" {
		t.Errorf("it is %+v with the patch %s", b, b.pvPatch)
	}
	b = check.Got(seen(released, pendingClaim()).plan(Adoption{ReclaimPolicy: core.PersistentVolumeReclaimDelete}))(t)
	if patch := string(b.pvPatch); !strings.Contains(patch, `"uid":"u1"`) || !strings.Contains(patch, `"persistentVolumeReclaimPolicy":"Delete"`) || !b.setName {
		t.Errorf("with a claim it is %+v with the patch %s", b, patch)
	}
}

func TestPlan_UsesOnlyAPersistentVolumeThatLeadsToTheVolume(t *testing.T) {
	export := func(server, path string) func(*naming) {
		return func(n *naming) {
			n.Spec.NodeAffinity, n.Spec.NFS = nil, &core.NFSVolumeSource{Server: server, Path: path}
		}
	}
	attributes := func(server, path string) func(*naming) {
		return func(n *naming) {
			n.Spec.NodeAffinity, n.Spec.CSI = nil, &core.CSIPersistentVolumeSource{VolumeAttributes: map[string]string{"holdfast.dev/nfs-server": server, "holdfast.dev/nfs-path": path}}
		}
	}
	onItsNode := func(*v1beta1.Volume) {}
	for name, test := range map[string]struct {
		volume func(*v1beta1.Volume)
		pv     func(*naming)
		leads  string // elsewhere; empty if it leads to the volume
		is     string
	}{
		"to its node":              {onItsNode, func(*naming) {}, "", ""},
		"to another node":          {onItsNode, func(n *naming) { n.Spec.NodeAffinity = onNode("b") }, "node b", "node a"},
		"to any node":              {onItsNode, func(n *naming) { n.Spec.NodeAffinity = nil }, "any node", "node a"},
		"to its server":            {onServer, attributes("10.0.0.7", "/pvc-1"), "", ""},
		"to its server, plain":     {plain, export("10.0.0.7", "/pvc-1"), "", ""},
		"to its server, by hand":   {onServer, export("10.0.0.7", "/pvc-1"), "", ""},
		"to the address of before": {onServer, attributes("10.0.0.9", "/pvc-1"), "NFS export 10.0.0.9:/pvc-1", "NFS export 10.0.0.7:/pvc-1"},
		"likewise, plain":          {plain, export("10.0.0.9", "/pvc-1"), "NFS export 10.0.0.9:/pvc-1", "NFS export 10.0.0.7:/pvc-1"},
		"to a part of it":          {plain, export("10.0.0.7", "/pvc-1/app"), "NFS export 10.0.0.7:/pvc-1/app", "NFS export 10.0.0.7:/pvc-1"},
	} {
		t.Run(name, func(t *testing.T) {
			for remove, change := range map[string]func(*naming){"delete it,": func(*naming) {}, "delete claim shop/orders and it,": ofClaim("orders")} {
				o := seen(named(test.pv, change))
				test.volume(o.volume)
				_, err := o.plan(Adoption{})
				if test.leads == "" && err != nil || test.leads != "" && err == nil {
					t.Fatalf("it ended with %v", err)
				}
				if err != nil {
					refusal(t, err, []string{"PersistentVolume pvc-1", "leads to " + test.leads + ",", "reached at " + test.is + ";", "Retain", remove})
				}
			}
		})
	}
}

func TestPlan_GivesAClaimThatLostItsPersistentVolumeOneOfThatName(t *testing.T) {
	lost := pendingClaim(func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "pvc-1", core.ClaimLost })
	b := check.Got(seen(lost).plan(Adoption{}))(t)
	if b.pv.Name != "pvc-1" || !b.newPV || b.setName || b.pv.Spec.ClaimRef.UID != "u1" {
		t.Errorf("it is %+v, for %+v", b, b.pv.Spec.ClaimRef)
	}
}

func TestPlan_OfABoundVolumeChangesOnlyTheRequestedPolicy(t *testing.T) {
	bound := pendingClaim(func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName, c.Status.Phase = "pvc-1", core.ClaimBound })
	b := check.Got(seen(named(ofClaim("orders")), bound).plan(Adoption{}))(t)
	if b.newPV || b.newClaim || b.setName || b.pvPatch != nil {
		t.Errorf("it is %+v", b)
	}
	b = check.Got(seen(named(ofClaim("orders")), bound).plan(Adoption{ReclaimPolicy: core.PersistentVolumeReclaimRetain}))(t)
	if want := `{"metadata":{"resourceVersion":"7"},"spec":{"persistentVolumeReclaimPolicy":"Retain"}}`; string(b.pvPatch) != want {
		t.Errorf("the patch is %s", b.pvPatch)
	}
}
