package provisioner

import (
	"strings"
	"testing"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/check"
)

func TestChoose_EachClaimIsForOneServer(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	for name, test := range map[string]struct {
		parameters map[string]string
		byName     bool // with the default server
		otherwise  bool // with one that is not
	}{
		"names none":              {nil, true, false},
		"names it":                {map[string]string{"nfsServer": "main"}, true, true},
		"names it with namespace": {map[string]string{"nfsserver": "storage/main"}, true, true},
		"names its namesake":      {map[string]string{"nfsServer": "other/main"}, false, false},
		"names another":           {map[string]string{"nfsServer": "backup"}, false, false},
		"names something else":    {map[string]string{"nfsServer": "no such name"}, true, false},
		"has it twice":            {map[string]string{"nfsServer": "main", "NFSSERVER": "backup"}, true, false},
		"has other faults":        {map[string]string{"nfsServer": "backup", "speed": "fast"}, false, false},
	} {
		class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Provisioner: p.Name, Parameters: test.parameters}
		check.OK(t, p.classes.GetIndexer().Add(class))
		c := options(nil).PVC
		c.Annotations = map[string]string{wantedOf: p.Name}
		p.Default = func() bool { return true }
		if got := p.ShouldProvision(t.Context(), c); got != test.byName {
			t.Errorf("a class that %s: the default server takes it: %v", name, got)
		}
		p.Default = func() bool { return false }
		if got := p.ShouldProvision(t.Context(), c); got != test.otherwise {
			t.Errorf("a class that %s: a server that is not the default takes it: %v", name, got)
		}
	}
}

func TestChoose_ClaimWithAServerNameAloneIsForAServerOfThatName(t *testing.T) {
	for _, first := range []bool{true, false} {
		s := newServer(t, quietClient())
		s.config.Named = func(name string) bool { return first && name == "main" }
		p := s.made()
		for server, want := range map[string]bool{"main": first, "storage/main": true, "other/main": false, "backup": false} {
			class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Provisioner: p.Name, Parameters: map[string]string{"nfsServer": server}}
			check.OK(t, p.classes.GetIndexer().Add(class))
			c := options(nil).PVC
			c.Annotations = map[string]string{wantedOf: p.Name}
			if got := p.ShouldProvision(t.Context(), c); got != want {
				t.Errorf("the first of its name: %v; it takes a claim for %s: %v", first, server, got)
			}
		}
	}
}

func TestChoose_ClaimOfAMissingServerGetsOneEvent(t *testing.T) {
	s := newServer(t, quietClient())
	s.config.Known = func(server string) bool { return server == "backup" }
	p := s.made()
	for server, want := range map[string]int{"gone": 1, "backup": 0, "main": 0} {
		class := &storage.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: "shared"}, Provisioner: p.Name, Parameters: map[string]string{"nfsServer": server}}
		check.OK(t, p.classes.GetIndexer().Add(class))
		c := options(nil).PVC
		c.UID, c.Annotations = types.UID(server), map[string]string{wantedOf: p.Name}
		for _, first := range []bool{true, false} {
			p.Default = func() bool { return first }
			p.ShouldProvision(t.Context(), c)
			p.ShouldProvision(t.Context(), c)
		}
		if written := s.events.with(`"` + server + `"`); len(written) != want {
			t.Errorf("the events of %s are %v", server, written)
		}
	}
}

func TestChoose_ForeignOrTerminatingClaimIsSkipped(t *testing.T) {
	p := newServer(t, quietClient()).made()
	now := metav1.Now()
	for name, change := range map[string]func(*core.PersistentVolumeClaim){
		"for no server":   func(c *core.PersistentVolumeClaim) { c.Annotations = nil },
		"for another":     func(c *core.PersistentVolumeClaim) { c.Annotations[wantedOf] = v1beta1.DriverName },
		"that is deleted": func(c *core.PersistentVolumeClaim) { c.DeletionTimestamp = &now },
		"for another, before": func(c *core.PersistentVolumeClaim) {
			c.Annotations = map[string]string{wantedOfBefore: v1beta1.DriverName}
		},
	} {
		c := options(nil).PVC
		c.Annotations = map[string]string{wantedOf: p.Name}
		if !p.ShouldProvision(t.Context(), c) {
			t.Error("a good claim is passed over")
		}
		change(c)
		if p.ShouldProvision(t.Context(), c) {
			t.Errorf("a claim %s is taken", name)
		}
	}
}

func TestChoose_OnlyOurPersistentVolumesAndReleasedOnesAreCached(t *testing.T) {
	p := newServer(t, quietClient()).made()
	volume := func(phase core.PersistentVolumePhase, by, server string, policy core.PersistentVolumeReclaimPolicy) *core.PersistentVolume {
		return &core.PersistentVolume{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{v1beta1.ProvisionedByAnnotation: by, v1beta1.NFSServerAnnotation: server}},
			Spec:       core.PersistentVolumeSpec{PersistentVolumeReclaimPolicy: policy},
			Status:     core.PersistentVolumeStatus{Phase: phase},
		}
	}
	for name, test := range map[string]struct {
		volume *core.PersistentVolume
		want   bool
	}{
		"ours":                  {volume(core.VolumeBound, p.Name, p.Identity, core.PersistentVolumeReclaimDelete), true},
		"ours, to be retained":  {volume(core.VolumeBound, p.Name, p.Identity, core.PersistentVolumeReclaimRetain), true},
		"another's":             {volume(core.VolumeBound, p.Name, "storage/other", core.PersistentVolumeReclaimDelete), false},
		"another's, waiting":    {volume(core.VolumeReleased, p.Name, "storage/other", core.PersistentVolumeReclaimDelete), true},
		"another's, retained":   {volume(core.VolumeReleased, p.Name, "storage/other", core.PersistentVolumeReclaimRetain), false},
		"another provisioner's": {volume(core.VolumeReleased, v1beta1.DriverName, p.Identity, core.PersistentVolumeReclaimDelete), false},
	} {
		if got := p.volumeConcerns(test.volume); got != test.want {
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
		"address":            {func(c *Config) { c.Address = nil }, "an address"},
		"state":              {func(c *Config) { c.StateDir = "" }, "directory"},
		"lease":              {func(c *Config) { c.Lease = 1 }, "at least a second"},
	} {
		s := newServer(t, quietClient())
		test.change(&s.config)
		if _, err := New(s.config); err == nil || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestLease_EveryProcessHasItsOwnIdentity(t *testing.T) {
	s := newServer(t, quietClient())
	if a, b := s.made(), s.made(); a.Holder == b.Holder {
		t.Errorf("both are %s", a.Holder)
	}
}

func TestPath_IsMadeOfTheIDAlone(t *testing.T) {
	s := newServer(t, quietClient())
	p := s.made()
	o := options(nil)
	o.PVName, o.PVC.Name, o.PVC.Namespace = "pvc-../../etc/passwd", "../x", "..\n"
	pv, _, err := p.Provision(t.Context(), o)
	check.OK(t, err)
	if _, err := backend.ParseID(strings.TrimPrefix(pv.Spec.NFS.Path, "/")); err != nil {
		t.Errorf("the path is %q", pv.Spec.NFS.Path)
	}
}
