package provisioner

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

// of is a claim of a class with parameters.
func (p *Provisioner) of(t *testing.T, parameters map[string]string) *core.PersistentVolumeClaim {
	t.Helper()
	class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Provisioner: p.Name, Parameters: parameters}
	check.OK(t, p.classes.GetIndexer().Add(class))
	c := options(nil).PVC
	c.Annotations = map[string]string{wantedOf: p.Name}
	return c
}

func TestChoose_EachClaimIsForOneServer(t *testing.T) {
	_, p := quiet(t)
	for name, test := range map[string]struct {
		parameters                    map[string]string
		byDefault, otherwise, younger bool // who takes it: the default server, another, the default one with an older namesake
	}{
		"names none":              {nil, true, false, true},
		"names it as nothing":     {map[string]string{"nfsServer": ""}, true, false, true},
		"names it":                {map[string]string{"nfsServer": "main"}, true, true, false},
		"names it with namespace": {map[string]string{"nfsserver": "storage/main"}, true, true, true},
		"names its namesake":      {map[string]string{"nfsServer": "other/main"}, false, false, false},
		"names another":           {map[string]string{"nfsServer": "backup"}, false, false, false},
		"names something else":    {map[string]string{"nfsServer": "no such name"}, true, false, true},
		"has it twice":            {map[string]string{"nfsServer": "main", "NFSSERVER": "backup"}, true, false, true},
		"has other faults":        {map[string]string{"nfsServer": "backup", "speed": "fast"}, false, false, false},
	} {
		c := p.of(t, test.parameters)
		got, want := [3]bool{}, [3]bool{test.byDefault, test.otherwise, test.younger}
		for i := range got {
			p.Servers = servers{isDefault: i != 1, named: []string{"main", "main", "none"}[i]}
			got[i] = p.ShouldProvision(t.Context(), c)
		}
		if got != want {
			t.Errorf("a class that %s is taken by the default server, another, and a younger one: %v, want %v", name, got, want)
		}
	}
}

func TestChoose_ClaimOfAMissingServerGetsOneEvent(t *testing.T) {
	s, p := quiet(t)
	for server, want := range map[string]int{"gone": 1, "backup": 0, "main": 0} {
		c := p.of(t, map[string]string{"nfsServer": server})
		c.UID = types.UID(server)
		for _, first := range []bool{true, true, false, false} {
			p.Servers = servers{isDefault: first, named: "main", known: "backup"}
			p.ShouldProvision(t.Context(), c)
		}
		if written := s.events.With(`"` + server + `"`); len(written) != want {
			t.Errorf("the events of %s are %v", server, written)
		}
	}
}

func TestChoose_ForeignTerminatingOrProvisionedClaimIsSkipped(t *testing.T) {
	_, p := quiet(t)
	type claim = core.PersistentVolumeClaim
	for name, change := range map[string]func(*claim){
		"for no server":       func(c *claim) { c.Annotations = nil },
		"for another":         func(c *claim) { c.Annotations[wantedOf] = v1beta1.DriverName },
		"that is deleted":     func(c *claim) { c.DeletionTimestamp = new(metav1.Now()) },
		"for another, before": func(c *claim) { c.Annotations = map[string]string{wantedOfBefore: v1beta1.DriverName} },
	} {
		c := p.of(t, nil)
		if !p.ShouldProvision(t.Context(), c) {
			t.Error("a good claim is passed over")
		}
		change(c)
		if p.ShouldProvision(t.Context(), c) {
			t.Errorf("a claim %s is taken", name)
		}
	}
	check.OK(t, p.volumes.GetIndexer().Add(p.provisioned(t, options(nil))))
	if p.ShouldProvision(t.Context(), p.of(t, nil)) {
		t.Error("a claim that waits to be bound to its PersistentVolume is provisioned again")
	}
}

func TestChoose_OnlyOurPersistentVolumesAndReleasedOnesAreCached(t *testing.T) {
	_, p := quiet(t)
	const bound, released, other = core.VolumeBound, core.VolumeReleased, "storage/other"
	const deletes, retains = core.PersistentVolumeReclaimDelete, core.PersistentVolumeReclaimRetain
	for name, test := range map[string]struct {
		phase      core.PersistentVolumePhase
		by, server string
		policy     core.PersistentVolumeReclaimPolicy
		want       bool
	}{
		"ours":                  {bound, p.Name, p.Identity, deletes, true},
		"ours, to be retained":  {bound, p.Name, p.Identity, retains, true},
		"another's":             {bound, p.Name, other, deletes, false},
		"another's, waiting":    {released, p.Name, other, deletes, true},
		"another's, retained":   {released, p.Name, other, retains, false},
		"another provisioner's": {released, v1beta1.DriverName, p.Identity, deletes, false},
	} {
		v := &core.PersistentVolume{Status: core.PersistentVolumeStatus{Phase: test.phase}}
		v.Annotations = map[string]string{v1beta1.ProvisionedByAnnotation: test.by, v1beta1.NFSServerAnnotation: test.server}
		v.Spec.PersistentVolumeReclaimPolicy = test.policy
		if got := p.volumeConcerns(v); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

func TestConfig_WrongIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*Config)
		says   string
	}{
		"identity":           {func(c *Config) { c.Identity = "main" }, "NAMESPACE/NAME"},
		"identity with more": {func(c *Config) { c.Identity = "a/b/c" }, "NAMESPACE/NAME"},
		"identity empty":     {func(c *Config) { c.Identity = "/" }, "NAMESPACE/NAME"},
		"backend":            {func(c *Config) { c.Backend = nil }, "needs a backend"},
		"servers":            {func(c *Config) { c.Servers = nil }, "the servers"},
		"state":              {func(c *Config) { c.StateDir = "" }, "directory"},
		"lease":              {func(c *Config) { c.Lease = 1 }, "at least a second"},
	} {
		s := newServer(t, fake.NewClientset())
		test.change(&s.config)
		if _, err := New(s.config); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLease_EveryProcessHasItsOwnIdentity(t *testing.T) {
	s, a := quiet(t)
	if b := s.made(); a.Holder == b.Holder {
		t.Errorf("both are %s", a.Holder)
	}
}

func TestPath_IsMadeOfTheIDAlone(t *testing.T) {
	_, p := quiet(t)
	o := options(nil)
	o.PVName, o.PVC.Name, o.PVC.Namespace = "pvc-../../etc/passwd", "../x", "..\n"
	if path := p.provisioned(t, o).Spec.NFS.Path; check.Got(backend.ParseID(strings.TrimPrefix(path, "/")))(t) == "" {
		t.Errorf("the path is %q", path)
	}
}
