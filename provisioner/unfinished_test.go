package provisioner

import (
	"context"
	"errors"
	"maps"
	"testing"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	"github.com/holdfast-storage/holdfast/api/v1beta1"
	"github.com/holdfast-storage/holdfast/backend"
	"github.com/holdfast-storage/holdfast/test/rig/alongside"
	"github.com/holdfast-storage/holdfast/test/rig/check"
	"github.com/holdfast-storage/holdfast/test/rig/wait"
)

// begun is a volume that was made and has no PersistentVolume.
func begun(t *testing.T, s *server) (*Provisioner, *core.PersistentVolume, backend.ID) {
	t.Helper()
	p := s.made()
	pv, _, err := p.Provision(t.Context(), options(nil))
	check.OK(t, err)
	pv.Annotations[v1beta1.ProvisionedByAnnotation] = p.Name
	return p, pv, volumeOf(pv)
}

// working looks at what was begun until the test ends.
func (p *Provisioner) working(t *testing.T) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	alongside.Run(ctx, t, cancel, func(ctx context.Context) error {
		go p.claims.RunWithContext(ctx)
		return p.begun.Run(ctx)
	})
	if !cache.WaitForCacheSync(t.Context().Done(), p.claims.HasSynced) {
		t.Fatal("the claims are not listed")
	}
}

