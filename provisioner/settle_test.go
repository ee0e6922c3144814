package provisioner

import (
	"context"
	"errors"
	"testing"

	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	v1 "github.com/holdfast-storage/holdfast/api/v1"
	"github.com/holdfast-storage/holdfast/backend"
)

// begun is a volume that was made and has no PersistentVolume.
func begun(t *testing.T, s *server) (*Provisioner, *core.PersistentVolume, backend.ID) {
	t.Helper()
	p := s.made()
	pv, _, err := p.Provision(t.Context(), options(nil))
	if err != nil {
		t.Fatal(err)
	}
	pv.Annotations[v1.ProvisionedByAnnotation] = p.Name
	return p, pv, backend.ID(pv.Name)
}

func TestWhatWasBegunIsSettledByWhatTheServerOfTheAPISays(t *testing.T) {
	type at struct {
		claim  func(*core.PersistentVolumeClaim) // nil: it is gone
		volume func(*core.PersistentVolume)      // nil: there is none
	}
	asIs := func(*core.PersistentVolumeClaim) {}
	for name, test := range map[string]struct {
		at
		keeps, waits bool
	}{
		"the claim waits":                        {at{claim: asIs}, true, true},
		"the claim is gone":                      {at{}, false, false},
		"another claim has its name":             {at{claim: func(c *core.PersistentVolumeClaim) { c.UID = "another" }}, false, false},
		"the claim got another volume":           {at{claim: func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "another" }}, false, false},
		"the claim lost its PersistentVolume":    {at{claim: func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-" + string(c.UID) }}, true, false},
		"it has its PersistentVolume":            {at{claim: asIs, volume: func(*core.PersistentVolume) {}}, true, false},
		"it has one and the claim is gone":       {at{volume: func(*core.PersistentVolume) {}}, true, false},
		"another server made one":                {at{claim: asIs, volume: func(v *core.PersistentVolume) { v.Annotations[v1.NFSServerAnnotation] = "storage/other" }}, false, false},
		"another disk of this server made one":   {at{claim: asIs, volume: func(v *core.PersistentVolume) { v.Annotations[v1.NFSStoreAnnotation] = "other" }}, false, false},
		"another provisioner made one like this": {at{claim: asIs, volume: func(v *core.PersistentVolume) { v.Annotations[v1.ProvisionedByAnnotation] = "x" }}, false, false},
	} {
		s := newServer(t, fake.NewClientset())
		p, pv, id := begun(t, s)
		if test.claim != nil {
			c := options(nil).PVC
			test.claim(c)
			if _, err := p.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if test.volume != nil {
			test.volume(pv)
			if _, err := p.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.settle(t.Context(), id); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, waits := p.journal.get(id); waits != test.waits {
			t.Errorf("%s: in the journal: %v", name, waits)
		}
		if keeps := len(s.disk.volumes()) == 1; keeps != test.keeps {
			t.Errorf("%s: on the disk: %v", name, keeps)
		}
	}
}

func TestNothingIsRemovedWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims"} {
		client := fake.NewClientset()
		s := newServer(t, client)
		p, _, id := begun(t, s)
		fails := errors.New("no route")
		client.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, fails })
		if err := p.settle(t.Context(), id); !errors.Is(err, fails) {
			t.Errorf("%s: %v", resource, err)
		}
		if len(s.disk.volumes()) != 1 || len(p.journal.all()) != 1 {
			t.Errorf("%s: it is gone", resource)
		}
	}
}

func TestAVolumeThatCannotBeRemovedStaysInTheJournal(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	s.disk.hook(func(_ context.Context, call string) error {
		if call == "delete" {
			return backend.ErrPrecondition
		}
		return nil
	})
	if err := p.settle(t.Context(), id); !errors.Is(err, backend.ErrPrecondition) || len(p.journal.all()) != 1 {
		t.Errorf("%v; in the journal: %v", err, p.journal.all())
	}
}

func TestAVolumeThatIsNowOfSomebodyElseIsNotRemoved(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	if err := s.disk.Memory.Delete(t.Context(), id); err != nil {
		t.Fatal(err)
	}
	if _, err := s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: string(id)}); err != nil {
		t.Fatal(err)
	}
	if err := p.settle(t.Context(), id); err != nil || len(s.disk.volumes()) != 1 || len(p.journal.all()) != 0 {
		t.Errorf("volumes %v, journal %v, %v", s.disk.volumes(), p.journal.all(), err)
	}
}

func TestAClaimThatIsDeletedIsSettledAtOnce(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	other := options(nil).PVC
	other.UID = "other"
	p.settleOn(other)
	p.settleOn("no claim")
	if p.settling.Len() != 0 {
		t.Error("a claim for which nothing was begun is settled")
	}
	p.settleOn(cache.DeletedFinalStateUnknown{Obj: options(nil).PVC})
	if p.settling.Len() != 1 || !p.settleNext(t.Context()) {
		t.Fatal("it is not settled")
	}
	if len(s.disk.volumes()) != 0 || len(p.journal.all()) != 0 {
		t.Errorf("%s is left", id)
	}
}

func TestNothingIsSettledWithoutTheLease(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	p.gate.shut()
	p.settling.Add(id)
	p.settleNext(t.Context())
	if len(s.disk.volumes()) != 1 || len(p.journal.all()) != 1 {
		t.Error("it is removed")
	}
}