func TestBegun_EndsByWhatTheAPIServerSays(t *testing.T) {
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
		"the claim lost its PersistentVolume":    {at{claim: func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-" + string(c.UID) + ofMain }}, true, false},
		"it lost one of an earlier release":      {at{claim: func(c *core.PersistentVolumeClaim) { c.Spec.VolumeName = "pvc-" + string(c.UID) }}, true, false},
		"it has its PersistentVolume":            {at{claim: asIs, volume: func(*core.PersistentVolume) {}}, true, false},
		"it has one of an earlier release":       {at{claim: asIs, volume: func(v *core.PersistentVolume) { v.Name = string(volumeOf(v)) }}, true, false},
		"it has one and the claim is gone":       {at{volume: func(*core.PersistentVolume) {}}, true, false},
		"another server made one":                {at{claim: asIs, volume: func(v *core.PersistentVolume) { v.Annotations[v1beta1.NFSServerAnnotation] = "storage/other" }}, false, false},
		"another disk of this server made one":   {at{claim: asIs, volume: func(v *core.PersistentVolume) { v.Annotations[v1beta1.NFSStoreAnnotation] = "other" }}, false, false},
		"another provisioner made one like this": {at{claim: asIs, volume: func(v *core.PersistentVolume) { v.Annotations[v1beta1.ProvisionedByAnnotation] = "x" }}, false, false},
	} {
		s := newServer(t, fake.NewClientset())
		p, pv, id := begun(t, s)
		if test.claim != nil {
			c := options(nil).PVC
			test.claim(c)
			check.Got(p.Client.CoreV1().PersistentVolumeClaims(c.Namespace).Create(t.Context(), c, metav1.CreateOptions{}))(t)
		}
		if test.volume != nil {
			test.volume(pv)
			check.Got(p.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}))(t)
		}
		if _, err := p.reconcile(t.Context(), id); err != nil {
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

// The loser of two servers looks just while the winner's PersistentVolume is written and the claim is bound to it.
func TestBegun_APersistentVolumeThatComesBetweenTwoQuestionsIsNotTakenForLost(t *testing.T) {
	client := fake.NewClientset()
	s := newServer(t, client)
	p, pv, id := begun(t, s)
	claim := options(nil).PVC
	check.OK(t, client.Tracker().Add(claim.DeepCopy()))
	pv.Annotations[v1beta1.NFSServerAnnotation] = "storage/other"
	claim.Spec.VolumeName = pv.Name
	asked := 0
	between := func(a clienttesting.Action) (bool, runtime.Object, error) {
		answer, err := client.Tracker().Get(a.GetResource(), a.GetNamespace(), a.(clienttesting.GetAction).GetName())
		if asked++; asked == 1 {
			err = errors.Join(err, client.Tracker().Add(pv), client.Tracker().Update(claimResource, claim, claim.Namespace))
			if apierrors.IsNotFound(err) {
				err = apierrors.NewNotFound(a.GetResource().GroupResource(), "it")
			}
		}
		return true, answer, err
	}
	client.PrependReactor("get", "persistentvolumes", between)
	client.PrependReactor("get", "persistentvolumeclaims", between)
	for range 2 {
		check.Got(p.reconcile(t.Context(), id))(t)
	}
	if len(s.disk.volumes()) != 0 || len(p.journal.all()) != 0 {
		t.Errorf("the volume of the loser is kept: %v, journal %v", s.disk.volumes(), p.journal.all())
	}
}

var claimResource = core.SchemeGroupVersion.WithResource("persistentvolumeclaims")

func TestBegun_NothingIsRemovedWhileTheAPIServerDoesNotAnswer(t *testing.T) {
	for _, resource := range []string{"persistentvolumes", "persistentvolumeclaims"} {
		client := fake.NewClientset()
		s := newServer(t, client)
		p, _, id := begun(t, s)
		fails := errors.New("no route")
		client.PrependReactor("get", resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, fails })
		if _, err := p.reconcile(t.Context(), id); !errors.Is(err, fails) {
			t.Errorf("%s: %v", resource, err)
		}
		if len(s.disk.volumes()) != 1 || len(p.journal.all()) != 1 {
			t.Errorf("%s: it is gone", resource)
		}
	}
}

func TestBegun_VolumeThatCannotBeRemovedStaysInTheJournal(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	s.disk.hook(func(_ context.Context, call string) error {
		if call == "delete" {
			return backend.ErrPrecondition
		}
		return nil
	})
	if _, err := p.reconcile(t.Context(), id); !errors.Is(err, backend.ErrPrecondition) || len(p.journal.all()) != 1 {
		t.Errorf("%v; in the journal: %v", err, p.journal.all())
	}
}

func TestBegun_ForeignVolumeIsNotRemoved(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	check.OK(t, s.disk.Memory.Delete(t.Context(), id))
	check.Got(s.disk.Memory.Create(t.Context(), backend.VolumeSpec{Name: string(id)}))(t)
	if _, err := p.reconcile(t.Context(), id); err != nil || len(s.disk.volumes()) != 1 || len(p.journal.all()) != 0 {
		t.Errorf("volumes %v, journal %v, %v", s.disk.volumes(), p.journal.all(), err)
	}
}

func TestBegun_AClaimThatIsDeletedIsLookedAtAtOnce(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	other := options(nil).PVC
	other.UID = "other"
	for _, o := range []any{other, "no claim"} {
		if all := p.begunFor(o); len(all) != 0 {
			t.Errorf("for %v %v was begun", o, all)
		}
	}
	claims := p.Client.CoreV1().PersistentVolumeClaims("default")
	check.Got(claims.Create(t.Context(), options(nil).PVC, metav1.CreateOptions{}))(t)
	p.working(t)
	check.OK(t, claims.Delete(t.Context(), options(nil).PVC.Name, metav1.DeleteOptions{}))
	wait.Until(t, "volume "+string(id)+" is gone", func() bool { return len(s.disk.volumes()) == 0 && len(p.journal.all()) == 0 })
}

func TestBegun_NothingEndsWithoutTheLease(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, _, id := begun(t, s)
	p.gate.shut()
	if _, err := p.reconcile(t.Context(), id); err != nil {
		t.Error(err)
	}
	if len(s.disk.volumes()) != 1 || len(p.journal.all()) != 1 {
		t.Error("it is removed")
	}
}

// The volume was begun by an earlier release, and its PersistentVolume gets another name.
func TestBegun_VolumeOfAnEarlierReleaseIsMadeAgainUnlessItHasItsPersistentVolume(t *testing.T) {
	for _, has := range []bool{false, true} {
		s := newServer(t, fake.NewClientset())
		p, pv, id := begun(t, s)
		old := s.disk.volume(string(id))
		spec := backend.VolumeSpec{Name: old.Name, Size: backend.Size{Required: old.Size}, Mode: old.Mode, Labels: maps.Clone(old.Labels)}
		spec.Labels[v1beta1.PersistentVolumeLabel] = old.Name
		check.OK(t, s.disk.Delete(t.Context(), id))
		check.Got(s.disk.Create(t.Context(), spec))(t)
		if has {
			pv.Name = old.Name
			check.Got(p.Client.CoreV1().PersistentVolumes().Create(t.Context(), pv, metav1.CreateOptions{}))(t)
		}
		_, _, first := p.Provision(t.Context(), options(nil))
		again, _, second := p.Provision(t.Context(), options(nil))
		switch {
		case first == nil:
			t.Errorf("it has one: %t: the volume of before is taken", has)
		case has && (second == nil || len(s.disk.volumes()) != 1):
			t.Errorf("it is made again while it is in use: %v", second)
		case !has && (second != nil || again.Name != string(id)+ofMain || s.disk.volume(string(id)).Labels[v1beta1.PersistentVolumeLabel] != again.Name):
			t.Errorf("it is not made again: %v", second)
		}
	}
}

func TestShouldProvision_ClaimThatWaitsToBeBoundIsNotProvisionedAgain(t *testing.T) {
	s := newServer(t, fake.NewClientset())
	p, pv, _ := begun(t, s)
	claim := options(nil).PVC
	if p.isProvisioned(claim) {
		t.Error("it has no PersistentVolume yet")
	}
	check.OK(t, p.volumes.SharedIndexInformer.GetStore().Add(pv))
	if !p.isProvisioned(claim) {
		t.Errorf("its PersistentVolume is %s", pv.Name)
	}
}
